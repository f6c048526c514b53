// Every metadata call of arrow-go's Flight SQL client: its schema by all three ways, its rows, its filters; and Grafana.

package clients

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// told asks for metadata in both ways, compares the schemas with the specification's and returns the rows.
func told(
	t *testing.T, client *flightsql.Client, ctx context.Context, want *arrow.Schema,
	info func(context.Context, ...grpc.CallOption) (*flight.FlightInfo, error),
	schema func(context.Context, ...grpc.CallOption) (*flight.SchemaResult, error),
) []arrow.RecordBatch {
	t.Helper()
	result, err := schema(ctx)
	must(t, err)
	asked, err := flight.DeserializeSchema(result.Schema, client.Alloc)
	must(t, err)
	if !alike(asked, want) {
		t.Fatalf("GetSchema tells %s, the specification %s", asked, want)
	}
	found, err := info(ctx)
	must(t, err)
	expect(t, len(found.Endpoint), 1)
	// `fetch` compares the stream with the FlightInfo.
	streamed, batches, err := fetch(ctx, client, found)
	must(t, err)
	if !streamed.Equal(asked) {
		t.Fatalf("the stream has %s, asked for was %s", streamed, asked)
	}
	return batches
}

// alike is equality, but for the members of a union: the specification does not say which of them may be null, and the
// Arrow implementations differ.
func alike(got, want *arrow.Schema) bool {
	if len(got.Fields()) != len(want.Fields()) {
		return false
	}
	for at, field := range got.Fields() {
		union, isUnion := field.Type.(*arrow.DenseUnionType)
		wanted, isWanted := want.Field(at).Type.(*arrow.DenseUnionType)
		if !isUnion || !isWanted {
			if !field.Equal(want.Field(at)) {
				return false
			}
			continue
		}
		same := func(a, b arrow.Field) bool { return a.Name == b.Name && a.Type.ID() == b.Type.ID() }
		if field.Name != want.Field(at).Name || field.Nullable != want.Field(at).Nullable ||
			!slices.Equal(union.TypeCodes(), wanted.TypeCodes()) || !slices.EqualFunc(union.Fields(), wanted.Fields(), same) {
			return false
		}
	}
	return true
}

func TestCatalogsAreTold(t *testing.T) {
	client, ctx := start(t)
	found := texts(t, told(t, client, ctx, schema_ref.Catalogs, client.GetCatalogs, client.GetCatalogsSchema), "catalog_name")
	if !slices.Contains(found, "tpch") {
		t.Fatal(found)
	}
}

func TestSchemasAreToldAndFiltered(t *testing.T) {
	client, ctx := start(t)
	schemas := func(options *flightsql.GetDBSchemasOpts) []string {
		return texts(t, told(t, client, ctx, schema_ref.DBSchemas,
			func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
				return client.GetDBSchemas(ctx, options, more...)
			}, client.GetDBSchemasSchema), "db_schema_name")
	}
	text := func(value string) *string { return &value }
	for _, with := range []*flightsql.GetDBSchemasOpts{
		{}, {Catalog: text("tpch")}, {DbSchemaFilterPattern: text("pub%")}, {DbSchemaFilterPattern: text("p_blic")},
	} {
		if found := schemas(with); !slices.Contains(found, "public") {
			t.Fatalf("%v: %v", with.DbSchemaFilterPattern, found)
		}
	}
	for _, without := range []*flightsql.GetDBSchemasOpts{
		{Catalog: text("nowhere")}, {Catalog: text("")}, {DbSchemaFilterPattern: text("nowhere")},
	} {
		if found := schemas(without); slices.Contains(found, "public") {
			t.Fatal(found)
		}
	}
}

func TestTablesAreToldAndFiltered(t *testing.T) {
	client, ctx := start(t)
	text := func(value string) *string { return &value }
	list := func(options *flightsql.GetTablesOpts) []string {
		return texts(t, told(t, client, ctx, schema_ref.Tables,
			func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
				return client.GetTables(ctx, options, more...)
			},
			func(ctx context.Context, more ...grpc.CallOption) (*flight.SchemaResult, error) {
				return client.GetTablesSchema(ctx, options, more...)
			}), "table_name")
	}
	all := list(&flightsql.GetTablesOpts{Catalog: text("tpch"), DbSchemaFilterPattern: text("public")})
	for _, table := range tables {
		if !slices.Contains(all, table) {
			t.Fatalf("%s is not among %v", table, all)
		}
	}
	expect(t, list(&flightsql.GetTablesOpts{TableNameFilterPattern: text("part%")}), []string{"part", "partsupp"})
	expect(t, list(&flightsql.GetTablesOpts{TableNameFilterPattern: text("n_tion")}), []string{"nation"})
	expect(t, list(&flightsql.GetTablesOpts{TableNameFilterPattern: text("nat")}), []string{})
	expect(t, list(&flightsql.GetTablesOpts{Catalog: text("nowhere")}), []string{})
	expect(t, list(&flightsql.GetTablesOpts{TableTypes: []string{"NO SUCH TYPE"}}), []string{})
}

