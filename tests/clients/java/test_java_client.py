"""Java's `FlightSqlClient`, on which connectors and other drivers stand, in a Java machine.

PORTCULLIS_FLIGHT_SQL_JARS is the class path and PORTCULLIS_VARIANT the version. Says what a Java program sees that asks
each thing of the protocol by itself. Must not use a client of another language to judge.
"""

import os
import threading
import time

import jpype
import pytest

import jvm
from conftest import DEADLINE, RECEIVED, within
from queries import ENDLESS, TABLES
from recorder import Recorder

jvm.start(os.environ["PORTCULLIS_FLIGHT_SQL_JARS"].split(os.pathsep))

ARROW = "org.apache.arrow"
FLIGHT = f"{ARROW}.flight"

FlightInfo = jpype.JClass(f"{FLIGHT}.FlightInfo")
FlightClient = jpype.JClass(f"{FLIGHT}.FlightClient")
FlightSqlClient = jpype.JClass(f"{FLIGHT}.sql.FlightSqlClient")
FlightRuntimeException = jpype.JClass(f"{FLIGHT}.FlightRuntimeException")
Location = jpype.JClass(f"{FLIGHT}.Location")
CallOption = jpype.JClass(f"{FLIGHT}.CallOption")
CallOptions = jpype.JClass(f"{FLIGHT}.CallOptions")
SqlInfo = jpype.JClass(f"{FLIGHT}.sql.impl.FlightSql$SqlInfo")
TableRef = jpype.JClass(f"{FLIGHT}.sql.util.TableRef")
TimeUnit = jpype.JClass("java.util.concurrent.TimeUnit")

# From the comments of FlightSql.proto, by way of the constants of this client.
SCHEMAS = FlightSqlClient.class_.getClassLoader().loadClass(f"{FLIGHT}.sql.FlightSqlProducer$Schemas")


class Client:
    """A Flight SQL client of Java with its credential and a deadline on every call."""

    def __init__(self, gate, *, token=None, ca=None, port=None):
        self.allocator = jpype.JClass(f"{ARROW}.memory.RootAllocator")()
        trusted = jpype.JClass("java.io.ByteArrayInputStream")(jpype.JArray(jpype.JByte)((ca or gate.ca).encode()))
        location = Location.forGrpcTls(gate.host, port or gate.port)
        self.flight = FlightClient.builder(self.allocator, location).trustedCertificates(trusted).build()
        self.sql = FlightSqlClient(self.flight)
        self.token = gate.token if token is None else token

    def options(self, seconds=DEADLINE):
        options = [CallOptions.timeout(seconds, TimeUnit.SECONDS)]
        if self.token:
            writer = jpype.JClass(f"{FLIGHT}.grpc.CredentialCallOption")(
                jpype.JClass(f"{FLIGHT}.auth2.BearerCredentialWriter")(self.token)
            )
            options.append(writer)
        return jpype.JArray(CallOption)(options)

    def call(self, name, *arguments, seconds=DEADLINE):
        """A method of the client by its name, as all take the options last."""
        result = getattr(self.sql, name)(*arguments, self.options(seconds))
        if isinstance(result, FlightInfo):
            RECEIVED.keep(name, bytes(result.serialize().array()))
            for endpoint in result.getEndpoints():
                RECEIVED.keep(f"{name} ticket", bytes(endpoint.getTicket().getBytes()))
        return result

    def read(self, info):
        """The rows of a FlightInfo as dictionaries, and the schema of its stream."""
        found, schema = [], None
        for endpoint in info.getEndpoints():
            with self.sql.getStream(endpoint.getTicket(), self.options()) as stream:
                schema = stream.getSchema()
                while stream.next():
                    root = stream.getRoot()
                    vectors = root.getFieldVectors()
                    names = [vector.getName() for vector in vectors]
                    for row in range(root.getRowCount()):
                        found.append(dict(zip(names, [value(vector.getObject(row)) for vector in vectors])))
                RECEIVED.keep("schema", bytes(schema.serializeAsMessage()))
        RECEIVED.keep("rows", repr(found[:100]))
        return found, schema

    def close(self):
        self.sql.close()
        # Fails where a result was not freed.
        self.allocator.close()


def value(found):
    return str(found) if found is not None and found.getClass().getName().endswith(".Text") else jvm.plain(found)


@pytest.fixture(scope="session", autouse=True)
def ending(request):
    jvm.end_at_once(request.session)


@pytest.fixture
def client(gate):
    client = Client(gate)
    yield client
    client.close()


@pytest.fixture
def refusal(received, request):
    """`refusal(call)` returns the status and the sentence with which `call` was refused."""

    def refused(call):
        try:
            call()
        except FlightRuntimeException as error:
            received.keep(request.node.name, jvm.exception_text(error))
            return str(error.status().code().name()), str(error.getMessage())
        pytest.fail(f"{request.node.name}: was not refused")

    return refused


