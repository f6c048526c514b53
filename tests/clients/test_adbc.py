"""ADBC (`adbc_driver_flightsql`, the Go driver) against a started gate, over TLS with a bearer token.

What a data scientist, pandas, Polars and Power BI send. Every refusal is checked for its class, and each file leaves
the default session of the shared token as it found it.
"""

import concurrent.futures
import contextlib
import re
import subprocess
import sys
import threading

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import adbc_driver_manager as adbc
import pyarrow as pa
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, within
from queries import ENDLESS, REFUSED, SCHEMAS, TABLES, TYPES, plain

Status = adbc.AdbcStatusCode
DatabaseOptions = adbc_driver_flightsql.DatabaseOptions
ConnectionOptions = adbc_driver_flightsql.ConnectionOptions

INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 3, 4, 5, 7, 8
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16
CODES = {
    "Unknown": 2,
    "InvalidArgument": INVALID_ARGUMENT,
    "DeadlineExceeded": DEADLINE_EXCEEDED,
    "NotFound": NOT_FOUND,
    "PermissionDenied": PERMISSION_DENIED,
    "ResourceExhausted": RESOURCE_EXHAUSTED,
    "FailedPrecondition": 9,
    "Unimplemented": UNIMPLEMENTED,
    "Internal": INTERNAL,
    "Unavailable": UNAVAILABLE,
    "Unauthenticated": UNAUTHENTICATED,
}


def code(error):
    """The gRPC code: always in the text, but as `vendor_code` only where a status has no details."""
    if error.vendor_code is not None:
        return error.vendor_code
    names = re.findall(r"\((\w+); \w+", str(error))
    return CODES[names[-1]] if names else None


def rows(cursor, sql):
    cursor.execute(sql)
    return cursor.fetchall()


def still_answers(connection):
    """On the cluster, not only in the gate, and soon."""
    with connection.cursor() as cursor:
        assert within(DEADLINE, lambda: rows(cursor, "SELECT count(*) FROM nation")) == [(25,)]


# --- signing in ------------------------------------------------------------------------------------------------------


def select_one_as(gate, authorization, **how):
    with gate.adbc(authorization=authorization, **how) as connection, connection.cursor() as cursor:
        return rows(cursor, "SELECT 1")


def test_a_bearer_token_over_tls_is_enough_to_select_one(gate):
    assert select_one_as(gate, f"Bearer {gate.token}") == [(1,)]


def test_the_scheme_word_is_not_case_sensitive(gate):
    assert select_one_as(gate, f"bearer {gate.token}") == [(1,)]


def test_every_bad_credential_is_unauthenticated_with_one_text(gate, refusal):
    bad = {
        "none": "",
        "wrong secret": "Bearer " + gate.token[:-4] + "AAAA",
        "wrong id": "Bearer pk1.AAAAAAAAAAAA." + gate.token.rsplit(".", 1)[-1],
        "no such key": "Bearer pk1.nobody.secret",
        "unknown prefix": "Bearer hello",
        "forged session": "Bearer ps1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "no token": "Bearer ",
        "scheme only": "Bearer",
        "two spaces": f"Bearer  {gate.token}",
        "two tokens": f"Bearer {gate.token}, Bearer {gate.token}",
        "no scheme": gate.token,
        "another scheme": f"Digest {gate.token}",
        "token as password": "Basic YTpi",
        "basic without base64": "Basic ???",
    }
    texts = {}
    for what, authorization in bad.items():
        error = refusal(lambda: select_one_as(gate, authorization))
        assert isinstance(error, adbc.ProgrammingError), what
        assert (error.status_code, code(error)) == (Status.UNAUTHENTICATED, UNAUTHENTICATED), what
        assert gate.token not in str(error), what
        texts.setdefault(str(error), []).append(what)
    assert len(texts) == 1, texts
    assert select_one_as(gate, None) == [(1,)]


def test_a_user_in_the_uri_is_dropped_by_the_driver_and_the_text_names_what_is_missing(gate, refusal):
    uri = gate.url.replace("://", "://alice:secret@")
    error = refusal(lambda: select_one_as(gate, "", uri=uri))
    assert isinstance(error, adbc.ProgrammingError)
    assert code(error) == UNAUTHENTICATED
    assert "credential" in str(error) and "authorization" in str(error)
    assert "secret" not in str(error)