func TestTheSchemaOfATableIsTheSchemaOfItsRows(t *testing.T) {
	client, ctx := start(t)
	for _, table := range tables {
		options := &flightsql.GetTablesOpts{TableNameFilterPattern: &table, IncludeSchema: true}
		batches := told(t, client, ctx, schema_ref.TablesWithIncludedSchema,
			func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
				return client.GetTables(ctx, options, more...)
			},
			func(ctx context.Context, more ...grpc.CallOption) (*flight.SchemaResult, error) {
				return client.GetTablesSchema(ctx, options, more...)
			})
		expect(t, count(batches), 1)
		at := batches[0].Schema().FieldIndices("table_schema")[0]
		described, err := flight.DeserializeSchema(batches[0].Column(at).(*array.Binary).Value(0), client.Alloc)
		must(t, err)
		info, err := client.Execute(ctx, "SELECT * FROM "+table+" LIMIT 1")
		must(t, err)
		selected, _, err := fetch(ctx, client, info)
		must(t, err)
		expect(t, len(described.Fields()), len(selected.Fields()))
		for number, field := range described.Fields() {
			expect(t, field.Name, selected.Field(number).Name)
			expect(t, field.Type, selected.Field(number).Type)
			named := flightsql.ColumnMetadata{Data: &field.Metadata}
			if name, told := named.TypeName(); !told || name == "" {
				t.Fatalf("%s.%s has no type name", table, field.Name)
			}
			if name, told := named.TableName(); !told || name != table {
				t.Fatalf("%s.%s belongs to %q", table, field.Name, name)
			}
		}
	}
}

func TestTableTypesAreTold(t *testing.T) {
	client, ctx := start(t)
	found := texts(t, told(t, client, ctx, schema_ref.TableTypes, client.GetTableTypes, client.GetTableTypesSchema), "table_type")
	for _, wanted := range []string{"TABLE", "VIEW"} {
		if !slices.ContainsFunc(found, func(kind string) bool { return bytes.Contains([]byte(kind), []byte(wanted)) }) {
			t.Fatal(found)
		}
	}
}

func TestKeysAreEmptyAndNotAnError(t *testing.T) {
	client, ctx := start(t)
	nation, region := flightsql.TableRef{Table: "nation"}, flightsql.TableRef{Table: "region"}
	of := func(call func(context.Context, flightsql.TableRef, ...grpc.CallOption) (*flight.FlightInfo, error),
	) func(context.Context, ...grpc.CallOption) (*flight.FlightInfo, error) {
		return func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
			return call(ctx, nation, more...)
		}
	}
	cross := func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
		return client.GetCrossReference(ctx, region, nation, more...)
	}
	foreign := schema_ref.ImportedExportedKeysAndCrossReference
	expect(t, count(told(t, client, ctx, schema_ref.PrimaryKeys, of(client.GetPrimaryKeys), client.GetPrimaryKeysSchema)), 0)
	expect(t, count(told(t, client, ctx, foreign, of(client.GetImportedKeys), client.GetImportedKeysSchema)), 0)
	expect(t, count(told(t, client, ctx, foreign, of(client.GetExportedKeys), client.GetExportedKeysSchema)), 0)
	expect(t, count(told(t, client, ctx, foreign, cross, client.GetCrossReferenceSchema)), 0)
}

func TestTypeInfoIsToldWholeAndForOneType(t *testing.T) {
	client, ctx := start(t)
	types := func(one *int32) int64 {
		return count(told(t, client, ctx, schema_ref.XdbcTypeInfo,
			func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
				return client.GetXdbcTypeInfo(ctx, one, more...)
			}, client.GetXdbcTypeInfoSchema))
	}
	varchar, none := int32(12), int32(31_000)
	all := types(nil)
	if one := types(&varchar); one < 1 || one >= all {
		t.Fatalf("%d of %d types are VARCHAR", one, all)
	}
	expect(t, types(&none), 0)
}

