"""The Arrow Flight SQL JDBC driver in a Java machine: connecting, metadata, statements, types, a pool, and TPC-H.

Runs once for each version of the driver, in a process of its own: PORTCULLIS_JDBC_JARS is the class path and
PORTCULLIS_VARIANT the version. Says what Java programs see, the driver's own oddities included. Must not make up for
what the driver cannot do.
"""

import collections
import concurrent.futures
import datetime
import decimal
import os
import pathlib
import re
import threading
import time

import jpype
import pytest

import jvm
from conftest import DEADLINE, within
from queries import ENDLESS, REFUSED, SCHEMAS, TABLES, TYPES
from recorder import Recorder
from test_tpch import ORDER, compare, compare_names, other_engine_with_our_data, tpch  # noqa: F401 (fixtures)

VERSION = os.environ["PORTCULLIS_VARIANT"]

EXPECT = pathlib.Path(__file__).parent.parent / "expect"

jvm.start(os.environ["PORTCULLIS_JDBC_JARS"].split(os.pathsep))

DriverManager = jpype.JClass("java.sql.DriverManager")
DatabaseMetaData = jpype.JClass("java.sql.DatabaseMetaData")
Properties = jpype.JClass("java.util.Properties")
ResultSet = jpype.JClass("java.sql.ResultSet")
ResultSetMetaData = jpype.JClass("java.sql.ResultSetMetaData")
SQLException = jpype.JClass("java.sql.SQLException")
Types = jpype.JClass("java.sql.Types")

LARGE = "SELECT a.* FROM lineitem a CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)) AS t(x)"
"""About 600,000 wide rows: far more than a client and the network between hold when it stops to read."""

OWN_STATEMENT = re.compile(r'Error while executing SQL ".*?": |while preparing SQL: .*?$', re.DOTALL | re.MULTILINE)
"""What the driver puts before the server's sentence; it was not received."""


def address(gate, **properties):
    """The URL as the documentation has it; None leaves a property out."""
    properties = {
        "useEncryption": "true",
        "tlsRootCerts": os.environ["PORTCULLIS_CA"],
        "token": gate.token,
    } | properties
    shown = "&".join(f"{key}={value}" for key, value in properties.items() if value is not None)
    return f"jdbc:arrow-flight-sql://{gate.host}:{gate.port}/?{shown}"


@pytest.fixture(scope="session", autouse=True)
def ending(request):
    jvm.end_at_once(request.session)


@pytest.fixture
def connect(gate):
    """Opens JDBC connections and closes them when the test is over."""
    opened = []

    def open_one(url=None, properties=None, **more):
        arguments = [url or address(gate, **more)]
        if properties is not None:
            bag = Properties()
            for key, value in properties.items():
                bag.setProperty(key, value)
            arguments.append(bag)
        opened.append(DriverManager.getConnection(*arguments))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect):
    return connect()


@pytest.fixture
def statement(connection):
    # A connection that is closed before its results are complains of leaked memory.
    with connection.createStatement() as statement:
        yield statement


@pytest.fixture
def refusal(received, request):
    """`refusal(call)` returns the text of the SQLException with which `call` was refused."""

    def refused(call, kind=SQLException):
        try:
            call()
        except kind as error:
            text = jvm.exception_text(error)
            received.keep(request.node.name, OWN_STATEMENT.sub("", text))
            return text
        pytest.fail(f"{request.node.name}: was not refused")

    return refused


def rows(result):
    """All rows of a result as tuples of Python values; the result is closed."""
    columns = range(1, result.getMetaData().getColumnCount() + 1)
    found = []
    while result.next():
        found.append(tuple(jvm.plain(result.getObject(column)) for column in columns))
    result.close()
    return found


def ask(statement, sql):
    return rows(statement.executeQuery(sql))


def records(result):
    """All rows of a result of the metadata as dictionaries."""
    metadata = result.getMetaData()
    names = [metadata.getColumnLabel(column) for column in range(1, metadata.getColumnCount() + 1)]
    return [dict(zip(names, row)) for row in rows(result)]


def still_answers(connection):
    """On the cluster, not only in the gate, and soon."""
    with connection.createStatement() as statement:
        assert within(DEADLINE, lambda: ask(statement, "SELECT count(*) FROM nation")) == [(25,)]


