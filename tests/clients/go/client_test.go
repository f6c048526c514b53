// What Go programs do with arrow-go's Flight SQL client: sign in, ask, prepare, use a session, cancel, be refused.

package clients

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// --- signing in ------------------------------------------------------------------------------------------------------

func TestABearerTokenOverTLSIsEnoughToSelectOne(t *testing.T) {
	client, ctx := start(t)
	found, err := ask(ctx, client, "SELECT 1")
	must(t, err)
	expect(t, found, [][]string{{"1"}})
}

func TestEveryBadCredentialIsUnauthenticatedWithOneText(t *testing.T) {
	client, good := start(t)
	_, err := ask(good, client, "SELECT 1")
	must(t, err)
	said := map[string]bool{}
	for _, authorization := range []string{
		"Bearer " + token()[:len(token())-4] + "AAAA", "Bearer hello", "Bearer ", "Bearer", token(), "Basic YTpi",
	} {
		ctx, cancel := context.WithTimeout(as(context.Background(), authorization), deadline)
		_, err := ask(ctx, client, "SELECT 1")
		cancel()
		said[refused(t, err, codes.Unauthenticated)] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err = ask(ctx, client, "SELECT 1")
	said[refused(t, err, codes.Unauthenticated)] = true
	expect(t, len(said), 1)
}

func TestAPasswordIsRefusedInTheHandshakeWhereNoPasswordSchemeIsConfigured(t *testing.T) {
	client, err := dial()
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err = client.Client.AuthenticateBasicToken(ctx, "alice", "wonderland")
	if text := refused(t, err, codes.Unauthenticated); strings.Contains(text, "wonderland") {
		t.Fatal("the password is in the text")
	}
	stillAnswers(t, client)
}

func TestAClientWithoutTheCADoesNotTrustTheGate(t *testing.T) {
	client, err := dial(grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})))
	must(t, err)
	defer client.Close()
	within(t, 30*time.Second, func() {
		_, err = ask(limited(t), client, "SELECT 1")
	})
	refused(t, err, codes.Unavailable)
}