def test_a_user_and_password_are_refused_where_no_password_scheme_is_configured(gate, refusal):
    options = {"username": "alice", "password": "wonderland"}
    error = refusal(lambda: select_one_as(gate, "", database=options))
    assert code(error) == UNAUTHENTICATED
    assert "wonderland" not in str(error)


def test_a_credential_never_reaches_the_output_of_the_gate(gate, refusal):
    marker = "pk1.c0ffee000000.thisMustNotBeInTheLog"
    refusal(lambda: select_one_as(gate, f"Bearer {marker}"))
    assert select_one_as(gate, None) == [(1,)]
    assert "thisMustNotBeInTheLog" not in gate.output.read_text(errors="replace")


def test_a_large_token_is_judged_and_not_cut_off_by_a_header_limit(gate, refusal):
    error = refusal(lambda: select_one_as(gate, "Bearer " + "a" * 30_000))
    assert code(error) == UNAUTHENTICATED


def test_a_client_that_was_not_given_the_ca_does_not_trust_the_gate(gate, refusal):
    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {gate.token}"}

    def ask():
        with adbc_driver_flightsql.dbapi.connect(gate.url, db_kwargs=options, autocommit=True) as connection:
            with connection.cursor() as cursor:
                return rows(cursor, "SELECT 1")

    error = within(30, lambda: refusal(ask))
    assert isinstance(error, adbc.OperationalError), error
    assert gate.token not in str(error)


def test_a_client_without_tls_fails_fast(gate, refusal):
    uri = gate.url.replace("grpc+tls://", "grpc://")
    error = within(30, lambda: refusal(lambda: select_one_as(gate, None, uri=uri)))
    assert isinstance(error, adbc.OperationalError)


def test_unknown_request_headers_are_ignored_and_not_logged(gate):
    options = {DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "pasword": "mistypedSecretHeader"}
    assert select_one_as(gate, None, database=options) == [(1,)]
    assert "mistypedSecretHeader" not in gate.output.read_text(errors="replace")