def idle(gate):
    """Waits until the gate's process does nothing, which it must within the deadline."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        before = gate.processor_seconds()
        time.sleep(1)
        if gate.processor_seconds() - before < 0.3:
            return
    pytest.fail("the gate's process works on")


# --- connecting ------------------------------------------------------------------------------------------------------


def test_the_driver_is_the_version_that_is_meant(connection):
    assert connection.getMetaData().getDriverVersion() == VERSION


@pytest.mark.embedded
def test_the_line_that_the_demo_prints_works_when_pasted(gate):
    line = next(line for line in gate.output.read_text().splitlines() if line.startswith("jdbc:"))
    with DriverManager.getConnection(line.replace("TOKEN", gate.token)) as connection:
        still_answers(connection)


def test_a_token_and_the_ca_are_enough_to_select_one(statement):
    assert ask(statement, "SELECT 1") == [(1,)]


def test_properties_are_taken_from_an_object_as_from_the_url(gate, connect):
    bare = f"jdbc:arrow-flight-sql://{gate.host}:{gate.port}"
    given = {"useEncryption": "true", "tlsRootCerts": os.environ["PORTCULLIS_CA"], "token": gate.token}
    assert ask(connect(bare, given).createStatement(), "SELECT 1") == [(1,)]
    assert ask(connect(f"{bare}/?useEncryption=true", given).createStatement(), "SELECT 1") == [(1,)]


def test_a_url_with_semicolons_is_as_good(gate, connect):
    url = address(gate).replace("/?", ";").replace("&", ";")
    assert ask(connect(url).createStatement(), "SELECT 1") == [(1,)]


def test_a_wrong_token_is_refused_while_connecting(gate, connect, refusal):
    still_answers(connect())
    for token in (gate.token[:-4] + "AAAA", "nonsense", "pk1.nobody.secret"):
        text = within(DEADLINE, lambda: refusal(lambda: connect(token=token)))
        assert "UNAUTHENTICATED" in text, text
        assert token not in text and gate.token not in text


def test_a_user_and_password_are_refused_while_connecting_where_no_password_scheme_is_configured(connect, refusal):
    text = refusal(lambda: connect(token=None, user="alice", password="wonderland"))
    assert "UNAUTHENTICATED" in text, text
    assert "wonderland" not in text


def test_a_token_wins_over_a_user_and_password(connect):
    still_answers(connect(user="alice", password="wonderland"))


def test_a_connection_without_a_credential_is_refused_with_the_first_statement(connect, refusal):
    # The driver sends nothing while it connects, so there is nothing to refuse yet.
    connection = connect(token=None)
    text = refusal(lambda: ask(connection.createStatement(), "SELECT 1"))
    assert "authentication failed" in text and "authorization header" in text, text


def test_the_catalog_of_the_url_is_set_and_another_is_refused_while_connecting(gate, connect, refusal):
    connection = DriverManager.getConnection(address(gate, catalog="tpch"))
    still_answers(connection)
    # The driver closes the session, and then once more when its channel is gone already, whatever a server says.
    assert "Channel shutdown" in within(10, lambda: refusal(connection.close))
    text = refusal(lambda: connect(catalog="no_such_catalog"))
    assert "no_such_catalog" in text and "INVALID_ARGUMENT" in text, text
    still_answers(connect())


def test_unknown_properties_are_ignored_and_not_logged(gate, connect):
    secret = "hunter2-jdbc-property"
    with connect(passwort=secret, ApplicationName="a%20tool", big="x" * 10_240) as connection:
        still_answers(connection)
    assert secret not in gate.output.read_text(errors="replace")


def test_without_the_ca_the_connection_fails(connect, refusal):
    still_answers(connect())
    text = within(DEADLINE, lambda: refusal(lambda: connect(tlsRootCerts=None)))
    assert "UNAVAILABLE" in text and "certification path" in text.lower() or "SSLHandshake" in text, text


def test_without_encryption_the_connection_fails_at_once(connect, refusal):
    still_answers(connect())
    text = within(20, lambda: refusal(lambda: connect(useEncryption="false", tlsRootCerts=None)))
    assert "http2 exception" in text or "UNAVAILABLE" in text, text


def test_a_connection_can_be_closed_twice_and_is_not_valid_afterwards(connect, refusal):
    connection = connect()
    statement = connection.createStatement()
    assert connection.isValid(5)
    assert ask(statement, "SELECT 1") == [(1,)]
    within(10, connection.close)
    connection.close()
    assert connection.isClosed() and not connection.isValid(5)
    assert "Channel shutdown" in refusal(lambda: ask(statement, "SELECT 1"))


def test_what_the_driver_keeps_to_itself_does_no_harm(connection):
    connection.setSchema("public")
    connection.setCatalog("tpch")
    assert (connection.getCatalog(), connection.getSchema()) == ("tpch", "public")
    connection.setAutoCommit(False)
    connection.commit()
    connection.rollback()
    connection.setAutoCommit(True)
    connection.setReadOnly(True)
    assert connection.getWarnings() is None
    still_answers(connection)


# --- what is on the wire ---------------------------------------------------------------------------------------------


class At:
    """A gate's credential at another address."""

    def __init__(self, gate, proxy):
        self.token, self.host, self.port = gate.token, proxy.host, proxy.port


def test_what_the_driver_sends_is_what_is_written_down(gate, refusal):
    with Recorder(gate) as proxy:
        url = address(At(gate, proxy), tlsRootCerts=proxy.ca_file, catalog="tpch", Extra="x")
        connection = DriverManager.getConnection(url)
        with connection.createStatement() as statement:
            assert len(ask(statement, "SELECT n_name FROM nation")) == 25
        metadata = connection.getMetaData()
        assert len(records(metadata.getTables(None, "public", "nation", None))) == 1
        assert len(records(metadata.getColumns(None, "public", "nation", None))) == 4
        assert metadata.getSQLKeywords()
        with connection.createStatement() as statement:
            statement.executeUpdate("SET datafusion.execution.batch_size = 8192")
        refusal(connection.close)
        lines = uncounted(proxy.lines)
    assert_snapshot(f"wire-jdbc-{VERSION}.txt", "".join(f"{line}\n" for line in lines))


def test_a_select_is_five_calls(gate):
    with Recorder(gate) as proxy:
        with DriverManager.getConnection(address(At(gate, proxy), tlsRootCerts=proxy.ca_file)) as connection:
            with connection.createStatement() as statement:
                assert ask(statement, "SELECT 1") == [(1,)]
        assert uncounted(proxy.calls) == [
            "Handshake",
            "DoAction CreatePreparedStatement",
            "GetFlightInfo CommandPreparedStatementQuery",
            "DoGet",
            "DoAction ClosePreparedStatement",
        ]


def uncounted(calls):
    """The gate answers a handshake by its headers, so its message is not always seen before the call is over."""
    return [re.sub(r"^Handshake of \d messages", "Handshake", call) for call in calls]