func TestAClientWithoutTLSFailsFast(t *testing.T) {
	client, err := dial(grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer client.Close()
	within(t, 30*time.Second, func() {
		_, err = ask(limited(t), client, "SELECT 1")
	})
	refused(t, err, codes.Unavailable)
}

func TestUnknownRequestHeadersAreIgnored(t *testing.T) {
	client, ctx := start(t)
	ctx = metadata.AppendToOutgoingContext(ctx, "pasword", "mistyped", "x-grafana-org-id", "1", "trace-bin", "\x00\xff")
	found, err := ask(ctx, client, "SELECT 1")
	must(t, err)
	expect(t, found, [][]string{{"1"}})
}

func TestTheCookieMiddlewareDoesNoHarm(t *testing.T) {
	client, err := dialWith([]flight.ClientMiddleware{flight.NewClientCookieMiddleware()})
	must(t, err)
	defer client.Close()
	for range 3 {
		stillAnswers(t, client)
	}
}

// --- statements ------------------------------------------------------------------------------------------------------

func TestAStatementHasOneEndpointWithoutALocation(t *testing.T) {
	client, ctx := start(t)
	for _, sql := range []string{"SELECT 1", "SELECT * FROM lineitem", "SELECT n_name FROM nation WHERE false"} {
		info, err := client.Execute(ctx, sql)
		must(t, err)
		expect(t, len(info.Endpoint), 1)
		expect(t, len(info.Endpoint[0].Location), 0)
	}
}

func TestAWholeTableArrivesComplete(t *testing.T) {
	client, ctx := start(t)
	counted, err := ask(ctx, client, "SELECT count(*) FROM lineitem")
	must(t, err)
	info, err := client.Execute(ctx, "SELECT * FROM lineitem")
	must(t, err)
	schema, batches, err := fetch(ctx, client, info)
	must(t, err)
	expect(t, len(schema.Fields()), 16)
	expect(t, counted, fmt.Sprintf("[[%d]]", count(batches)))
	if count(batches) < 50_000 {
		t.Fatalf("%d rows are not the whole table", count(batches))
	}
}

func TestAllSourcesOfASchemaAreEqual(t *testing.T) {
	client, ctx := start(t)
	for _, sql := range []string{
		"SELECT 1 AS one, 'two' AS two, NULL AS nothing",
		"SELECT count(*), sum(l_quantity), min(l_shipdate), max(l_comment) FROM lineitem",
		"SELECT n_name, CASE WHEN n_nationkey > 3 THEN 'big' END AS size FROM nation",
		"SELECT * FROM nation LEFT JOIN region ON n_regionkey = r_regionkey",
		"SELECT n_name FROM nation UNION ALL SELECT r_name FROM region",
		"SELECT * FROM orders WHERE o_orderkey < 0",
	} {
		info, err := client.Execute(ctx, sql)
		must(t, err)
		// `fetch` compares the stream with the FlightInfo.
		announced, _, err := fetch(ctx, client, info)
		must(t, err)
		result, err := client.GetExecuteSchema(ctx, sql)
		must(t, err)
		asked, err := flight.DeserializeSchema(result.Schema, client.Alloc)
		must(t, err)
		prepared, err := client.Prepare(ctx, sql)
		must(t, err)
		result, err = prepared.GetSchema(ctx)
		must(t, err)
		ofHandle, err := flight.DeserializeSchema(result.Schema, client.Alloc)
		must(t, err)
		for _, other := range []*arrow.Schema{asked, prepared.DatasetSchema(), ofHandle} {
			if !other.Equal(announced) {
				t.Fatalf("%s: %s is not %s", sql, other, announced)
			}
		}
		must(t, prepared.Close(ctx))
	}
}

func TestAnEmptyResultHasTheSchemaOfTheQuery(t *testing.T) {
	client, ctx := start(t)
	info, err := client.Execute(ctx, "SELECT n_name, n_nationkey, 1.5 AS x FROM nation WHERE n_nationkey < 0")
	must(t, err)
	schema, batches, err := fetch(ctx, client, info)
	must(t, err)
	expect(t, count(batches), 0)
	expect(t, len(schema.Fields()), 3)
	expect(t, schema.Field(0).Type, arrow.BinaryTypes.String)
}

func TestACellBelowTheMessageLimitOfTheClientArrives(t *testing.T) {
	client, ctx := start(t)
	info, err := client.Execute(ctx, "SELECT repeat('x', 3145728) AS big")
	must(t, err)
	_, batches, err := fetch(ctx, client, info)
	must(t, err)
	expect(t, len(texts(t, batches, "big")[0]), 3*1024*1024)
}

func TestACellBeyondTheMessageLimitFailsAndTheConnectionLives(t *testing.T) {
	// The ADBC driver raises grpc-go's limit of 4 MiB to 16 MiB.
	const limit = 16 * 1024 * 1024
	client, err := dial(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit)))
	must(t, err)
	defer client.Close()
	found, err := ask(limited(t), client, "SELECT repeat('x', 10485760) AS big")
	must(t, err)
	expect(t, len(found[0][0]), 10*1024*1024)
	within(t, deadline, func() {
		_, err = ask(limited(t), client, "SELECT repeat('x', 20971520) AS big")
	})
	text := refused(t, err, codes.ResourceExhausted)
	if !strings.Contains(text, "too large") {
		t.Fatalf("the text does not say what is too large: %s", text)
	}
	stillAnswers(t, client)
}

func TestATicketIsReadByAnotherConnectionAndAgain(t *testing.T) {
	client, ctx := start(t)
	info, err := client.Execute(ctx, "SELECT r_name FROM region")
	must(t, err)
	for range 2 {
		other, otherCtx := start(t)
		_, batches, err := fetch(otherCtx, other, info)
		must(t, err)
		expect(t, count(batches), 5)
	}
}

func TestAChangedTicketIsRefused(t *testing.T) {
	client, ctx := start(t)
	info, err := client.Execute(ctx, "SELECT r_name FROM region")
	must(t, err)
	_, _, err = fetch(ctx, client, info)
	must(t, err)
	good := info.Endpoint[0].Ticket.Ticket
	for _, at := range []int{len(good) / 2, len(good) - 1} {
		changed := bytes.Clone(good)
		changed[at] ^= 0x55
		info.Endpoint[0].Ticket = &flight.Ticket{Ticket: changed}
		_, _, err = fetch(ctx, client, info)
		refused(t, err, codes.InvalidArgument, codes.NotFound)
	}
}

func TestPollingAnswersOrIsNotSupported(t *testing.T) {
	client, ctx := start(t)
	poll, err := client.ExecutePoll(ctx, "SELECT r_name FROM region", nil)
	for err == nil && poll.FlightDescriptor != nil {
		poll, err = client.ExecutePoll(ctx, "", poll.FlightDescriptor)
	}
	if err != nil {
		refused(t, err, codes.Unimplemented)
		stillAnswers(t, client)
		return
	}
	_, batches, err := fetch(ctx, client, poll.Info)
	must(t, err)
	expect(t, count(batches), 5)
}

// --- prepared statements ---------------------------------------------------------------------------------------------

