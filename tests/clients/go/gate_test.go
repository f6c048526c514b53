// Package clients asks a started gate with arrow-go's Flight SQL client, as Go programs and Grafana do.
//
// `cargo xtask test clients` compiles this package to one program, and `tests/clients/test_go.py` runs every test of it
// as a test of its own. This file says where the gate is and how to come in; it must not test anything.
package clients

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// deadline is what no call of these tests may take, on the slowest machine that still is one.
const deadline = 60 * time.Second

// tables are the TPC-H tables in the order of their names.
var tables = []string{"customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"}

// endless runs longer than any test waits, and returns nothing before it is done. Stock executors work on at what was
// cancelled, so before those it takes some tens of seconds only.
var endless = func() string {
	if os.Getenv("PORTCULLIS_CLUSTER_PORTS") != "" {
		return "SELECT sum(a.l_quantity * b.l_extendedprice + b.l_tax) AS s " +
			"FROM lineitem a CROSS JOIN lineitem b WHERE a.l_orderkey < 1600"
	}
	return "SELECT sum(a.l_quantity * b.l_extendedprice + c.l_tax) AS s " +
		"FROM lineitem a CROSS JOIN lineitem b CROSS JOIN lineitem c"
}()

// TestMain runs the tests, or one of the two tasks that the Python suites give this program.
func TestMain(m *testing.M) {
	tasks := map[string]func(context.Context) error{"answer": answer, "wire": wire}
	name, asked := os.LookupEnv("PORTCULLIS_GO_TASK")
	if !asked {
		os.Exit(m.Run())
	}
	task, known := tasks[name]
	if !known {
		fmt.Fprintf(os.Stderr, "unknown task %q\n", name)
		os.Exit(64)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := task(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answer reads a statement from standard input and writes its rows to standard output as an Arrow stream.
func answer(ctx context.Context) error {
	sql, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	client, err := dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx = signed(ctx)
	info, err := client.Execute(ctx, string(sql))
	if err != nil {
		return err
	}
	schema, batches, err := fetch(ctx, client, info)
	if err != nil {
		return err
	}
	writer := ipc.NewWriter(os.Stdout, ipc.WithSchema(schema))
	for _, batch := range batches {
		if err := writer.Write(batch); err != nil {
			return err
		}
	}
	return writer.Close()
}

// wire does what every client does for the record of calls: connect, list the tables, ask once, close.
func wire(ctx context.Context) error {
	client, err := dial()
	if err != nil {
		return err
	}
	ctx = signed(ctx)
	list, err := client.GetTables(ctx, &flightsql.GetTablesOpts{})
	if err != nil {
		return err
	}
	if _, _, err := fetch(ctx, client, list); err != nil {
		return err
	}
	info, err := client.Execute(ctx, "SELECT n_name FROM nation")
	if err != nil {
		return err
	}
	if _, _, err := fetch(ctx, client, info); err != nil {
		return err
	}
	// A default session says that it cannot be closed; that is an answer as well.
	if _, err := client.CloseSession(ctx, &flight.CloseSessionRequest{}); err != nil {
		return err
	}
	return client.Close()
}

// setting is a value that the test run has to name.
func setting(name string) string {
	value, found := os.LookupEnv(name)
	if !found {
		panic(name + " is not set: these tests are run by `cargo xtask test clients`")
	}
	return value
}

// address is `host:port` of the gate.
func address() string { return strings.TrimPrefix(setting("PORTCULLIS_URL"), "grpc+tls://") }

// token is the good credential.
func token() string {
	text, err := os.ReadFile(setting("PORTCULLIS_TOKEN_FILE"))
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(text))
}

// trust is a TLS configuration that knows the CA of the gate.
func trust() *tls.Config {
	pem, err := os.ReadFile(setting("PORTCULLIS_CA"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		panic("the CA file holds no certificate")
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// dial makes a client; the connection itself comes with the first call.
func dial(options ...grpc.DialOption) (*flightsql.Client, error) {
	return dialWith(nil, options...)
}

func dialWith(middleware []flight.ClientMiddleware, options ...grpc.DialOption) (*flightsql.Client, error) {
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(trust()))}, options...)
	return flightsql.NewClient(address(), nil, middleware, options...)
}

// signed adds the good credential to all calls made with the context.
func signed(ctx context.Context) context.Context { return as(ctx, "Bearer "+token()) }

// as adds any credential.
func as(ctx context.Context, authorization string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
}

// start gives a test its client and its context.
func start(t *testing.T) (*flightsql.Client, context.Context) {
	t.Helper()
	client, err := dial()
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client, limited(t)
}

// limited is a signed context with the deadline of a test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return signed(ctx)
}

// fetch reads all endpoints of an answer and checks that each stream has the schema that was announced.
func fetch(ctx context.Context, client *flightsql.Client, info *flight.FlightInfo) (*arrow.Schema, []arrow.RecordBatch, error) {
	schema, err := flight.DeserializeSchema(info.Schema, client.Alloc)
	if err != nil {
		return nil, nil, fmt.Errorf("the schema of the FlightInfo: %w", err)
	}
	var batches []arrow.RecordBatch
	for _, endpoint := range info.Endpoint {
		if len(endpoint.Location) != 0 {
			return nil, nil, fmt.Errorf("an endpoint has locations: %v", endpoint.Location)
		}
		reader, err := client.DoGet(ctx, endpoint.Ticket)
		if err != nil {
			return nil, nil, err
		}
		if !reader.Schema().Equal(schema) {
			return nil, nil, fmt.Errorf("the stream has the schema %s, announced was %s", reader.Schema(), schema)
		}
		for reader.Next() {
			batch := reader.RecordBatch()
			batch.Retain()
			batches = append(batches, batch)
		}
		err = reader.Err()
		reader.Release()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
	}
	return schema, batches, nil
}

// ask runs a statement and returns its rows as text, which is enough to compare.
func ask(ctx context.Context, client *flightsql.Client, sql string) ([][]string, error) {
	info, err := client.Execute(ctx, sql)
	if err != nil {
		return nil, err
	}
	_, batches, err := fetch(ctx, client, info)
	return rows(batches), err
}

// rows gives every value as arrow-go prints it.
func rows(batches []arrow.RecordBatch) [][]string {
	var all [][]string
	for _, batch := range batches {
		for row := range int(batch.NumRows()) {
			var values []string
			for _, column := range batch.Columns() {
				values = append(values, column.ValueStr(row))
			}
			all = append(all, values)
		}
	}
	return all
}

// count adds up the rows of batches.
func count(batches []arrow.RecordBatch) (sum int64) {
	for _, batch := range batches {
		sum += batch.NumRows()
	}
	return sum
}

// texts gives one column of strings.
func texts(t *testing.T, batches []arrow.RecordBatch, name string) (all []string) {
	t.Helper()
	for _, batch := range batches {
		at := batch.Schema().FieldIndices(name)
		if len(at) != 1 {
			t.Fatalf("%d columns are called %s: %s", len(at), name, batch.Schema())
		}
		column, isText := batch.Column(at[0]).(*array.String)
		if !isText {
			t.Fatalf("%s is %s", name, batch.Column(at[0]).DataType())
		}
		for row := range column.Len() {
			all = append(all, column.Value(row))
		}
	}
	return all
}

// expect compares by what is printed.
func expect(t *testing.T, got any, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that a call has failed with one of the codes.
func refused(t *testing.T, err error, want ...codes.Code) string {
	t.Helper()
	if err == nil {
		t.Fatal("was not refused")
	}
	for _, code := range want {
		if status.Code(err) == code {
			return status.Convert(err).Message()
		}
	}
	t.Fatalf("refused with %v, want %v: %v", status.Code(err), want, err)
	return ""
}

// within runs something that may not take longer.
func within(t *testing.T, limit time.Duration, what func()) {
	t.Helper()
	started := time.Now()
	what()
	if took := time.Since(started); took > limit {
		t.Fatalf("took %v, expected less than %v", took, limit)
	}
}

// stillAnswers asks the cluster, not only the gate.
func stillAnswers(t *testing.T, client *flightsql.Client) {
	t.Helper()
	found, err := ask(limited(t), client, "SELECT count(*) FROM nation")
	must(t, err)
	expect(t, found, [][]string{{"25"}})
}