def assert_snapshot(name, text):
    """Equal to the checked-in file; PORTCULLIS_BLESS=1 writes it."""
    path = EXPECT / name
    if os.environ.get("PORTCULLIS_BLESS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


# --- metadata --------------------------------------------------------------------------------------------------------


def getters():
    """Every method of DatabaseMetaData that takes nothing."""
    methods = [method for method in DatabaseMetaData.class_.getMethods() if method.getParameterCount() == 0]
    return sorted(methods, key=lambda method: method.getName())


def test_every_getter_of_the_metadata_answers_as_written_down(gate, connection, received):
    metadata = connection.getMetaData()
    lines, failed = [], []
    for method in getters():
        name = method.getName()
        try:
            value = method.invoke(metadata, [])
        except jpype.JException as error:
            failed.append(f"{name}: {received.keep(name, jvm.exception_text(error))}")
            continue
        if isinstance(value, ResultSet):
            value = records(value)
        # What belongs to this run, or to this version of the gate, which is tested by itself below.
        if name not in ("getConnection", "getURL", "getDatabaseProductVersion"):
            lines.append(f"{name} = {received.keep(name, str(value))}\n")
    assert not failed, "\n".join(failed)
    assert len(lines) > 130
    assert_snapshot(f"jdbc-metadata-{VERSION}.txt", "".join(lines))


def test_the_product_is_named_with_its_version(connection):
    metadata = connection.getMetaData()
    assert metadata.getDatabaseProductName() == "Portcullis"
    assert metadata.getDatabaseProductVersion().split(".")[0].isdigit()
    assert not metadata.isReadOnly() and not metadata.supportsTransactions()
    assert metadata.getIdentifierQuoteString() == '"'
    assert metadata.getSearchStringEscape() == "\\"


def test_questions_with_an_argument_answer(connection):
    metadata = connection.getMetaData()
    codes = [field.getInt(None) for field in Types.class_.getFields()]
    assert len(codes) > 30
    answers = {bool(metadata.supportsConvert(a, b)) for a in codes for b in codes}
    # Which pairs of codes are meant is not agreed between the driver and the specification.
    assert False in answers
    for level in (1, 2, 4, 8):
        assert not metadata.supportsTransactionIsolationLevel(level)
    assert metadata.supportsResultSetType(ResultSet.TYPE_FORWARD_ONLY)


def test_catalogs_schemas_and_table_types_are_told(connection):
    metadata = connection.getMetaData()
    assert {"TABLE_CAT": "tpch"} in records(metadata.getCatalogs())
    assert {"TABLE_SCHEM": "public", "TABLE_CATALOG": "tpch"} in records(metadata.getSchemas())
    assert [row["TABLE_SCHEM"] for row in records(metadata.getSchemas("tpch", "pub%"))] == ["public"]
    assert records(metadata.getSchemas("nowhere", None)) == []
    assert records(metadata.getSchemas("tpch", "nowhere")) == []
    assert {"TABLE", "VIEW"} <= {row["TABLE_TYPE"] for row in records(metadata.getTableTypes())}


@pytest.mark.parametrize(
    ("catalog", "schema", "pattern", "types", "expected"),
    [
        (None, None, None, None, TABLES),
        (None, "public", "%", None, TABLES),
        ("tpch", "public", "%", ["TABLE"], TABLES),
        ("tpch", "public", "%", ["TABLE", "VIEW"], TABLES),
        ("tpch", "public", "nation", None, ["nation"]),
        (None, "pub%", "part%", None, ["part", "partsupp"]),
        (None, "p_blic", "p_rt", None, ["part"]),
        (None, None, "%s", None, ["orders"]),
        (None, None, "n%n", None, ["nation"]),
        (None, None, "nat", None, []),
        (None, None, "NATION", None, []),
        (None, None, "par\\_t", None, []),
        (None, None, "nation\\%", None, []),
        (None, None, "nation|region", None, []),
        (None, None, ".*", None, []),
        (None, None, "' OR '1'='1", None, []),
        (None, "nowhere", "%", None, []),
        ("nowhere", None, "%", None, []),
        # A catalog is a name and no pattern; an empty one means objects that have none.
        ("tp%", None, "nation", None, []),
        ("", None, "nation", None, []),
        (None, "", "nation", None, []),
        (None, "public", "%", ["VIEW"], []),
        (None, "public", "%", ["NO SUCH TYPE"], []),
    ],
)
def test_tables_are_filtered(catalog, schema, pattern, types, expected, connection):
    found = records(connection.getMetaData().getTables(catalog, schema, pattern, types))
    assert sorted(row["TABLE_NAME"] for row in found if row["TABLE_NAME"] in TABLES) == sorted(expected)
    for row in found:
        if row["TABLE_NAME"] in TABLES:
            assert (row["TABLE_CAT"], row["TABLE_SCHEM"], row["TABLE_TYPE"]) == ("tpch", "public", "TABLE")


def test_an_escaped_wildcard_is_the_character_itself(connection, statement, name):
    for view in (f"{name}_a", f"{name}xa"):
        statement.executeUpdate(f"CREATE VIEW {view} AS SELECT 1 AS one")
    try:
        metadata = connection.getMetaData()
        # All of these names begin with `t_`.
        plain = {row["TABLE_NAME"] for row in records(metadata.getTables(None, "public", f"{name}_a", ["VIEW"]))}
        escaped = name.replace("_", "\\_") + metadata.getSearchStringEscape() + "_a"
        exact = {row["TABLE_NAME"] for row in records(metadata.getTables(None, "public", escaped, ["VIEW"]))}
        assert plain == {f"{name}_a", f"{name}xa"}
        assert exact == {f"{name}_a"}
    finally:
        for view in (f"{name}_a", f"{name}xa"):
            statement.executeUpdate(f"DROP VIEW {view}")


COLUMNS = {
    # name: (JDBC type, type name, size, digits, ordinal)
    "l_orderkey": (Types.BIGINT, "BIGINT", 19, 0, 1),
    "l_linenumber": (Types.INTEGER, "INTEGER", 10, 0, 4),
    "l_quantity": (Types.DECIMAL, "DECIMAL", 15, 2, 5),
    "l_returnflag": (Types.VARCHAR, "VARCHAR", 65536, None, 9),
    "l_shipdate": (Types.DATE, "DATE", 10, 0, 11),
    "l_comment": (Types.VARCHAR, "VARCHAR", 65536, None, 16),
}


def test_columns_are_told_with_type_size_and_ordinal(connection):
    found = records(connection.getMetaData().getColumns("tpch", "public", "lineitem", "%"))
    assert [row["ORDINAL_POSITION"] for row in found] == list(range(1, 17))
    by_name = {row["COLUMN_NAME"]: row for row in found}
    for column, expected in COLUMNS.items():
        row = by_name[column]
        keys = ("DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "ORDINAL_POSITION")
        assert tuple(row[key] for key in keys) == expected, column
        assert (row["TABLE_CAT"], row["TABLE_SCHEM"], row["TABLE_NAME"]) == ("tpch", "public", "lineitem")
        assert (row["NULLABLE"], row["IS_NULLABLE"]) in ((0, "NO"), (1, "YES"))


def test_the_columns_of_everything_can_be_asked_for(connection):
    found = records(within(20, lambda: connection.getMetaData().getColumns(None, None, None, None)))
    counts = collections.Counter(row["TABLE_NAME"] for row in found)
    assert {table: counts[table] for table in ("customer", "lineitem", "nation", "orders")} == {
        "customer": 8,
        "lineitem": 16,
        "nation": 4,
        "orders": 9,
    }


def test_columns_are_filtered_and_told_in_the_order_of_the_table(connection):
    metadata = connection.getMetaData()
    names = [row["COLUMN_NAME"] for row in records(metadata.getColumns(None, "public", "nation", None))]
    assert names == ["n_nationkey", "n_name", "n_regionkey", "n_comment"]
    names = [row["COLUMN_NAME"] for row in records(metadata.getColumns(None, "public", "nation", "n_n%"))]
    assert names == ["n_nationkey", "n_name"]
    assert records(metadata.getColumns(None, "public", "no_such_table", None)) == []


def test_the_types_of_columns_are_those_of_the_rows(connection, statement):
    for table in TABLES:
        told = records(connection.getMetaData().getColumns("tpch", "public", table, None))
        shape = statement.executeQuery(f"SELECT * FROM {table} LIMIT 1").getMetaData()
        columns = range(1, shape.getColumnCount() + 1)
        assert [row["COLUMN_NAME"] for row in told] == [shape.getColumnLabel(column) for column in columns]
        assert [row["DATA_TYPE"] for row in told] == [shape.getColumnType(column) for column in columns]


NATION = ("tpch", "public", "nation")


def test_there_are_no_keys_and_that_is_no_error(connection):
    # The driver gives a result without rows no columns either, whatever the server's schema is.
    metadata = connection.getMetaData()
    for result in (
        metadata.getPrimaryKeys(*NATION),
        metadata.getImportedKeys(*NATION),
        metadata.getExportedKeys(*NATION),
        metadata.getCrossReference(*NATION, "tpch", "public", "region"),
    ):
        assert records(result) == []


def test_what_the_driver_answers_itself_is_empty(connection):
    metadata = connection.getMetaData()
    for result, column in (
        (metadata.getTypeInfo(), "TYPE_NAME"),
        (metadata.getFunctions(None, None, "%"), "FUNCTION_NAME"),
        (metadata.getFunctionColumns(None, None, "%", "%"), "COLUMN_NAME"),
        (metadata.getProcedures(None, None, "%"), "PROCEDURE_NAME"),
        (metadata.getProcedureColumns(None, None, "%", "%"), "COLUMN_NAME"),
        (metadata.getIndexInfo(*NATION, False, False), "INDEX_NAME"),
        (metadata.getBestRowIdentifier(*NATION, 1, False), "COLUMN_NAME"),
        (metadata.getVersionColumns(*NATION), "COLUMN_NAME"),
        (metadata.getTablePrivileges(None, None, "%"), "PRIVILEGE"),
        (metadata.getColumnPrivileges(None, None, "nation", "%"), "PRIVILEGE"),
        (metadata.getUDTs(None, None, "%", None), "TYPE_NAME"),
        (metadata.getSuperTables(None, None, "%"), "SUPERTABLE_NAME"),
        (metadata.getSuperTypes(None, None, "%"), "SUPERTYPE_NAME"),
        (metadata.getAttributes(None, None, "%", "%"), "ATTR_NAME"),
        (metadata.getPseudoColumns(None, None, "%", "%"), "COLUMN_NAME"),
        (metadata.getClientInfoProperties(), "NAME"),
    ):
        assert result.findColumn(column) > 0
        assert rows(result) == []


# --- statements ------------------------------------------------------------------------------------------------------


def test_execute_and_execute_query_agree(statement):
    assert statement.execute("SELECT n_name FROM nation WHERE n_nationkey = 7")
    assert rows(statement.getResultSet()) == [("GERMANY",)]
    assert ask(statement, "SELECT n_name FROM nation WHERE n_nationkey = 7") == [("GERMANY",)]


def test_ddl_and_settings_are_updates(connection, statement, name):
    assert statement.executeUpdate(f"CREATE VIEW {name} AS SELECT n_name FROM nation WHERE n_regionkey = 3") == 0
    try:
        assert ask(statement, f"SELECT count(*) FROM {name}") == [(5,)]
        found = records(connection.getMetaData().getTables(None, "public", name.replace("_", "\\_"), ["VIEW"]))
        assert [(row["TABLE_NAME"], row["TABLE_TYPE"]) for row in found] == [(name, "VIEW")]
        # `execute` learns from the server which kind a statement is.
        assert not statement.execute("SET datafusion.execution.batch_size = 8192")
        assert statement.getUpdateCount() == 0
        assert statement.getResultSet() is None
    finally:
        assert not statement.execute(f"DROP VIEW {name}")
    assert statement.getUpdateCount() == 0


def test_a_table_that_is_made_answers_with_its_rows(connection, statement, refusal, name):
    made = f"CREATE TABLE {name} AS SELECT n_name, n_regionkey FROM nation WHERE n_regionkey = 3"
    assert statement.executeUpdate(made) == 5
    try:
        assert ask(statement, f"SELECT count(*) FROM {name} JOIN region ON n_regionkey = r_regionkey") == [(5,)]
        found = records(connection.getMetaData().getTables(None, "public", name.replace("_", "\\_"), ["TABLE"]))
        assert [(row["TABLE_NAME"], row["TABLE_TYPE"]) for row in found] == [(name, "TABLE")]
        assert "already exists" in refusal(lambda: statement.executeUpdate(made))
    finally:
        assert statement.executeUpdate(f"DROP TABLE {name}") == 0


def test_an_update_is_not_a_query(connection, statement, refusal, name):
    statement.executeUpdate(f"CREATE VIEW {name} AS SELECT 1 AS one")
    text = refusal(lambda: statement.executeQuery(f"DROP VIEW {name}"))
    assert "did not return a result set" in text, text
    statement.executeUpdate(f"DROP VIEW IF EXISTS {name}")
    still_answers(connection)


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED.keys())
def test_a_statement_that_no_client_may_run_is_refused(sql, connection, statement, refusal, name):
    sql = sql.format(name=name)
    for call in (statement.executeQuery, statement.execute, statement.executeUpdate):
        text = within(20, lambda: refusal(lambda: call(sql)))
        assert "Thread" not in text and "Exception: " in text
    assert ask(statement, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("what", SCHEMAS)
def test_every_shape_of_schema_is_read(what, statement, connect):
    result = statement.executeQuery(SCHEMAS[what])
    shape = result.getMetaData()
    assert shape.getColumnCount() > 0
    assert all(shape.getColumnTypeName(column) for column in range(1, shape.getColumnCount() + 1))
    rows(result)


def test_an_empty_result_has_its_columns(statement):
    result = statement.executeQuery("SELECT n_name, n_nationkey FROM nation WHERE n_nationkey < 0")
    shape = result.getMetaData()
    assert [shape.getColumnName(column) for column in (1, 2)] == ["n_name", "n_nationkey"]
    assert not result.next()


def test_a_prepared_statement_runs_again_and_again(connection, refusal):
    prepared = connection.prepareStatement("SELECT n_name FROM nation ORDER BY n_name LIMIT 2")
    assert prepared.getParameterMetaData().getParameterCount() == 0
    assert prepared.getMetaData().getColumnName(1) == "n_name"
    for _ in range(5):
        assert rows(prepared.executeQuery()) == [("ALGERIA",), ("ARGENTINA",)]
    prepared.close()
    assert "closed" in refusal(prepared.executeQuery).lower()
    still_answers(connection)


def test_a_statement_with_parameters_is_refused_with_a_sentence(connection, refusal):
    text = refusal(lambda: connection.prepareStatement("SELECT n_name FROM nation WHERE n_nationkey = ?"))
    assert "parameters" in text, text
    still_answers(connection)


def test_a_statement_is_used_again(connection, statement):
    for number in range(20):
        assert ask(statement, f"SELECT {number}") == [(number,)]
    # A new query closes the result of the one before.
    first = statement.executeQuery("SELECT n_name FROM nation")
    assert first.next()
    assert ask(statement, "SELECT 1") == [(1,)]
    assert first.isClosed()


def test_two_statements_are_read_in_turns(connection):
    one, two = connection.createStatement(), connection.createStatement()
    left = one.executeQuery("SELECT n_nationkey FROM nation ORDER BY 1")
    right = two.executeQuery("SELECT n_nationkey FROM nation ORDER BY 1 DESC")
    for number in range(25):
        assert left.next() and right.next()
        assert (left.getLong(1), right.getLong(1)) == (number, 24 - number)
    assert not left.next() and not right.next()


def test_the_number_of_rows_can_be_bounded(statement):
    statement.setMaxRows(3)
    statement.setFetchSize(10)
    assert len(ask(statement, "SELECT n_name FROM nation")) == 3
    statement.setMaxRows(0)
    assert len(ask(statement, "SELECT n_name FROM nation")) == 25


def test_a_query_within_its_timeout_is_answered(statement):
    statement.setQueryTimeout(DEADLINE)
    assert statement.getQueryTimeout() == DEADLINE
    assert ask(statement, "SELECT count(*) FROM lineitem") == [(60_175,)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT no_such_column FROM nation", "no_such_column"),
        ("SELECT * FROM no_such_table", "no_such_table"),
        ("SELECT no_such_function(1)", "no_such_function"),
    ],
)
def test_a_query_that_cannot_be_planned_says_what_is_wrong(sql, expected, connection, statement, refusal):
    text = refusal(lambda: ask(statement, sql))
    assert text.startswith("java.sql.SQLException: ")
    # The driver repeats the statement; what the server said comes after it.
    assert expected in text.split(f'"{sql}": ', 1)[1].splitlines()[0], text
    assert ask(statement, "SELECT 1") == [(1,)]


def test_a_query_that_fails_while_it_runs_says_what_is_wrong(connection, statement, refusal):
    text = refusal(lambda: ask(statement, "SELECT CAST(n_name AS INT) FROM nation"))
    assert text.startswith("java.sql.SQLException: ")
    assert "ALGERIA" in text and "Int32" in text, text
    assert ask(statement, "SELECT 1") == [(1,)]
    still_answers(connection)


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1;", [(1,)]),
        ("-- a comment\nSELECT 1", [(1,)]),
        ("/* a comment */ SELECT 1 -- another", [(1,)]),
        ("SELECT 1 ; -- the end", [(1,)]),
        ("SELECT 'keep alive'", [("keep alive",)]),
    ],
)
def test_a_semicolon_and_comments_are_fine(sql, expected, statement):
    assert ask(statement, sql) == expected