func TestAPreparedStatementRunsMoreThanOnceAndIsClosed(t *testing.T) {
	client, ctx := start(t)
	prepared, err := client.Prepare(ctx, "SELECT count(*) AS n FROM supplier")
	must(t, err)
	expect(t, prepared.DatasetSchema().Field(0).Name, "n")
	if prepared.ParameterSchema() == nil {
		t.Fatal("no parameters are an empty schema, not an absent one")
	}
	expect(t, len(prepared.ParameterSchema().Fields()), 0)
	if update, told := prepared.IsUpdate(); told && update {
		t.Fatal("a SELECT is called an update")
	}
	for range 3 {
		info, err := prepared.Execute(ctx)
		must(t, err)
		_, batches, err := fetch(ctx, client, info)
		must(t, err)
		expect(t, rows(batches), [][]string{{"100"}})
	}
	// Closing is idempotent for a handle that another object holds as well.
	again := flightsql.NewPreparedStatement(client, prepared.Handle())
	must(t, prepared.Close(ctx))
	must(t, again.Close(ctx))
}

func TestAParameterIsBoundOrRefusedButNeverDropped(t *testing.T) {
	client, ctx := start(t)
	err := func() error {
		prepared, err := client.Prepare(ctx, "SELECT n_name FROM nation WHERE n_nationkey = $1")
		if err != nil {
			return err
		}
		defer prepared.Close(ctx)
		expect(t, len(prepared.ParameterSchema().Fields()), 1)
		builder := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(
			[]arrow.Field{{Name: "$1", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
		builder.Field(0).(*array.Int64Builder).Append(7)
		prepared.SetParameters(builder.NewRecordBatch())
		info, err := prepared.Execute(ctx)
		if err != nil {
			return err
		}
		_, batches, err := fetch(ctx, client, info)
		must(t, err)
		expect(t, rows(batches), [][]string{{"GERMANY"}})
		return nil
	}()
	if err != nil {
		refused(t, err, codes.InvalidArgument, codes.Unimplemented)
	}
	stillAnswers(t, client)
}

// --- what this gate does not do --------------------------------------------------------------------------------------

func TestAnUpdateOfASharedTableIsRefusedWithoutAHang(t *testing.T) {
	client, ctx := start(t)
	for _, sql := range []string{"INSERT INTO region VALUES (99, 'X', 'x')", "DROP TABLE region"} {
		within(t, 20*time.Second, func() {
			_, err := client.ExecuteUpdate(ctx, sql)
			refused(t, err, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented)
		})
	}
	found, err := ask(ctx, client, "SELECT count(*) FROM region")
	must(t, err)
	expect(t, found, [][]string{{"5"}})
}

func TestTransactionsAreUnimplementedAndAPlanOfNothingIsInvalid(t *testing.T) {
	client, ctx := start(t)
	_, err := client.BeginTransaction(ctx)
	refused(t, err, codes.Unimplemented)
	_, err = client.ExecuteSubstrait(ctx, flightsql.SubstraitPlan{Plan: []byte{10, 2, 8, 1}, Version: "0.50.0"})
	refused(t, err, codes.InvalidArgument)
	_, err = client.PrepareSubstrait(ctx, flightsql.SubstraitPlan{Plan: []byte{10, 2, 8, 1}, Version: "0.50.0"})
	refused(t, err, codes.InvalidArgument)
	stillAnswers(t, client)
}

func TestAnUnknownActionIsUnimplemented(t *testing.T) {
	client, ctx := start(t)
	stream, err := client.Client.DoAction(ctx, &flight.Action{Type: "NoSuchAction"})
	must(t, err)
	_, err = stream.Recv()
	refused(t, err, codes.Unimplemented)
	stillAnswers(t, client)
}

func TestListedActionsHaveNamesAndDescriptions(t *testing.T) {
	client, ctx := start(t)
	stream, err := client.Client.ListActions(ctx, &flight.Empty{})
	must(t, err)
	var names []string
	for {
		action, err := stream.Recv()
		if err != nil {
			break
		}
		names = append(names, action.Type)
		if action.Description == "" {
			t.Fatalf("%s has no description", action.Type)
		}
	}
	for _, wanted := range []string{"CreatePreparedStatement", "ClosePreparedStatement"} {
		if !slices.Contains(names, wanted) {
			t.Fatalf("%s is not among %v", wanted, names)
		}
	}
}

// --- errors ----------------------------------------------------------------------------------------------------------

func TestBadSQLIsAnInvalidArgumentInTheWordsOfThePlanner(t *testing.T) {
	client, ctx := start(t)
	for sql, named := range map[string]string{
		"SELEC 1": "SELEC", "SELECT no_such_column FROM nation": "no_such_column",
		"SELECT * FROM no_such_table": "no_such_table", "SELECT no_such_function(1)": "no_such_function", ";": "",
	} {
		_, err := ask(ctx, client, sql)
		if text := refused(t, err, codes.InvalidArgument, codes.NotFound); !strings.Contains(text, named) {
			t.Fatalf("%s: %s", sql, text)
		}
		_, err = client.Prepare(ctx, sql)
		refused(t, err, codes.InvalidArgument, codes.NotFound)
	}
	stillAnswers(t, client)
}

func TestAQueryThatFailsWhileItRunsIsNotAnUnknownError(t *testing.T) {
	client, ctx := start(t)
	_, err := ask(ctx, client, "SELECT 1 / (r_regionkey - r_regionkey) AS v FROM region")
	text := refused(t, err, codes.InvalidArgument, codes.Internal, codes.FailedPrecondition, codes.OutOfRange)
	if !strings.Contains(strings.ToLower(text), "zero") {
		t.Fatal(text)
	}
	stillAnswers(t, client)
}

// --- sessions --------------------------------------------------------------------------------------------------------

func TestTheSessionTellsItsCatalogAndSchema(t *testing.T) {
	client, ctx := start(t)
	found, err := client.GetSessionOptions(ctx, &flight.GetSessionOptionsRequest{})
	must(t, err)
	expect(t, found.SessionOptions["catalog"].GetStringValue(), "tpch")
	expect(t, found.SessionOptions["schema"].GetStringValue(), "public")
}

func TestASessionOptionIsSetAndABadOneIsAnErrorOfItsOwn(t *testing.T) {
	client, ctx := start(t)
	set := func(options map[string]any) map[string]*flight.SetSessionOptionsResultError {
		values, err := flight.NewSessionOptionValues(options)
		must(t, err)
		result, err := client.SetSessionOptions(ctx, &flight.SetSessionOptionsRequest{SessionOptions: values})
		must(t, err)
		return result.Errors
	}
	expect(t, len(set(map[string]any{"catalog": "tpch", "schema": "public"})), 0)
	errors := set(map[string]any{"catalog": "no_such_catalog"})
	expect(t, errors["catalog"].GetValue(), flight.SetSessionOptionsResultErrorInvalidValue)
	errors = set(map[string]any{"no_such_option": "x"})
	expect(t, errors["no_such_option"].GetValue(), flight.SetSessionOptionsResultErrorInvalidName)
	stillAnswers(t, client)
}

func TestClosingTheSessionIsAnsweredAndTheTokenStaysGood(t *testing.T) {
	client, ctx := start(t)
	for range 2 {
		result, err := client.CloseSession(ctx, &flight.CloseSessionRequest{})
		must(t, err)
		// All calls with one API key share a session, and nobody may close it for the others.
		expect(t, result.GetStatus(), flight.CloseSessionResultNotCloseable)
	}
	stillAnswers(t, client)
}

// --- time and crowds -------------------------------------------------------------------------------------------------

func TestEndlessQueryIsCancelledWithItsContext(t *testing.T) {
	client, ctx := start(t)
	stillAnswers(t, client)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := ask(ctx, client, endless)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v", err)
	case <-time.After(2 * time.Second):
		// By now it is on the cluster.
	}
	cancel()
	within(t, 5*time.Second, func() {
		refused(t, <-done, codes.Canceled)
	})
	within(t, deadline, func() { stillAnswers(t, client) })
}

func TestEndlessQueryIsCutOffByItsDeadline(t *testing.T) {
	client, ctx := start(t)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	within(t, 10*time.Second, func() {
		_, err := ask(short, client, endless)
		refused(t, err, codes.DeadlineExceeded)
	})
	within(t, deadline, func() { stillAnswers(t, client) })
}

func TestSixteenGoroutinesShareOneConnection(t *testing.T) {
	client, ctx := start(t)
	crowd(t, func(number int) error { return nations(ctx, client, number) })
}

func TestSixteenConnectionsAtOnce(t *testing.T) {
	ctx := limited(t)
	crowd(t, func(number int) error {
		for range 3 {
			client, err := dial()
			if err != nil {
				return err
			}
			if err := nations(ctx, client, number); err != nil {
				return err
			}
			if err := client.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// nations asks for as many rows as nobody else does.
func nations(ctx context.Context, client *flightsql.Client, number int) error {
	found, err := ask(ctx, client, fmt.Sprintf("SELECT count(*), %d FROM nation WHERE n_nationkey >= %d", number, number))
	if err != nil {
		return err
	}
	if got, want := fmt.Sprint(found), fmt.Sprintf("[[%d %d]]", 25-number, number); got != want {
		return fmt.Errorf("got %s, want %s", got, want)
	}
	return nil
}

// crowd runs something sixteen times at once.
func crowd(t *testing.T, what func(number int) error) {
	t.Helper()
	var group sync.WaitGroup
	errors := make(chan error, 16)
	for number := range 16 {
		group.Go(func() { errors <- what(number) })
	}
	group.Wait()
	close(errors)
	for err := range errors {
		must(t, err)
	}
}
