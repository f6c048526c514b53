"""Public reports about values that arrived wrong (TY) and errors that helped nobody (ER), each as a test.

The tables are small Parquet and CSV files behind a gate of this suite's own, which runs in another time zone on
purpose. Must not repeat what the round trip of every type in `test_adbc.py` already shows.
"""

import contextlib
import datetime
import decimal

import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as parquet
import pytest

import flightsql_proto as proto
from conftest import Received, everything, within
from test_reports_connect import located
from wire import Wire, descriptor, message_kinds, own_gate, schema_of, table_of, wire_fixture

wire = wire_fixture()

UTC = datetime.timezone.utc
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0)
STAMPS = ["s", "ms", "us", "ns"]


def every_type():
    """One row of each type that Parquet can hold, and one of nulls."""
    day = datetime.date(2024, 2, 29)
    columns = {
        "bool": (pa.bool_(), True),
        **{f"i{size}": (getattr(pa, f"int{size}")(), -(2 ** (size - 1))) for size in (8, 16, 32, 64)},
        **{f"u{size}": (getattr(pa, f"uint{size}")(), 2**size - 1) for size in (8, 16, 32, 64)},
        "f32": (pa.float32(), 1.5),
        "f64": (pa.float64(), -2.25),
        "dec": (pa.decimal128(18, 3), decimal.Decimal("-123456.789")),
        "day": (pa.date32(), day),
        "time_ms": (pa.time32("ms"), datetime.time(12, 34, 56, 789000)),
        "time_us": (pa.time64("us"), datetime.time(12, 34, 56, 789012)),
        **{f"ts_{unit}": (pa.timestamp(unit), NOON) for unit in ("ms", "us", "ns")},
        **{f"tz_{unit}": (pa.timestamp(unit, "UTC"), NOON.replace(tzinfo=UTC)) for unit in ("ms", "us", "ns")},
        "bin": (pa.binary(), b"\x00\xff"),
        "fixed": (pa.binary(3), b"abc"),
        "text": (pa.string(), "grüße"),
        "list": (pa.list_(pa.int64()), [1, 2, 3]),
        "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}),
        "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    }
    return pa.table({name: pa.array([value, None], kind) for name, (kind, value) in columns.items()})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("types").resolve()
    amounts = pa.table(
        {"amount": [5, 7, 11], "city": ["Bern", "Basel", "Zug"]},
        pa.schema([pa.field("amount", pa.int64(), nullable=False), pa.field("city", pa.string())]),
    )
    parquet.write_table(amounts, folder / "amounts.parquet")
    noted = pa.schema(
        [pa.field("kind", pa.dictionary(pa.int32(), pa.string()), metadata={"note": "of a field"})],
        metadata={"note": "of the schema"},
    )
    parquet.write_table(
        pa.table({"kind": pa.array(["a", "b", "a"]).dictionary_encode()}, noted), folder / "noted.parquet"
    )
    naive, zoned = pa.array([NOON], pa.timestamp("us")), pa.array([NOON], pa.timestamp("us", "UTC"))
    parquet.write_table(pa.table({"naive": naive, "zoned": zoned}), folder / "stamps.parquet")
    (folder / "stamps.csv").write_text("stamp\n2024-07-01T12:00:00\n")
    parquet.write_table(every_type(), folder / "every.parquet")
    for side in "ab":
        (folder / side).mkdir()
        for part in range(16):
            # Two cities in all, and many partitions that have nothing to give.
            table = pa.table({"city": pa.array(["Bern" if side == "a" else "Zug"] * (part % 3 == 0), pa.string())})
            parquet.write_table(table, folder / side / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def own(gate, files):
    tables = {
        "amounts": "PARQUET LOCATION '{}/amounts.parquet'",
        "noted": "PARQUET LOCATION '{}/noted.parquet'",
        "stamps": "PARQUET LOCATION '{}/stamps.parquet'",
        "csv_stamps": "CSV LOCATION '{}/stamps.csv' OPTIONS ('format.has_header' 'true')",
        "every": "PARQUET LOCATION '{}/every.parquet'",
        "a": "PARQUET LOCATION '{}/a/'",
        "b": "PARQUET LOCATION '{}/b/'",
    }
    with own_gate(gate, located(files), environment={"TZ": "America/New_York"}) as own:
        with Wire(own, Received()) as wire:
            for table, rest in tables.items():
                wire.sql(f"CREATE EXTERNAL TABLE {table} STORED AS {rest.format(files)}")
        yield own


@pytest.fixture
def ask(own):
    """Runs a statement by ADBC and by pyarrow, finds both equal, and gives the rows as a table."""
    with own.adbc() as connection, own.flight() as client:

        def run(sql):
            with connection.cursor() as cursor:
                cursor.execute(sql)
                table = cursor.fetch_arrow_table()
            info = client.get_flight_info(
                flight.FlightDescriptor.for_command(proto.statement_query(sql)), own.headers()
            )
            streamed = everything(client.do_get(info.endpoints[0].ticket, own.headers()))
            assert info.schema.equals(streamed.schema, check_metadata=True)
            assert in_order(table).equals(in_order(streamed))
            return table

        yield run


def in_order(table):
    """The rows in an order of their own, where there are columns by which they can be put into one."""
    keys = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_string(f.type)]
    return table.sort_by([(key, "ascending") for key in keys]) if keys else table


# --- values ----------------------------------------------------------------------------------------------------------


def test_ty_01_the_smallest_and_largest_of_a_column_without_nulls_are_accepted(ask):
    """TY-01 (datafusion-flight-sql-server#51): statistics made a literal that is not null out of `min`."""
    table = ask("SELECT count(*) AS n, min(amount) AS lo, max(amount) AS hi FROM amounts")
    assert table.to_pylist() == [{"n": 3, "lo": 5, "hi": 11}]


def test_ty_03_metadata_and_dictionaries_of_a_file_are_one_in_all_four_places(own):
    """TY-03 (influxdb_iox#7279)."""
    with Wire(own, Received()) as wire:
        prepared = wire.prepare("SELECT * FROM noted")
        info = wire.info(proto.statement_query("SELECT * FROM noted"))
        rows = wire.get(info.tickets[0])
        places = [
            wire.schema(proto.statement_query("SELECT * FROM noted")),
            schema_of(prepared.dataset_schema),
            rows.schema,
        ]
        for schema in places:
            assert schema.equals(info.schema, check_metadata=True)
        assert rows.column("kind").to_pylist() == ["a", "b", "a"]
        assert rows.schema.field("kind").type == pa.string()


def test_ty_05_text_of_files_and_casts_is_plain_text_on_the_wire(ask):
    """TY-05 (arrow-java#807): JDBC up to 18.3 knows no views."""
    table = ask("SELECT city, arrow_cast(city, 'Utf8View') AS v, amount::TEXT AS t FROM amounts ORDER BY amount")
    assert table.schema.types == [pa.string()] * 3
    assert table.column("t").to_pylist() == ["5", "7", "11"]


def test_ty_07_an_interval_is_an_interval_and_a_difference_of_times_can_be_read(ask):
    """TY-07 (arrow#40893)."""
    (row,) = ask("SELECT interval '1 month 2 days 3 seconds' AS i FROM amounts LIMIT 1").to_pylist()
    assert row["i"] == pa.MonthDayNano([1, 2, 3_000_000_000])
    (row,) = ask("SELECT timestamp '2024-03-01' - timestamp '2024-02-01' AS d FROM amounts LIMIT 1").to_pylist()
    days = row["d"].days if isinstance(row["d"], datetime.timedelta) else row["d"][1]
    assert days == 29


def test_ty_09_a_wall_clock_stays_one_and_an_instant_stays_one_in_any_zone_of_the_server(ask):
    """TY-09 (doris#65741). The gate of this suite runs with TZ=America/New_York."""
    table = ask("SELECT naive, zoned FROM stamps")
    assert table.schema.field("naive").type.tz is None
    assert table.schema.field("zoned").type.tz in ("UTC", "+00:00", "Z")
    (row,) = table.to_pylist()
    assert row["naive"] == NOON
    assert row["zoned"] == NOON.replace(tzinfo=UTC)
    table = ask("SELECT stamp FROM csv_stamps")
    assert table.schema.field("stamp").type.tz is None
    assert table.to_pylist() == [{"stamp": NOON}]


@pytest.mark.parametrize("unit", STAMPS)
def test_ty_09_a_naive_literal_of_each_unit_is_not_shifted(unit, ask):
    name = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[unit]
    table = ask(f"SELECT arrow_cast('2024-07-01T12:00:00', 'Timestamp({name}, None)') AS t FROM amounts LIMIT 1")
    assert table.schema.field("t").type == pa.timestamp(unit)
    assert table.to_pylist() == [{"t": NOON}]


def test_ty_11_very_old_dates_are_days_of_the_proleptic_calendar(ask):
    """TY-11 (doris#67366): dates of year zero were a day off."""
    table = ask(
        """SELECT date '0001-01-01' AS first, date '1582-10-04' AS before, date '1582-10-15' AS after,
        date '1969-12-31' AS last, arrow_cast(arrow_cast(-719528, 'Int32'), 'Date32') AS zero FROM amounts LIMIT 1"""
    )
    assert set(table.schema.types) == {pa.date32()}
    days = [column[0].cast(pa.int32()).as_py() for column in (chunks.combine_chunks() for chunks in table.columns)]
    epoch = datetime.date(1970, 1, 1)
    expected = [
        datetime.date(1, 1, 1),
        datetime.date(1582, 10, 4),
        datetime.date(1582, 10, 15),
        datetime.date(1969, 12, 31),
    ]
    assert days == [(day - epoch).days for day in expected] + [-719_528]


def test_ty_13_rows_behind_empty_batches_are_not_lost(ask, own):
    """TY-13 (arrow#36912): JDBC stopped at the first empty batch of a distributed UNION."""
    for sql in (
        "SELECT city FROM a UNION SELECT city FROM b",
        "SELECT DISTINCT city FROM (SELECT * FROM a UNION ALL SELECT * FROM b)",
    ):
        assert sorted(ask(sql).column("city").to_pylist()) == ["Bern", "Zug"]
    assert len(ask("SELECT city FROM a UNION ALL SELECT city FROM b").column("city")) == 12
    with Wire(own, Received()) as wire:
        (ticket,) = wire.info(proto.statement_query("SELECT city FROM a UNION ALL SELECT city FROM b")).tickets
        messages = wire.call("DoGet", proto.message(ticket)).good().messages
        batches = [table_of([messages[0], message]).num_rows for message in messages[1:]]
        assert sum(batches) == 12
        assert 0 not in batches, "a batch without rows is what old drivers take for the end"


def test_ty_15_every_stream_begins_with_its_schema(wire):
    """TY-15 (arrow-rs#5361, arrow-flightsql-odbc#17): "Received RecordBatch prior to Schema"."""
    for sql in ("SELECT 1 AS x", "SELECT n_name FROM nation", "SELECT count(*) AS n FROM lineitem"):
        info = wire.info(proto.statement_query(sql))
        for ticket in info.tickets:
            messages = wire.call("DoGet", proto.message(ticket)).good().messages
            assert message_kinds(messages)[:2] == ["schema", "record batch"], sql


def test_ty_17_a_large_result_has_all_its_rows_every_time(cursor):
    """TY-17 (StarRocks#65089): an OK status with a part of the rows."""
    cursor.execute("SELECT count(*) FROM lineitem")
    ((lines,),) = cursor.fetchall()
    for _ in range(3):
        cursor.execute(
            "SELECT l_orderkey, column1 FROM lineitem CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6), (7), (8))"
        )
        table = cursor.fetch_arrow_table()
        assert table.num_rows == 8 * lines > 480_000
        counts = table.column("column1").value_counts().to_pylist()
        assert sorted((row["values"], row["counts"]) for row in counts) == [(number, lines) for number in range(1, 9)]


def test_ty_19_a_row_of_every_type_arrives_with_every_column_right(ask):
    """TY-19 (roapi#398)."""
    expected = every_type()
    table = ask("SELECT * FROM every ORDER BY i64 NULLS LAST")
    assert table.schema.names == expected.schema.names
    got, want = table.to_pylist(), expected.to_pylist()
    assert len(got) == 2
    for name in expected.schema.names:
        assert got[0][name] == want[0][name], name
        assert got[1][name] is None, name
        kind = expected.schema.field(name).type
        if not pa.types.is_nested(kind):
            assert same_kind(table.schema.field(name).type, kind), name


def same_kind(got, want):
    """Equal, and UTC however it is written."""
    if pa.types.is_timestamp(want) and want.tz:
        return pa.types.is_timestamp(got) and got.unit == want.unit and got.tz in ("UTC", "+00:00", "Z")
    return got == want


# --- errors ----------------------------------------------------------------------------------------------------------

WRONG = {
    "missing_table": "SELECT * FROM no_such_table",
    "missing_column": "SELECT no_such_column FROM nation",
    "syntax": "SELEC 1",
    "function": "SELECT no_such_function(1)",
    "arguments": "SELECT substr() FROM nation",
    "group": "SELECT n_name, count(*) FROM nation GROUP BY n_regionkey",
    "not_served": "INSERT INTO region VALUES (99, 'X', 'x')",
    "not_allowed": "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
    "two": "SELECT 1; SELECT 2",
    "empty": "",
}


@pytest.mark.parametrize("case", WRONG)
def test_er_03_an_error_has_one_code_and_one_text_by_every_route(case, wire):
    """ER-03 (xtdb#5812): errors lost their text on the way, and a failed write looked like a success."""
    wire.still_answers()
    sql = WRONG[case]
    answers = {
        "GetFlightInfo": wire.call("GetFlightInfo", descriptor(proto.statement_query(sql))),
        "GetSchema": wire.call("GetSchema", descriptor(proto.statement_query(sql))),
        "DoAction": wire.call("DoAction", proto.message("CreatePreparedStatement", proto.create_prepared(sql))),
        "DoPut": wire.call_held_open("DoPut", proto.message(descriptor(proto.statement_update(sql)))),
    }
    told = {route: (answer.code, answer.text) for route, answer in answers.items()}
    assert all(code not in ("OK", "UNKNOWN", "INTERNAL") and text for code, text in told.values()), told
    assert all(answer.messages == [] for answer in answers.values())
    assert len(set(told.values())) == 1, told


def test_er_03_a_query_that_fails_while_it_runs_fails_by_every_route(wire):
    sql = "SELECT 1 / (n_nationkey - n_nationkey) AS x FROM nation"
    prepared = wire.prepare(sql)
    texts = set()
    for command in (proto.statement_query(sql), proto.prepared_query(prepared.handle)):
        answer = wire.call("GetFlightInfo", descriptor(command)).refused("INVALID_ARGUMENT")
        texts.add(answer.text)
    assert len(texts) == 1 and "ivide by zero" in texts.pop()
    wire.close(prepared.handle)
    wire.still_answers()


@pytest.mark.parametrize("kibibytes", [6, 12, 30])
def test_er_05_long_headers_are_judged_and_leave_other_streams_alone(kibibytes, gate, received):
    """ER-05 (gizmosql#164): above 8 KiB a header-size error looked like a fault of the SQL."""
    with Wire(gate, received) as good:
        info = good.info(proto.statement_query("SELECT * FROM orders"))
        stream = good.start("DoGet", [proto.message(info.tickets[0])])
        first = [next(stream)]
        # Unknown properties of a JDBC URL are headers.
        extra = [(f"property-{number}", "x" * 1024) for number in range(kibibytes)]
        answer = good.call("GetFlightInfo", descriptor(proto.get_catalogs()), metadata=good.metadata + extra).good()
        assert answer.header_size() < 8192
        long = [("authorization", "Bearer " + "x" * kibibytes * 1024)]
        good.call("GetFlightInfo", descriptor(proto.get_catalogs()), metadata=long).refused("UNAUTHENTICATED")
        assert good.finish("DoGet", stream, first).good()
        good.still_answers()


EXOTIC = {
    "duration": ("arrow_cast(5, 'Duration(Second)')", datetime.timedelta(seconds=5)),
    "fixed_size_list": ("arrow_cast(make_array(1, 2), 'FixedSizeList(2, Int64)')", [1, 2]),
    "decimal256": ("arrow_cast('1.5', 'Decimal256(60, 1)')", decimal.Decimal("1.5")),
    "large_list": ("arrow_cast(make_array(1, 2), 'LargeList(Int64)')", [1, 2]),
    "float16": ("arrow_cast(1.5, 'Float16')", 1.5),
    "large_utf8": ("arrow_cast('x', 'LargeUtf8')", "x"),
    "time32": ("arrow_cast('12:34:56', 'Time32(Second)')", datetime.time(12, 34, 56)),
    "run_end_encoded": ("arrow_cast('x', 'RunEndEncoded(\"run_ends\": non-null Int32, \"values\": Utf8)')", "x"),
}


@pytest.mark.parametrize("kind", EXOTIC)
@pytest.mark.parametrize("source", ["", " FROM nation LIMIT 1"], ids=["here", "cluster"])
def test_er_07_an_exotic_type_arrives_as_one_that_clients_read(kind, source, wire):
    """ER-07 (doris#67364): reading one was INTERNAL from a check that failed."""
    expression, value = EXOTIC[kind]
    sql = f"SELECT {expression} AS exotic{source}"
    (row,) = wire.sql(sql).to_pylist()
    assert row == {"exotic": value}
    wire.still_answers()


@pytest.fixture
def table_of_one_file(own, files, name):
    """A wire, and a Parquet file of the test's own as an external table called `name`."""
    file = files / f"{name}.parquet"
    parquet.write_table(pa.table({"x": list(range(1000))}), file)
    with Wire(own, Received()) as wire:
        wire.sql(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{file}'")
        assert wire.sql(f"SELECT sum(x) AS s FROM {name}").to_pylist() == [{"s": 499_500}]
        yield wire, file
        wire.sql(f"DROP TABLE {name}")
        wire.still_answers()


def test_er_09_an_error_about_a_file_holds_no_internals(table_of_one_file, name):
    """ER-09 (micromegas#1435): build paths, hosts and whole errors of the cluster stood in messages."""
    wire, file = table_of_one_file
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], b"PAR1" + bytes(500) + b"PAR1", b"no parquet at all"):
        file.write_bytes(broken)
        query = descriptor(proto.statement_query(f"SELECT x + 1 AS y FROM {name}"))
        answer = within(60, lambda: wire.call("GetFlightInfo", query))
        answer.refused("INVALID_ARGUMENT", "INTERNAL", "UNAVAILABLE", "NOT_FOUND")
        # But for the sealed cookie: random letters are some word now and then.
        text = answer.text + repr([(key, value) for key, value in answer.trailers if key != "set-cookie"])
        for internal in (".rs:", "127.0.0.1", "localhost", "panicked", "allista", "job", "stage", "registry/", "0x"):
            assert internal not in text, text
        # Of paths at most the one that the client wrote itself.
        assert str(file.parent) not in text.replace(str(file), ""), text
    file.write_bytes(whole)
    assert wire.sql(f"SELECT sum(x) AS s FROM {name}").to_pylist() == [{"s": 499_500}]