def test_what_tableau_asks_first_is_answered(connection, statement):
    sql = 'CREATE LOCAL TEMPORARY TABLE "#Tableau_1_Connect" ("COL" INTEGER) ON COMMIT PRESERVE ROWS'
    assert statement.executeUpdate(sql) == 0
    assert ask(statement, 'SELECT "COL" FROM "#Tableau_1_Connect"') == []
    assert statement.executeUpdate('DROP TABLE "#Tableau_1_Connect"') == 0
    assert ask(statement, 'SELECT "t"."r_name" AS "a" FROM "public"."region" "t" LIMIT 1') != []
    sql = 'SELECT "region"."r_name" AS "r_name" FROM "tpch"."public"."region" "region" GROUP BY 1'
    assert len(ask(statement, sql)) == 5
    assert ask(statement, 'SELECT SUM(1) AS "COL" FROM (SELECT 1 AS "one") "CHECK" HAVING COUNT(1) > 0') == [(1,)]


def test_what_dbeaver_asks_first_is_answered(connection, statement):
    """BI-07: DBeaver's and DataGrip's start-up statements and trees."""
    metadata = connection.getMetaData()
    assert ask(statement, "SELECT 'keep alive'") == [("keep alive",)]
    assert "DataFusion" in ask(statement, "SELECT VERSION()")[0][0]
    assert len(ask(statement, 'SELECT * FROM "region" LIMIT 200')) == 5
    assert "public" in {row["TABLE_SCHEM"] for row in records(metadata.getSchemas())}
    assert len(records(metadata.getColumns(None, "public", "%", "%"))) >= 61