def test_the_cookie_middleware_of_the_driver_does_no_harm(gate):
    options = {DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    with gate.adbc(database=options) as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT 1") == [(1,)]
        assert rows(cursor, "SELECT count(*) FROM region") == [(5,)]


# --- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", SCHEMAS)
def test_the_driver_accepts_the_schema_of(query, cursor, received):
    cursor.execute(SCHEMAS[query])
    table = cursor.fetch_arrow_table()
    received.keep_schema(query, table.schema)
    if query.startswith("empty_constant") or query in ("empty", "limit_zero"):
        assert table.num_rows == 0
    else:
        assert table.num_rows > 0


def test_an_empty_result_has_the_schema_of_the_query(cursor):
    cursor.execute("SELECT n_name, n_nationkey, 1.5 AS x FROM nation WHERE n_nationkey < 0")
    table = cursor.fetch_arrow_table()
    assert table.num_rows == 0
    assert table.schema.names == ["n_name", "n_nationkey", "x"]
    assert table.schema.field("n_name").type == pa.string()
    assert pa.types.is_integer(table.schema.field("n_nationkey").type)


ROUTES = {"in_the_gate": "SELECT {} AS v", "on_the_cluster": "SELECT {} AS v FROM region WHERE r_regionkey = 1"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("expression", TYPES)
def test_a_type_makes_the_round_trip(expression, route, cursor):
    data_type, value = TYPES[expression]
    cursor.execute(ROUTES[route].format(expression))
    table = cursor.fetch_arrow_table()
    assert plain(table.schema.field("v").type) == data_type
    assert table.column("v").to_pylist() == [value]


def test_a_whole_table_arrives_complete(cursor):
    cursor.execute("SELECT * FROM lineitem")
    table = cursor.fetch_arrow_table()
    assert table.num_rows == rows(cursor, "SELECT count(*) FROM lineitem")[0][0]
    assert len(table.schema) == 16
    keys = table.select(["l_orderkey", "l_linenumber"]).to_pylist()
    assert len({(row["l_orderkey"], row["l_linenumber"]) for row in keys}) == table.num_rows


def test_rows_arrive_in_the_order_that_was_asked_for(cursor):
    ordered = rows(cursor, "SELECT l_orderkey, l_linenumber FROM lineitem ORDER BY l_orderkey DESC, l_linenumber")
    assert ordered == sorted(ordered, key=lambda row: (-row[0], row[1]))


def test_a_cell_of_ten_mebibytes_arrives(cursor):
    (cell,) = rows(cursor, "SELECT repeat('x', 10485760) AS big")[0]
    assert len(cell) == 10 * 1024 * 1024


def test_a_cell_beyond_the_message_limit_of_the_driver_fails_and_the_connection_lives(connection, cursor, refusal):
    refusal(lambda: rows(cursor, "SELECT repeat('x', 20971520) AS big"))
    still_answers(connection)


def test_a_prepared_statement_can_be_run_again(cursor):
    sql = "SELECT count(*) FROM supplier"
    cursor.adbc_prepare(sql)
    assert [rows(cursor, sql) for _ in range(3)] == [[(100,)]] * 3


def test_a_statement_that_is_not_prepared_runs(connection, received):
    with contextlib.closing(adbc.AdbcStatement(connection.adbc_connection)) as statement:
        statement.set_sql_query("SELECT n_name FROM nation WHERE n_nationkey = 7")
        stream, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as reader:
            assert reader.read_all().to_pylist() == [{"n_name": "GERMANY"}]
        option = adbc_driver_flightsql.StatementOptions.LAST_FLIGHT_INFO.value
        received.keep("last flight info", statement.get_option_bytes(option))


def test_the_schema_of_a_query_is_told_without_running_it(cursor):
    schema = within(DEADLINE, lambda: cursor.adbc_execute_schema("SELECT n_name, n_nationkey FROM nation"))
    cursor.execute("SELECT n_name, n_nationkey FROM nation")
    assert schema.equals(cursor.fetch_arrow_table().schema)
    within(DEADLINE, lambda: cursor.adbc_execute_schema(ENDLESS))


def test_a_partition_is_read_by_another_connection(connect, received):
    with connect().cursor() as planner:
        partitions, schema = planner.adbc_execute_partitions("SELECT n_name FROM nation ORDER BY n_name")
        received.keep_schema("partition schema", schema)
        names = []
        for partition in partitions:
            received.keep("partition", partition)
            with connect().cursor() as reader:
                reader.adbc_read_partition(partition)
                names += [name for (name,) in reader.fetchall()]
    assert len(names) == 25
    assert names == sorted(names)


def test_a_partition_can_be_read_twice(connect):
    with connect().cursor() as planner, connect().cursor() as reader:
        partitions, _ = planner.adbc_execute_partitions("SELECT r_name FROM region")
        for _ in range(2):
            found = []
            for partition in partitions:
                reader.adbc_read_partition(partition)
                found += reader.fetchall()
            assert len(found) == 5


def test_a_changed_partition_is_refused(connect, refusal):
    with connect().cursor() as cursor:
        partitions, _ = cursor.adbc_execute_partitions("SELECT r_name FROM region")
        good = bytes(partitions[0])
        cursor.adbc_read_partition(good)
        assert len(cursor.fetchall()) == 5
        # A partition is a FlightInfo: the ticket is field 1 of the endpoint, which is its field 3.
        ticket = proto.first(proto.fields(proto.first(proto.fields(good), 3)), 1)
        start = good.index(ticket)
        for at in (start + len(ticket) // 2, start + len(ticket) - 1):
            changed = bytearray(good)
            changed[at] ^= 0x55
            error = refusal(lambda: read_all(cursor, bytes(changed)))
            assert code(error) in (INVALID_ARGUMENT, NOT_FOUND), error


def read_all(cursor, partition):
    cursor.adbc_read_partition(partition)
    return cursor.fetchall()


def test_incremental_execution_works_or_is_not_supported(connection, refusal):
    with contextlib.closing(adbc.AdbcStatement(connection.adbc_connection)) as statement:
        statement.set_options(**{"adbc.statement.exec.incremental": "true"})
        statement.set_sql_query("SELECT r_name FROM region")
        try:
            partitions, _, _ = statement.execute_partitions()
        except adbc.NotSupportedError:
            return
        assert len(partitions) >= 0


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT FROM WHERE", ""),
        ("SELECT no_such_column FROM nation", "no_such_column"),
        ("SELECT * FROM no_such_table", "no_such_table"),
        ("SELECT * FROM no_such_schema.nation", "no_such_schema"),
        ("SELECT * FROM no_such_catalog.public.nation", "no_such_catalog"),
        ("SELECT no_such_function(1)", "no_such_function"),
        ("SELECT n_name + DATE '2024-01-01' FROM nation", ""),
        ("SELECT n_name, count(*) FROM nation", "n_name"),
        ("SELECT 'unterminated", ""),
        ("SELECT /* unterminated", ""),
        (" ", ""),
        (";", ""),
    ],
)
def test_bad_sql_is_an_invalid_argument_in_the_words_of_the_planner(sql, named, connection, cursor, refusal):
    error = within(DEADLINE, lambda: refusal(lambda: rows(cursor, sql)))
    assert isinstance(error, adbc.ProgrammingError), error
    assert code(error) in (INVALID_ARGUMENT, NOT_FOUND), error
    assert named in str(error)
    with connection.cursor() as again:
        assert rows(again, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("route", ROUTES)
def test_a_query_that_fails_while_it_runs_is_not_an_unknown_error(route, connection, cursor, refusal):
    divisor = "(1 - 1)" if route == "in_the_gate" else "(r_regionkey - r_regionkey)"
    error = within(DEADLINE, lambda: refusal(lambda: rows(cursor, ROUTES[route].format(f"1 / {divisor}"))))
    assert code(error) not in (None, CODES["Unknown"]), error
    assert "zero" in str(error).lower(), error
    still_answers(connection)


def test_statements_beyond_the_limits_are_refused_and_the_gate_lives(connection, cursor, refusal):
    assert rows(cursor, "SELECT " + "(" * 10 + "1" + ")" * 10) == [(1,)]
    assert rows(cursor, "SELECT " + " + ".join(["1"] * 50)) == [(50,)]
    beyond = {
        "too long": "SELECT '" + "x" * (2 * 1024 * 1024) + "'",
        "too deep": "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "too many NOT": "SELECT " + "NOT " * 20_000 + "true",
        "chain of +": "SELECT " + "+".join(["1"] * 50_000),
        "chain of OR": "SELECT " + " OR ".join(["n_nationkey = 1"] * 20_000) + " FROM nation",
        "nested calls": "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
        "nested subqueries": "SELECT * FROM (" * 2_000 + "SELECT 1" + ") t" * 2_000,
        "unions": " UNION ALL ".join(["SELECT 1"] * 20_000),
    }
    for what, sql in beyond.items():
        error = within(DEADLINE, lambda: refusal(lambda: rows(cursor, sql)))
        assert code(error) in (INVALID_ARGUMENT, RESOURCE_EXHAUSTED), (what, str(error)[:300])
        still_answers(connection)


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_client_may_do_is_refused_at_once(case, connection, cursor, refusal, name):
    sql = REFUSED[case].format(name=name)
    error = within(20, lambda: refusal(lambda: rows(cursor, sql)))
    assert isinstance(error, (adbc.ProgrammingError, adbc.NotSupportedError)), error
    assert code(error) in (INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED), error
    still_answers(connection)


def test_ingest_is_not_supported(connection, cursor, refusal, name):
    data = pa.table({"a": [1, 2, 3]})
    error = within(20, lambda: refusal(lambda: cursor.adbc_ingest(name, data, mode="create")))
    assert isinstance(error, adbc.NotSupportedError), error
    assert code(error) == UNIMPLEMENTED
    still_answers(connection)


def test_a_substrait_plan_answers_as_its_sql_does(connection, cursor):
    with contextlib.closing(adbc.AdbcStatement(connection.adbc_connection)) as statement:
        statement.set_substrait_plan(proto.substrait_scan("nation", "n_nationkey"))
        stream, _ = statement.execute_query()
        table = pa.RecordBatchReader._import_from_c(stream.address).read_all()
    found = sorted(zip(*(column.to_pylist() for column in table.columns)))
    assert found == sorted(rows(cursor, "SELECT n_nationkey FROM nation")) and len(found) == 25


def test_a_substrait_plan_of_nothing_or_of_what_is_not_there_is_refused(connection, refusal):
    for plan in (b"\x0a\x02\x08\x01", proto.substrait_scan("no_such_table", "a")):
        with contextlib.closing(adbc.AdbcStatement(connection.adbc_connection)) as statement:
            statement.set_substrait_plan(plan)
            error = within(20, lambda: refusal(statement.execute_query))
        assert code(error) == INVALID_ARGUMENT, error
    still_answers(connection)


def test_transactions_are_not_supported_and_the_driver_says_so(gate, connection, refusal):
    with pytest.warns(adbc.Warning, match="autocommit"):
        with gate.adbc(autocommit=False) as other, other.cursor() as cursor:
            assert rows(cursor, "SELECT 1") == [(1,)]
    error = refusal(lambda: connection.adbc_connection.set_autocommit(False))
    assert isinstance(error, adbc.NotSupportedError), error


def test_an_update_through_the_update_path_is_refused_without_a_hang(connection, refusal):
    for sql in ("INSERT INTO region VALUES (99, 'X', 'x')", "DROP TABLE region"):
        with contextlib.closing(adbc.AdbcStatement(connection.adbc_connection)) as statement:
            statement.set_sql_query(sql)
            error = within(20, lambda: refusal(statement.execute_update))
        assert code(error) in (INVALID_ARGUMENT, PERMISSION_DENIED, UNIMPLEMENTED), error
    still_answers(connection)


def test_parameters_are_bound_or_refused_but_never_dropped(connection, received):
    for sql, parameters, expected in [
        ("SELECT $1 + 1 AS x", (41,), [(42,)]),
        ("SELECT n_name FROM nation WHERE n_nationkey = $1", (7,), [("GERMANY",)]),
    ]:
        with connection.cursor() as cursor:
            try:
                within(DEADLINE, lambda: cursor.execute(sql, parameters))
                assert cursor.fetchall() == expected
            except (adbc.NotSupportedError, adbc.ProgrammingError) as error:
                received.keep_error(sql, error)
                assert code(error) in (INVALID_ARGUMENT, UNIMPLEMENTED), error
    still_answers(connection)


# --- metadata --------------------------------------------------------------------------------------------------------


def objects(connection, **how):
    """{catalog: {schema: {table: [columns]}}} with None where the depth ends."""
    found = connection.adbc_get_objects(**how).read_all().to_pylist()
    tree = {}
    for catalog in found:
        schemas = catalog["catalog_db_schemas"]
        tree[catalog["catalog_name"]] = schemas and {
            schema["db_schema_name"]: schema["db_schema_tables"]
            and {
                table["table_name"]: table["table_columns"]
                and [column["column_name"] for column in table["table_columns"]]
                for table in schema["db_schema_tables"]
            }
            for schema in schemas
        }
    return tree


def test_objects_at_the_depth_of_catalogs(connection):
    found = objects(connection, depth="catalogs")
    assert "tpch" in found
    assert not any(found.values())


def test_objects_at_the_depth_of_schemas(connection):
    found = objects(connection, depth="db_schemas")
    assert "public" in found["tpch"]
    assert not any(found["tpch"].values())


def test_objects_at_the_depth_of_tables(connection):
    found = objects(connection, depth="tables")
    assert set(TABLES) <= set(found["tpch"]["public"])
    assert not any(found["tpch"]["public"].values())


@pytest.mark.parametrize("depth", ["columns", "all"])
def test_objects_at_full_depth_have_their_columns_in_order(depth, connection):
    found = objects(connection, depth=depth)
    assert found["tpch"]["public"]["nation"] == ["n_nationkey", "n_name", "n_regionkey", "n_comment"]
    assert len(found["tpch"]["public"]["lineitem"]) == 16


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"table_name_filter": "nation"}, {"nation"}),
        ({"table_name_filter": "part%"}, {"part", "partsupp"}),
        ({"table_name_filter": "p_rt"}, {"part"}),
        ({"table_name_filter": "%s"}, {"orders"}),
        ({"table_name_filter": "%"}, set(TABLES)),
        ({"table_name_filter": "n%n"}, {"nation"}),
        ({"table_name_filter": "nat"}, set()),
        ({"table_name_filter": "o'brien"}, set()),
        ({"table_name_filter": "' OR '1'='1"}, set()),
        ({"table_name_filter": "select 'a%b''c' -- \""}, set()),
        ({"table_name_filter": ".*"}, set()),
        ({"table_name_filter": "nation|region"}, set()),
        ({"table_name_filter": "[a-z]*"}, set()),
        ({"table_name_filter": "NATION"}, set()),
        ({"db_schema_filter": "public"}, set(TABLES)),
        ({"db_schema_filter": "pub%"}, set(TABLES)),
        ({"db_schema_filter": "p_blic", "table_name_filter": "region"}, {"region"}),
        ({"db_schema_filter": "nowhere"}, set()),
        ({"catalog_filter": "tpch"}, set(TABLES)),
        ({"catalog_filter": "t%"}, set(TABLES)),
        ({"catalog_filter": "tpc_", "table_name_filter": "region"}, {"region"}),
        ({"catalog_filter": "nowhere"}, set()),
        ({"table_types_filter": ["VIEW"]}, set()),
        ({"table_types_filter": ["NO SUCH TYPE"]}, set()),
    ],
)
def test_objects_are_filtered(filters, expected, connection):
    found = objects(connection, depth="tables", **filters)
    tables = {table for table in ((found.get("tpch") or {}).get("public") or {}) if table in TABLES}
    assert tables == expected