def test_er_09_and_ty_17_a_table_whose_file_is_gone_is_an_error_and_not_empty(table_of_one_file, name):
    """ER-09, and the rule of TY-17 (StarRocks#65089): never OK with fewer rows than there are."""
    wire, file = table_of_one_file
    file.unlink()
    for sql in (f"SELECT x + 2 AS y FROM {name}", f"SELECT sum(x + 1) AS s FROM {name}"):
        answer = within(60, lambda: wire.call("GetFlightInfo", descriptor(proto.statement_query(sql))))
        answer.refused("INVALID_ARGUMENT", "INTERNAL", "UNAVAILABLE", "NOT_FOUND")
        assert str(file.parent) not in answer.text.replace(str(file), "")


ONE_STATEMENT = [
    "select 100;",
    "SELECT 100 -- c",
    "/* c */ SELECT 100",
    "SELECT\n100\n;\n",
    "-- c\nSELECT 100",
    "SELECT 100;;",
]


@pytest.mark.parametrize("sql", ONE_STATEMENT)
def test_er_11_a_statement_may_have_semicolons_and_comments(sql, wire):
    """ER-11 (arrow#41123)."""
    (row,) = wire.sql(sql).to_pylist()
    assert list(row.values()) == [100]


@pytest.mark.parametrize("sql", [";", "", "-- c", "/* c */", "  \n\t", ";;"])
def test_er_11_nothing_is_no_statement_and_an_invalid_argument(sql, wire):
    """ER-11."""
    wire.still_answers()
    wire.call("GetFlightInfo", descriptor(proto.statement_query(sql))).refused("INVALID_ARGUMENT")