# --- types -----------------------------------------------------------------------------------------------------------

# expression: (JDBC type, its name, `getString`). Unsigned integers are signed ones in the driver, and it has no
# precision, no class and no nullability for a column of a result.
SHOWN = {
    "arrow_cast(-8, 'Int8')": (Types.TINYINT, "TINYINT", "-8"),
    "arrow_cast(-16, 'Int16')": (Types.SMALLINT, "SMALLINT", "-16"),
    "arrow_cast(-32, 'Int32')": (Types.INTEGER, "INTEGER", "-32"),
    "-9223372036854775807": (Types.BIGINT, "BIGINT", "-9223372036854775807"),
    "arrow_cast(127, 'UInt8')": (Types.TINYINT, "TINYINT", "127"),
    "arrow_cast(65535, 'UInt16')": (Types.SMALLINT, "SMALLINT", "65535"),
    "arrow_cast(2147483647, 'UInt32')": (Types.INTEGER, "INTEGER", "2147483647"),
    "arrow_cast('18446744073709551615', 'UInt64')": (Types.BIGINT, "BIGINT", "18446744073709551615"),
    "CAST(1.5 AS REAL)": (Types.FLOAT, "FLOAT", "1.5"),
    "CAST(2.25 AS DOUBLE)": (Types.DOUBLE, "DOUBLE", "2.25"),
    "CAST('12.34' AS DECIMAL(10, 2))": (Types.DECIMAL, "DECIMAL", "12.34"),
    "CAST('123456789012345678901234567890123456789.5' AS DECIMAL(50, 1))": (
        Types.DECIMAL,
        "DECIMAL",
        "123456789012345678901234567890123456789.5",
    ),
    "true": (Types.BOOLEAN, "BOOLEAN", "true"),
    "'grüße'": (Types.VARCHAR, "VARCHAR", "grüße"),
    "''": (Types.VARCHAR, "VARCHAR", ""),
    "arrow_cast('view', 'Utf8View')": (Types.VARCHAR, "VARCHAR", "view"),
    "arrow_cast('large', 'LargeUtf8')": (Types.LONGVARCHAR, "LONGVARCHAR", "large"),
    "arrow_cast('dict', 'Dictionary(Int32, Utf8)')": (Types.VARCHAR, "VARCHAR", "dict"),
    "arrow_cast('viewdict', 'Dictionary(Int8, Utf8View)')": (Types.VARCHAR, "VARCHAR", "viewdict"),
    "DATE '2024-02-29'": (Types.DATE, "DATE", "2024-02-29"),
    "arrow_cast(DATE '2024-02-29', 'Date64')": (Types.DATE, "DATE", "2024-02-29"),
    "TIME '12:34:56'": (Types.TIME, "TIME", "12:34:56"),
    "TIMESTAMP '2024-02-29 12:34:56'": (Types.TIMESTAMP, "TIMESTAMP", "2024-02-29 12:34:56.0"),
    "arrow_cast(TIMESTAMP '2024-02-29 12:34:56', 'Timestamp(Second, None)')": (
        Types.TIMESTAMP,
        "TIMESTAMP",
        "2024-02-29 12:34:56.0",
    ),
    "INTERVAL '1 month 2 days 3 seconds'": (Types.JAVA_OBJECT, "JAVA_OBJECT", "P1M2DT3S"),
    "arrow_cast(5, 'Duration(Second)')": (Types.JAVA_OBJECT, "JAVA_OBJECT", "PT5S"),
    "make_array(1, 2, NULL)": (Types.ARRAY, "ARRAY", "[1,2,null]"),
    "arrow_cast(make_array(1, 2), 'LargeList(Int64)')": (Types.ARRAY, "ARRAY", "[1,2]"),
    "make_array(arrow_cast('in', 'Utf8View'))": (Types.ARRAY, "ARRAY", '["in"]'),
    "named_struct('a', 1, 'b', arrow_cast('in', 'Utf8View'))": (Types.JAVA_OBJECT, "JAVA_OBJECT", '{"a":1,"b":"in"}'),
    "MAP {'k': 1}": (Types.JAVA_OBJECT, "JAVA_OBJECT", '{"k":1}'),
    "NULL": (Types.NULL, "NULL", None),
    "CAST(NULL AS INT)": (Types.INTEGER, "INTEGER", None),
}