def test_columns_are_filtered(connection):
    found = objects(connection, depth="columns", table_name_filter="nation", column_name_filter="n_n%")
    assert found["tpch"]["public"]["nation"] == ["n_nationkey", "n_name"]


def test_table_types_are_told_and_filter_the_tables(connection):
    types = connection.adbc_get_table_types()
    assert "VIEW" in types
    base = [kind for kind in types if "TABLE" in kind]
    found = objects(connection, depth="tables", table_types_filter=base, db_schema_filter="public")
    assert set(TABLES) <= set(found["tpch"]["public"])


def test_the_schema_of_a_table_is_the_schema_of_its_rows(connection, cursor):
    for table in TABLES:
        schema = connection.adbc_get_table_schema(table)
        cursor.execute(f"SELECT * FROM {table} LIMIT 1")
        rows_schema = cursor.fetch_arrow_table().schema
        assert schema.names == rows_schema.names
        assert schema.types == rows_schema.types
    qualified = connection.adbc_get_table_schema("part", catalog_filter="tpch", db_schema_filter="public")
    assert qualified.names[0] == "p_partkey"


def test_the_schema_of_a_table_that_is_not_there_is_not_found(connection, refusal):
    error = refusal(lambda: connection.adbc_get_table_schema("no_such_table"))
    assert isinstance(error, adbc.ProgrammingError), error