def rows(client, info):
    return client.read(info)[0]


def still_answers(client):
    info = client.call("execute", "SELECT count(*) AS n FROM nation")
    assert rows(client, info) == [{"n": 25}]


def kinds(*names):
    return jpype.JClass("java.util.Arrays").asList(jpype.JArray(jpype.JClass("java.lang.String"))(names))


def schema_constant(name):
    return SCHEMAS.getField(name).get(None)


# --- connecting ------------------------------------------------------------------------------------------------------


def test_a_bearer_token_over_tls_is_enough_to_select_one(client):
    assert rows(client, client.call("execute", "SELECT 1 AS one")) == [{"one": 1}]


def test_a_bad_token_and_none_are_unauthenticated(gate, client, refusal):
    still_answers(client)
    for token in (gate.token[:-4] + "AAAA", ""):
        other = Client(gate, token=token)
        try:
            status, text = refusal(lambda: other.call("execute", "SELECT 1"))
            assert status == "UNAUTHENTICATED" and "credential" in text
            assert gate.token not in text
        finally:
            other.close()


def test_what_the_client_sends_is_a_call_for_each_thing(gate):
    with Recorder(gate) as proxy:
        client = Client(gate, ca=proxy.ca, port=proxy.port)
        try:
            assert rows(client, client.call("execute", "SELECT 1 AS one")) == [{"one": 1}]
            prepared = client.call("prepare", "SELECT 1 AS one")
            assert rows(client, prepared.execute(client.options())) == [{"one": 1}]
            prepared.close(client.options())
            assert len(rows(client, client.call("getTableTypes"))) >= 2
        finally:
            client.close()
        assert proxy.calls == [
            "GetFlightInfo CommandStatementQuery",
            "DoGet",
            "DoAction CreatePreparedStatement",
            "GetFlightInfo CommandPreparedStatementQuery",
            "DoGet",
            "DoAction ClosePreparedStatement",
            "GetFlightInfo CommandGetTableTypes",
            "DoGet",
        ]


# --- statements ------------------------------------------------------------------------------------------------------


def test_one_endpoint_without_a_location_and_one_schema_everywhere(client):
    sql = "SELECT n_nationkey, n_name FROM nation ORDER BY 1"
    info = client.call("execute", sql)
    assert info.getEndpoints().size() == 1
    endpoint = info.getEndpoints().get(0)
    assert endpoint.getLocations().size() == 0
    found, schema = client.read(info)
    assert [row["n_nationkey"] for row in found] == list(range(25))
    declared = client.call("getExecuteSchema", sql).getSchema()
    assert schema.equals(info.getSchema()) and schema.equals(declared)


def test_an_empty_result_has_its_schema(client):
    found, schema = client.read(client.call("execute", "SELECT n_name FROM nation WHERE n_nationkey < 0"))
    assert found == []
    assert [field.getName() for field in schema.getFields()] == ["n_name"]


def test_a_large_result_is_complete(client):
    info = client.call("execute", "SELECT l_orderkey, l_linenumber FROM lineitem")
    found = {(row["l_orderkey"], row["l_linenumber"]) for row in rows(client, info)}
    assert len(found) == 60_175


def test_a_prepared_statement_runs_again_and_closes_twice(client):
    prepared = client.call("prepare", "SELECT n_name FROM nation ORDER BY 1 LIMIT 1")
    assert [field.getName() for field in prepared.getResultSetSchema().getFields()] == ["n_name"]
    assert prepared.getParameterSchema().getFields().size() == 0
    assert prepared.fetchSchema(client.options()).getSchema().equals(prepared.getResultSetSchema())
    for _ in range(3):
        assert rows(client, prepared.execute(client.options())) == [{"n_name": "ALGERIA"}]
    prepared.close(client.options())
    prepared.close(client.options())
    still_answers(client)


def test_a_prepared_update_answers(client, name):
    for sql in (f"CREATE VIEW {name} AS SELECT 1 AS one", f"DROP VIEW {name}"):
        prepared = client.call("prepare", sql)
        assert prepared.getResultSetSchema().getFields().size() == 0
        assert within(20, lambda: prepared.executeUpdate(client.options())) in (0, -1)
        prepared.close(client.options())
    still_answers(client)


def test_an_update_that_leaves_its_stream_open_is_answered_and_does_not_hang(client, name):
    # The client reads the answer before it half-closes: a server that waits for the end of the stream never answers.
    for sql in (f"CREATE VIEW {name} AS SELECT 1 AS one", f"DROP VIEW {name}"):
        assert within(5, lambda: client.call("executeUpdate", sql, seconds=5)) in (0, -1)
    still_answers(client)