def test_er_11_of_two_statements_none_is_run(wire, name):
    """ER-11: a quoted semicolon is no end, a real one lets nothing through."""
    assert wire.sql("SELECT ';' AS x").to_pylist() == [{"x": ";"}]
    two = f"CREATE VIEW {name} AS SELECT 1 AS x; SELECT * FROM {name}"
    wire.call("GetFlightInfo", descriptor(proto.statement_query(two))).refused("INVALID_ARGUMENT")
    wire.call("GetFlightInfo", descriptor(proto.statement_query(f"SELECT * FROM {name}"))).refused("INVALID_ARGUMENT")


# --- tools -----------------------------------------------------------------------------------------------------------


def test_bi_03_a_quoted_name_with_dots_is_one_name(own, files):
    """BI-03 (kamu-cli#309): Tableau qualifies a column with the dotted name of its table."""
    with Wire(own, Received()) as wire, contextlib.ExitStack() as stack:
        wire.sql(f"CREATE EXTERNAL TABLE \"my.trading.holdings\" STORED AS PARQUET LOCATION '{files}/amounts.parquet'")
        stack.callback(lambda: wire.sql('DROP TABLE "my.trading.holdings"'))
        rows = wire.sql(
            'SELECT "my.trading.holdings"."amount" AS "amount" '
            'FROM "public"."my.trading.holdings" "my.trading.holdings" LIMIT 10'
        )
        assert sorted(rows.column("amount").to_pylist()) == [5, 7, 11]
        told = wire.query(proto.get_tables("tpch", "public", "my.trading.%")).to_pylist()
        assert [row["table_name"] for row in told] == ["my.trading.holdings"]


def test_bi_07_the_first_statements_of_tools_are_answered(wire):
    """BI-07 (datafusion-ballista#501, sqlflite#11)."""
    assert wire.sql("SELECT 'keep alive' AS x").to_pylist() == [{"x": "keep alive"}]
    assert wire.sql("SELECT VERSION()").num_rows == 1
    assert wire.sql('SELECT * FROM "nation" LIMIT 200').num_rows == 25
    assert wire.query(proto.get_db_schemas("tpch")).num_rows > 0
    assert wire.query(proto.get_tables(None, "public", "%", include_schema=True)).num_rows >= 8