BYTES = {
    "X'00FF'": Types.VARBINARY,
    "arrow_cast(X'00FF', 'BinaryView')": Types.VARBINARY,
    "arrow_cast(X'00FF', 'LargeBinary')": Types.LONGVARBINARY,
    "arrow_cast(X'00FF', 'FixedSizeBinary(2)')": Types.BINARY,
}


def first_row(statement, sql):
    result = statement.executeQuery(sql)
    assert result.next()
    return result


@pytest.mark.parametrize("expression", SHOWN)
def test_a_value_of_each_type_is_shown(expression, statement, received):
    code, type_name, text = SHOWN[expression]
    result = first_row(statement, f"SELECT {expression} AS x")
    shape = result.getMetaData()
    assert (shape.getColumnLabel(1), shape.getColumnType(1), shape.getColumnTypeName(1)) == ("x", code, type_name)
    assert received.keep(expression, str(result.getString(1))) == str(text)
    value = result.getObject(1)
    assert (value is None, result.wasNull()) == (text is None, text is None)


@pytest.mark.parametrize("expression", BYTES)
def test_bytes_of_each_type_come_whole(expression, statement):
    result = first_row(statement, f"SELECT {expression} AS x")
    assert result.getMetaData().getColumnType(1) == BYTES[expression]
    assert bytes(result.getBytes(1)) == bytes(result.getObject(1)) == b"\x00\xff"