func TestSQLInfoWithoutCodesNamesTheServer(t *testing.T) {
	client, ctx := start(t)
	batches := told(t, client, ctx, schema_ref.SqlInfo,
		func(ctx context.Context, more ...grpc.CallOption) (*flight.FlightInfo, error) {
			return client.GetSqlInfo(ctx, nil, more...)
		}, client.GetSqlInfoSchema)
	found := info(t, batches)
	if name := found[uint32(flightsql.SqlInfoFlightSqlServerName)]; !bytes.Contains(bytes.ToLower([]byte(name)), []byte("portcullis")) {
		t.Fatalf("the server calls itself %q", name)
	}
	for _, code := range []flightsql.SqlInfo{
		flightsql.SqlInfoFlightSqlServerVersion, flightsql.SqlInfoFlightSqlServerArrowVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly, flightsql.SqlInfoFlightSqlServerTransaction,
		flightsql.SqlInfoIdentifierQuoteChar, flightsql.SqlInfoKeywords,
	} {
		if _, told := found[uint32(code)]; !told {
			t.Fatalf("code %d is missing", code)
		}
	}
}

func TestSQLInfoWithCodesTellsJustThose(t *testing.T) {
	client, ctx := start(t)
	asked, err := client.GetSqlInfo(ctx, []flightsql.SqlInfo{flightsql.SqlInfoIdentifierQuoteChar, flightsql.SqlInfoFlightSqlServerTransaction})
	must(t, err)
	_, batches, err := fetch(ctx, client, asked)
	must(t, err)
	found := info(t, batches)
	expect(t, len(found), 2)
	expect(t, found[uint32(flightsql.SqlInfoIdentifierQuoteChar)], `"`)
	expect(t, found[uint32(flightsql.SqlInfoFlightSqlServerTransaction)], "0")
}

// info gives each code its value as text.
func info(t *testing.T, batches []arrow.RecordBatch) map[uint32]string {
	t.Helper()
	found := map[uint32]string{}
	for _, batch := range batches {
		names, values := batch.Column(0).(*array.Uint32), batch.Column(1).(*array.DenseUnion)
		for row := range names.Len() {
			if _, twice := found[names.Value(row)]; twice {
				t.Fatalf("code %d is told twice", names.Value(row))
			}
			member := values.Field(values.ChildID(row))
			found[names.Value(row)] = member.ValueStr(int(values.ValueOffset(row)))
		}
	}
	return found
}

// --- Grafana ---------------------------------------------------------------------------------------------------------

// The plugin is a Go program around this client: a token, headers of its own of which some are empty, and an error
// unless an answer has exactly one endpoint.
func TestGrafanaChecksItsHealthListsTablesAndDraws(t *testing.T) {
	client, ctx := start(t)
	ctx = metadata.AppendToOutgoingContext(ctx, "database", "", "x-grafana-user", "admin")
	query := func(call func() (*flight.FlightInfo, error)) []arrow.RecordBatch {
		answer, err := call()
		must(t, err)
		expect(t, len(answer.Endpoint), 1)
		reader, err := client.DoGet(ctx, answer.Endpoint[0].Ticket)
		must(t, err)
		defer reader.Release()
		var batches []arrow.RecordBatch
		for reader.Next() {
			batch := reader.RecordBatch()
			batch.Retain()
			batches = append(batches, batch)
		}
		must(t, reader.Err())
		return batches
	}
	health := query(func() (*flight.FlightInfo, error) { return client.Execute(ctx, "select 1") })
	expect(t, rows(health), [][]string{{"1"}})

	codes := query(func() (*flight.FlightInfo, error) { return client.GetSqlInfo(ctx, nil) })
	if len(info(t, codes)) < 5 {
		t.Fatal(info(t, codes))
	}

	// The plugin asks for these two types; `TABLE` is how a Flight SQL server calls what is not a view.
	listed := texts(t, query(func() (*flight.FlightInfo, error) {
		return client.GetTables(ctx, &flightsql.GetTablesOpts{TableTypes: []string{"BASE TABLE", "table"}})
	}), "table_name")
	for _, name := range listed {
		if !slices.Contains(tables, name) {
			t.Fatalf("%s was listed", name)
		}
	}

	pattern := "orders"
	columns := query(func() (*flight.FlightInfo, error) {
		return client.GetTables(ctx, &flightsql.GetTablesOpts{TableNameFilterPattern: &pattern, IncludeSchema: true})
	})
	expect(t, count(columns), 1)

	drawn := query(func() (*flight.FlightInfo, error) {
		return client.Execute(ctx, "SELECT arrow_cast(o_orderdate, 'Timestamp(Nanosecond, None)') AS time, "+
			"sum(o_totalprice) AS total FROM orders WHERE o_orderdate < DATE '1992-02-01' GROUP BY 1 ORDER BY 1")
	})
	expect(t, drawn[0].Schema().Field(0).Type, "timestamp[ns]")
	days := rows(drawn)
	if len(days) < 20 || !slices.IsSortedFunc(days, func(a, b []string) int { return cmp.Compare(a[0], b[0]) }) {
		t.Fatal(days)
	}
}