def test_an_update_that_leaves_its_stream_open_is_refused_and_does_not_hang(client, refusal):
    for sql in ("INSERT INTO region VALUES (99, 'X', 'x')", "DROP TABLE region"):
        status, text = within(5, lambda: refusal(lambda: client.call("executeUpdate", sql, seconds=5)))
        assert status in ("INVALID_ARGUMENT", "UNIMPLEMENTED", "UNAUTHORIZED"), (status, text)
    still_answers(client)


@pytest.mark.parametrize(
    ("sql", "status", "expected"),
    [
        ("SELEC 1", "INVALID_ARGUMENT", "SELEC"),
        ("SELECT no_such_column FROM nation", "INVALID_ARGUMENT", "no_such_column"),
        ("SELECT CAST(n_name AS INT) FROM nation", "INVALID_ARGUMENT", "ALGERIA"),
    ],
)
def test_a_query_that_fails_says_what_is_wrong(sql, status, expected, client, refusal):
    found, text = refusal(lambda: rows(client, client.call("execute", sql)))
    assert found == status and expected in text, text
    still_answers(client)


def test_a_table_that_is_not_there_is_not_found(client, refusal):
    status, text = refusal(lambda: client.call("execute", "SELECT * FROM no_such_table"))
    assert status in ("NOT_FOUND", "INVALID_ARGUMENT") and "no_such_table" in text


# --- metadata --------------------------------------------------------------------------------------------------------


METADATA = {
    "getCatalogs": ((), "GET_CATALOGS_SCHEMA"),
    "getSchemas": ((None, None), "GET_SCHEMAS_SCHEMA"),
    "getTables": ((None, None, None, None, True), "GET_TABLES_SCHEMA"),
    "getTables without schemas": ((None, None, None, None, False), "GET_TABLES_SCHEMA_NO_SCHEMA"),
    "getTableTypes": ((), "GET_TABLE_TYPES_SCHEMA"),
    "getSqlInfo": ((), "GET_SQL_INFO_SCHEMA"),
    "getXdbcTypeInfo": ((), "GET_TYPE_INFO_SCHEMA"),
    "getPrimaryKeys": ((TableRef.of("tpch", "public", "nation"),), "GET_PRIMARY_KEYS_SCHEMA"),
    "getImportedKeys": ((TableRef.of("tpch", "public", "nation"),), "GET_IMPORTED_KEYS_SCHEMA"),
    "getExportedKeys": ((TableRef.of("tpch", "public", "nation"),), "GET_EXPORTED_KEYS_SCHEMA"),
    "getCrossReference": (
        (TableRef.of("tpch", "public", "nation"), TableRef.of("tpch", "public", "region")),
        "GET_CROSS_REFERENCE_SCHEMA",
    ),
}


@pytest.mark.parametrize("what", METADATA)
def test_a_question_of_the_metadata_has_the_schema_of_the_specification(what, client):
    arguments, constant = METADATA[what]
    name = what.split(" ")[0]
    if name == "getSqlInfo":
        arguments = (jpype.JArray(SqlInfo)([]),)
    info = client.call(name, *arguments)
    found, schema = client.read(info)
    assert schema.equals(info.getSchema())
    expected = schema_constant(constant)
    if name == "getSqlInfo":
        # What may be null inside the union, and what a map's parts are called, is not specified.
        assert members(schema) == members(expected)
    else:
        assert schema.equals(expected), f"{schema}\n{expected}"
    empty = name in ("getPrimaryKeys", "getImportedKeys", "getExportedKeys", "getCrossReference")
    assert (len(found) == 0) == empty


def members(schema):
    """The columns and the members of the union in order, each with its type."""
    number, union = schema.getFields()
    children = [(child.getName(), str(child.getType().toString())) for child in union.getChildren()]
    return str(number.toString()), union.getName(), str(union.getType().toString()), children


def test_catalogs_schemas_and_tables_are_told_and_filtered(client):
    assert {"catalog_name": "tpch"} in rows(client, client.call("getCatalogs"))
    found = rows(client, client.call("getSchemas", "tpch", "pub%"))
    assert found == [{"catalog_name": "tpch", "db_schema_name": "public"}]
    tables = rows(client, client.call("getTables", "tpch", "public", "%", kinds("TABLE"), False))
    assert set(TABLES) <= {table["table_name"] for table in tables}
    parts = rows(client, client.call("getTables", None, None, "part%", None, False))
    assert [table["table_name"] for table in parts] == ["part", "partsupp"]
    assert rows(client, client.call("getTables", None, None, "%", kinds("NO SUCH TYPE"), False)) == []