def test_the_types_of_the_other_suites_are_all_covered():
    unsigned = {expression for expression in TYPES if "'UInt8'" in expression or "'UInt32'" in expression}
    zoned = {expression for expression in TYPES if "+00:00" in expression}
    assert (len(unsigned), len(zoned)) == (2, 1)
    assert set(TYPES) - unsigned - zoned <= set(SHOWN) | set(BYTES)


def test_numbers_come_by_every_getter(statement):
    result = first_row(statement, "SELECT 42 AS i, CAST('12.34' AS DECIMAL(10, 2)) AS d, CAST(2.25 AS DOUBLE) AS f")
    assert (result.getInt("i"), result.getLong(1), result.getShort(1), result.getByte(1)) == (42, 42, 42, 42)
    assert result.getBigDecimal("d").toPlainString() == "12.34"
    assert (result.getDouble("f"), result.getFloat(3), result.getDouble("d")) == (2.25, 2.25, 12.34)
    assert jvm.plain(result.getObject("d")) == decimal.Decimal("12.34")


def test_dates_and_times_come_by_every_getter(statement):
    result = first_row(
        statement, "SELECT DATE '2024-02-29' AS d, TIME '12:34:56' AS t, TIMESTAMP '2024-07-01 12:34:56.789' AS ts"
    )
    assert result.getDate("d").toString() == "2024-02-29"
    assert result.getTime("t").toString() == "12:34:56"
    # A timestamp without a zone is the same clock in every zone.
    assert result.getTimestamp("ts").toString() == "2024-07-01 12:34:56.789"
    assert result.getTimestamp("ts").toLocalDateTime().toString() == "2024-07-01T12:34:56.789"
    assert result.getDate("ts").toString() == "2024-07-01"


def test_a_timestamp_with_a_zone_is_a_point_in_time(statement):
    sql = "SELECT arrow_cast('2024-02-29T12:34:56Z', 'Timestamp(Microsecond, Some(\"+00:00\"))') AS x"
    result = first_row(statement, sql)
    assert result.getTimestamp(1).toInstant().toString() == "2024-02-29T12:34:56Z"
    if VERSION == "18.2.0":
        # It has no such type yet.
        assert result.getMetaData().getColumnType(1) == Types.TIMESTAMP
        return
    assert result.getMetaData().getColumnType(1) == Types.TIMESTAMP_WITH_TIMEZONE
    for kind in ("java.time.OffsetDateTime", "java.time.Instant"):
        assert result.getObject(1, jpype.JClass(kind).class_).toString() == "2024-02-29T12:34:56Z"


def test_lists_structs_and_maps_are_objects(statement):
    result = first_row(
        statement, "SELECT make_array(1, 2, NULL) AS a, named_struct('a', 1, 'b', 'x') AS s, MAP {'k': 1} AS m"
    )
    assert [jvm.plain(item) for item in result.getArray("a").getArray()] == [1, 2, None]
    struct = result.getObject("s")
    assert (jvm.plain(struct.get("a")), str(struct.get("b"))) == (1, "x")
    assert str(result.getObject("m")) == '{"k":1}'


# --- much ------------------------------------------------------------------------------------------------------------


def test_a_whole_table_is_the_one_that_adbc_reads(gate, statement):
    sql = "SELECT * FROM lineitem ORDER BY l_orderkey, l_linenumber"
    ours = ask(statement, sql)
    with gate.adbc() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        theirs = cursor.fetchall()
    assert len(ours) == len(theirs) == 60_175
    assert ours == theirs