def test_info_names_the_vendor_and_its_version(connection):
    info = connection.adbc_get_info()
    assert "portcullis" in info["vendor_name"].lower()
    assert info["vendor_version"]


def test_the_information_schema_lists_the_tables_and_columns(cursor):
    tables = rows(cursor, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1")
    assert set(TABLES) <= {table for (table,) in tables}
    columns = rows(
        cursor,
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'nation' ORDER BY ordinal_position",
    )
    assert [column for (column,) in columns] == ["n_nationkey", "n_name", "n_regionkey", "n_comment"]


def test_the_settings_that_a_client_can_see_hold_nothing_of_the_machine(cursor, received):
    for sql in ("SELECT * FROM information_schema.df_settings", "SHOW ALL"):
        try:
            cursor.execute(sql)
            received.keep(sql, repr(cursor.fetchall()))
        except (adbc.ProgrammingError, adbc.NotSupportedError) as error:
            received.keep_error(sql, error)


@pytest.mark.parametrize("sql", ["SHOW TABLES", "SHOW COLUMNS FROM nation", "DESCRIBE nation"])
def test_a_show_statement_answers(sql, cursor):
    assert len(rows(cursor, sql)) >= 4


@pytest.mark.parametrize("how", ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE", "EXPLAIN FORMAT TREE"])
def test_explain_answers_without_a_location(how, cursor, gate, received):
    sql = f"{how} SELECT n_name, count(*) FROM nation JOIN customer ON n_nationkey = c_nationkey GROUP BY n_name"
    try:
        cursor.execute(sql)
        text = repr(cursor.fetchall())
    except (adbc.ProgrammingError, adbc.NotSupportedError) as error:
        # The plain form is a promise; the others may be refused, but not fail.
        assert how != "EXPLAIN", error
        text = str(received.keep_error(how, error))
    received.keep(how, text)
    assert str(gate.folder).strip("/") not in text
    assert ".parquet" not in text


# --- sessions --------------------------------------------------------------------------------------------------------


def test_the_current_catalog_and_schema_are_told(connection):
    assert connection.adbc_current_catalog == "tpch"
    assert connection.adbc_current_db_schema == "public"


def test_the_current_catalog_and_schema_can_be_set(connection, cursor, refusal):
    connection.adbc_current_catalog = "tpch"
    connection.adbc_current_db_schema = "public"
    assert rows(cursor, "SELECT count(*) FROM nation") == [(25,)]
    for attribute in ("adbc_current_catalog", "adbc_current_db_schema"):
        error = refusal(lambda: setattr(connection, attribute, "no_such_name"))
        assert error.status_code not in (Status.UNKNOWN, Status.INTERNAL), error
    assert (connection.adbc_current_catalog, connection.adbc_current_db_schema) == ("tpch", "public")


def test_a_view_lives_in_the_session(connection, cursor, name):
    cursor.execute(f"CREATE VIEW {name} AS SELECT n_name FROM nation WHERE n_regionkey = 3")
    try:
        assert len(rows(cursor, f"SELECT * FROM {name}")) == 5
        assert name in objects(connection, depth="tables", table_name_filter=name)["tpch"]["public"]
        kinds = rows(cursor, f"SELECT table_type FROM information_schema.tables WHERE table_name = '{name}'")
        assert kinds == [("VIEW",)]
    finally:
        cursor.execute(f"DROP VIEW {name}")
    assert rows(cursor, f"SELECT count(*) FROM information_schema.tables WHERE table_name = '{name}'") == [(0,)]


def test_a_table_that_is_made_is_there_for_every_connection(connection, connect, cursor, refusal, name):
    made = f"CREATE TABLE {name} AS SELECT n_name, count(*) AS n FROM nation JOIN customer ON n_nationkey = c_nationkey"
    cursor.execute(f"{made} GROUP BY n_name")
    try:
        assert rows(cursor, f"SELECT count(*) FROM {name}") == [(25,)]
        with connect().cursor() as other:
            customers = rows(other, "SELECT count(*) FROM customer")
            assert rows(other, f"SELECT sum(n) FROM tpch.public.{name}") == customers
            assert name in objects(connection, depth="tables", table_name_filter=name)["tpch"]["public"]
        error = refusal(lambda: rows(cursor, f"CREATE TABLE {name} AS SELECT 1 AS a"))
        assert code(error) == INVALID_ARGUMENT and "already exists" in str(error)
    finally:
        cursor.execute(f"DROP TABLE {name}")
    assert rows(cursor, f"SELECT count(*) FROM information_schema.tables WHERE table_name = '{name}'") == [(0,)]


def test_a_view_over_a_missing_table_is_refused(cursor, refusal, name):
    error = refusal(lambda: rows(cursor, f"CREATE VIEW {name} AS SELECT * FROM no_such_table"))
    assert code(error) in (INVALID_ARGUMENT, NOT_FOUND)


def test_a_setting_is_set_and_shown(cursor):
    key = "datafusion.execution.batch_size"
    before = rows(cursor, f"SHOW {key}")[0][1]
    cursor.execute(f"SET {key} = 4096")
    try:
        assert rows(cursor, f"SHOW {key}") == [(key, "4096")]
        assert rows(cursor, "SELECT count(*) FROM nation") == [(25,)]
    finally:
        cursor.execute(f"SET {key} = {before}")
    assert rows(cursor, f"SHOW {key}") == [(key, before)]


@pytest.mark.parametrize("value", ["0", "-1", "'many'", "18446744073709551615"])
def test_a_setting_out_of_bounds_is_refused(value, connection, cursor, refusal):
    error = refusal(lambda: rows(cursor, f"SET datafusion.execution.batch_size = {value}"))
    assert code(error) in (INVALID_ARGUMENT, PERMISSION_DENIED), error
    still_answers(connection)


def test_closing_one_connection_does_not_disturb_another(connect, gate):
    with connect().cursor() as cursor:
        assert rows(cursor, "SELECT count(*) FROM region") == [(5,)]
        with gate.adbc() as other, other.cursor() as second:
            assert rows(second, "SELECT 1") == [(1,)]
        assert rows(cursor, "SELECT count(*) FROM region") == [(5,)]


def test_a_connection_closes_at_once(gate):
    connection = gate.adbc()
    within(1, connection.close)


# --- time and crowds -------------------------------------------------------------------------------------------------


@pytest.mark.late
def test_a_cancelled_query_ends_at_once_and_the_gate_still_answers(connect, received):
    connection = connect()
    with connection.cursor() as cursor:
        finished, ended = threading.Event(), []

        def run():
            try:
                cursor.execute(ENDLESS)
                ended.append(cursor.fetchall())
            except adbc.Error as error:
                ended.append(received.keep_error("cancelled", error))
            finally:
                finished.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        # Long enough for the query to be on the cluster; then again and again, for a cancel can be too early.
        cancels = 0
        while not finished.wait(2 if cancels == 0 else 0.5) and cancels < 40:
            cursor.adbc_cancel()
            cancels += 1
        assert finished.is_set(), "the query did not end"
        assert isinstance(ended[0], adbc.OperationalError), ended[0]
        assert ended[0].status_code == Status.CANCELLED
    still_answers(connect())


def test_a_reader_that_is_closed_early_does_not_disturb_the_next(connect):
    connection = connect()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.*, b.l_comment AS other FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey LIMIT 500000"
        )
        assert cursor.fetchone()
    still_answers(connection)


@pytest.mark.late
def test_a_query_beyond_the_deadline_of_the_client_times_out(connect, refusal):
    connection = connect(connection={ConnectionOptions.TIMEOUT_QUERY.value: "1.0"})
    with connection.cursor() as cursor:
        error = within(10, lambda: refusal(lambda: rows(cursor, ENDLESS)))
    assert isinstance(error, adbc.OperationalError), error
    assert (error.status_code, code(error)) == (Status.TIMEOUT, DEADLINE_EXCEEDED)
    still_answers(connect())


def test_sixteen_clients_connect_query_and_close_at_once(gate):
    def client(number):
        seen = []
        for turn in range(3):
            with gate.adbc() as connection, connection.cursor() as cursor:
                mine = number * 100 + turn
                seen.append(rows(cursor, f"SELECT {mine} AS mine") == [(mine,)])
                expected = 25 - number
                seen.append(rows(cursor, f"SELECT count(*) FROM nation WHERE n_nationkey >= {number}") == [(expected,)])
        return seen

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(client, range(16), timeout=5 * DEADLINE))
    assert all(all(seen) for seen in results)


def test_one_connection_serves_several_threads(connect):
    connection = connect()

    def ask(number):
        with connection.cursor() as cursor:
            return rows(cursor, f"SELECT n_nationkey FROM nation WHERE n_nationkey = {number}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(24), timeout=5 * DEADLINE)) == [[(number,)] for number in range(24)]


@pytest.mark.embedded
def test_the_lines_that_the_demo_prints_work_when_pasted(gate):
    printed = gate.output.read_text()
    lines = printed.split("ADBC, in Python", 1)[1].split("\n\n", 2)[1]
    assert "dbapi.connect" in lines
    ran = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "n_name" in ran.stdout and "MOROCCO" in ran.stdout