def test_the_schema_of_a_table_is_the_schema_of_its_rows(client):
    deserialize = jpype.JClass(f"{ARROW}.vector.ipc.message.MessageSerializer").deserializeSchema
    channel = jpype.JClass(f"{ARROW}.vector.ipc.ReadChannel")
    channels = jpype.JClass("java.nio.channels.Channels")
    stream = jpype.JClass("java.io.ByteArrayInputStream")
    for table in rows(client, client.call("getTables", "tpch", "public", "nation", None, True)):
        schema = jpype.JArray(jpype.JByte)(table["table_schema"])
        told = deserialize(channel(channels.newChannel(stream(schema))))
        real = client.call("getExecuteSchema", f"SELECT * FROM {table['table_name']}").getSchema()
        assert [field.getName() for field in told.getFields()] == [field.getName() for field in real.getFields()]
        assert [field.getType() for field in told.getFields()] == [field.getType() for field in real.getFields()]
        assert all(field.getMetadata().get("ARROW:FLIGHT:SQL:TYPE_NAME") for field in told.getFields())


def test_one_piece_of_information_is_told_by_itself(client):
    asked = jpype.JArray(SqlInfo)([SqlInfo.FLIGHT_SQL_SERVER_NAME, SqlInfo.FLIGHT_SQL_SERVER_READ_ONLY])
    found = rows(client, client.call("getSqlInfo", asked))
    assert [row["info_name"] for row in found] == [0, 3]
    assert found[0]["value"] == "Portcullis"


# --- sessions --------------------------------------------------------------------------------------------------------


def test_session_options_are_set_and_told(client):
    make = jpype.JClass(f"{FLIGHT}.SessionOptionValueFactory").makeSessionOptionValue
    request = jpype.JClass(f"{FLIGHT}.SetSessionOptionsRequest")
    bag = jpype.JClass("java.util.HashMap")()
    bag.put("catalog", make("tpch"))
    result = client.call("setSessionOptions", request(bag))
    assert not result.hasErrors()
    bag.put("catalog", make("no_such_catalog"))
    bag.put("no_such_option", make("x"))
    errors = client.call("setSessionOptions", request(bag)).getErrors()
    assert {str(name): str(errors.get(name).value.name()) for name in errors.keySet()} == {
        "catalog": "INVALID_VALUE",
        "no_such_option": "INVALID_NAME",
    }
    told = client.call("getSessionOptions", jpype.JClass(f"{FLIGHT}.GetSessionOptionsRequest")())
    assert {"catalog", "schema"} <= {str(name) for name in told.getSessionOptions().keySet()}
    still_answers(client)


def test_a_session_can_be_closed_twice(client):
    request = jpype.JClass(f"{FLIGHT}.CloseSessionRequest")
    for _ in range(2):
        status = within(5, lambda: client.call("closeSession", request())).getStatus()
        # The calls of one key share a session, which none of them may close.
        assert str(status.name()) in ("CLOSED", "NOT_CLOSABLE")
    still_answers(client)


# --- what is not built -----------------------------------------------------------------------------------------------


def test_cancelling_by_an_action_is_unimplemented_for_now(client, refusal):
    info = client.call("execute", "SELECT 1 AS one")
    request = jpype.JClass(f"{FLIGHT}.CancelFlightInfoRequest")
    assert refusal(lambda: client.call("cancelFlightInfo", request(info)))[0] == "UNIMPLEMENTED"
    assert refusal(lambda: client.call("cancelQuery", info))[0] == "UNIMPLEMENTED"
    assert rows(client, info) == [{"one": 1}]


def test_transactions_and_savepoints_are_unimplemented(client, refusal):
    assert refusal(lambda: client.call("beginTransaction"))[0] == "UNIMPLEMENTED"
    still_answers(client)


# --- stopping --------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_cancelled_early_leaves_the_client_usable(client):
    info = client.call("execute", "SELECT a.* FROM lineitem a CROSS JOIN (VALUES (1), (2), (3), (4), (5)) AS t(x)")
    stream = client.sql.getStream(info.getEndpoints().get(0).getTicket(), client.options())
    assert stream.next()
    stream.cancel("enough", None)
    stream.close()
    still_answers(client)


@pytest.mark.late
def test_a_query_beyond_the_deadline_of_the_client_times_out_and_its_work_stops(gate, client, refusal):
    assert within(20, lambda: refusal(lambda: client.call("execute", ENDLESS, seconds=2)))[0] == "TIMED_OUT"
    still_answers(client)
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        before = gate.processor_seconds()
        # The measure is of a second of work; what is waited for is that there is none.
        threading.Event().wait(1)
        if gate.processor_seconds() - before < 0.3:
            return
    pytest.fail("the gate's process works on")