def test_a_million_rows_arrive_each_once(statement):
    sql = "SELECT a.value * 1000 + b.value AS n FROM generate_series(0, 999) a CROSS JOIN generate_series(0, 999) b"
    result = statement.executeQuery(sql)
    count = total = 0
    while result.next():
        count += 1
        total += result.getLong(1)
    assert (count, total) == (1_000_000, 999_999 * 500_000)


def test_a_cell_of_ten_mebibytes_arrives(statement):
    ((cell,),) = ask(statement, f"SELECT repeat('x', {10 << 20}) AS x")
    assert (len(cell), set(cell)) == (10 << 20, {"x"})


# --- stopping --------------------------------------------------------------------------------------------------------


def test_a_result_that_is_closed_early_leaves_the_connection_usable(gate, connection, statement):
    result = statement.executeQuery(LARGE)
    assert result.next()
    within(10, result.close)
    assert ask(statement, "SELECT 1") == [(1,)]
    still_answers(connection)
    idle(gate)


def test_a_statement_that_is_cancelled_while_it_is_read_ends(gate, connection, statement, refusal):
    result = statement.executeQuery(LARGE)
    assert result.next()
    within(10, statement.cancel)
    text = within(10, lambda: refusal(lambda: rows(result)))
    assert "cancel" in text.lower(), text
    still_answers(connection)
    idle(gate)


def test_a_connection_that_is_closed_while_a_result_is_read_stops_the_work(gate, connect, refusal):
    connection = DriverManager.getConnection(address(gate))
    assert connection.createStatement().executeQuery(LARGE).next()
    # The driver complains of what it had not been asked to free, and closes all the same.
    assert "clean up" in within(20, lambda: refusal(connection.close))
    still_answers(connect())
    idle(gate)


@pytest.mark.embedded
@pytest.mark.late
def test_a_thread_that_is_interrupted_in_a_query_stops_the_work(gate, connect, received):
    # The driver's own `cancel` and query timeout wait for the end of GetFlightInfo, as it is they who hold the lock;
    # an interrupt is what reaches a call that is under way.
    connection = connect()
    running, ended = threading.Event(), []

    def run():
        thread.append(jpype.JClass("java.lang.Thread").currentThread())
        statement = connection.createStatement()
        running.set()
        try:
            ended.append(ask(statement, ENDLESS))
        except SQLException as error:
            ended.append(received.keep("interrupted", jvm.exception_text(error)))

    thread = []
    worker = threading.Thread(target=run, daemon=True)
    before = gate.processor_seconds()
    worker.start()
    assert running.wait(DEADLINE)
    # It is on the cluster once it costs something.
    until = time.monotonic() + DEADLINE
    while gate.processor_seconds() - before < 1 and time.monotonic() < until:
        time.sleep(0.1)
    assert worker.is_alive(), ended
    thread[0].interrupt()
    worker.join(DEADLINE)
    assert not worker.is_alive()
    assert "interrupted" in ended[0], ended
    still_answers(connect())
    idle(gate)


# --- crowds ----------------------------------------------------------------------------------------------------------


def test_a_pool_of_four_serves_sixteen_threads(gate):
    config = jpype.JClass("com.zaxxer.hikari.HikariConfig")()
    config.setJdbcUrl(address(gate))
    config.setMaximumPoolSize(4)
    config.setConnectionTimeout(DEADLINE * 1000)
    pool = jpype.JClass("com.zaxxer.hikari.HikariDataSource")(config)
    identity = jpype.JClass("java.lang.System").identityHashCode
    driver = jpype.JClass("org.apache.arrow.driver.jdbc.ArrowFlightConnection").class_
    used = collections.Counter()

    def client(number):
        for turn in range(25):
            with pool.getConnection() as connection:
                used[identity(connection.unwrap(driver))] += 1
                with connection.createStatement() as statement:
                    mine = number * 100 + turn
                    assert ask(statement, f"SELECT {mine}") == [(mine,)]
                    if turn % 5 == 0:
                        sql = f"SELECT count(*) FROM nation WHERE n_nationkey >= {number}"
                        assert ask(statement, sql) == [(25 - number,)]

    try:
        with concurrent.futures.ThreadPoolExecutor(16) as threads:
            list(threads.map(client, range(16), timeout=5 * DEADLINE))
        # Every connection was used again and again, and all were given back.
        assert 1 <= len(used) <= 4 and sum(used.values()) == 400
        state = pool.getHikariPoolMXBean()
        assert (state.getActiveConnections(), state.getThreadsAwaitingConnection()) == (0, 0)
        assert state.getTotalConnections() <= 4
    finally:
        within(20, pool.close)
    assert pool.isClosed()


def test_one_connection_serves_several_threads(connection):
    def client(number):
        with connection.createStatement() as statement:
            return ask(statement, f"SELECT n_nationkey FROM nation WHERE n_nationkey = {number}")

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(client, range(24), timeout=5 * DEADLINE)) == [[(number,)] for number in range(24)]


# --- TPC-H -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ORDER)
def test_jdbc_and_the_other_engine_agree_on_query(number, tpch, statement, received):  # noqa: F811 (the fixture)
    sql, names, expected = tpch[number]
    result = statement.executeQuery(sql)
    shape = result.getMetaData()
    compare_names(names, [shape.getColumnLabel(column) for column in range(1, shape.getColumnCount() + 1)])
    found = rows(result)
    received.keep(f"answer {number}", repr(found[:5]))
    compare(number, expected, found)


def test_values_are_those_of_python():
    box = jpype.JObject
    assert jvm.plain(box(7, jpype.JClass("java.lang.Long"))) == 7
    assert jvm.plain(jpype.JClass("java.sql.Date").valueOf("2024-02-29")) == datetime.date(2024, 2, 29)
    assert jvm.plain(jpype.JClass("java.math.BigDecimal")("1.50")) == decimal.Decimal("1.50")
    assert jvm.plain(None) is None
