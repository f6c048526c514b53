"""What the C++ and Java Flight SQL clients and the JDBC driver send, as bytes, where pyarrow cannot send it.

A DoPut that is not half-closed, handles that are closed twice, headers of every size. The JDBC driver and Java's client
are run for real by other suites; here is what those cannot vary. Must not depend on a library's idea of the protocol.
"""

import threading

import pyarrow as pa
import pytest

import flightsql_proto as proto
from conftest import within
from queries import SCHEMAS
from wire import (
    EMPTY_SCHEMA,
    METADATA,
    RPCS,
    Http2,
    Wire,
    closed_as,
    descriptor,
    flight_data,
    message_kinds,
    option_errors,
    path,
    schema_of,
    session_options,
    table_of,
    wire_fixture,
)

wire = wire_fixture(agent="JDBC Flight SQL Driver 18.3.0")

CLOSED, NOT_CLOSEABLE = 1, 3
INVALID_NAME, INVALID_VALUE = 1, 2


# --- handshake -------------------------------------------------------------------------------------------------------


def test_a_bearer_handshake_of_one_empty_message_is_good_and_leaves_the_token_in_use(gate, received, wire):
    answer = wire.handshake(b"").good()
    assert answer.header("authorization") == []
    wire.still_answers()
    with Wire(gate, received, authorization="Bearer pk1.no.body") as wrong:
        wrong.handshake(b"").refused("UNAUTHENTICATED")


@pytest.mark.parametrize("encoded", ["YWxpY2U6d29uZGVybGFuZA==", "YWxpY2U6d29uZGVybGFuZA"], ids=["padded", "unpadded"])
def test_a_basic_handshake_is_refused_where_no_scheme_takes_a_password(encoded, gate, received, wire):
    wire.handshake(b"").good()
    with Wire(gate, received, authorization=f"Basic {encoded}") as basic:
        basic.handshake(b"").refused("UNAUTHENTICATED")
        # As a credential of the call itself, too.
        basic.call("GetFlightInfo", descriptor(proto.get_catalogs())).refused("UNAUTHENTICATED")


def test_no_answer_carries_an_authorization_header(wire):
    answers = [
        wire.handshake(b""),
        wire.call("GetFlightInfo", descriptor(proto.get_catalogs())),
        wire.call("GetSchema", descriptor(proto.get_catalogs())),
        wire.call("ListActions", b""),
        wire.call("DoGet", proto.message(proto.get_catalogs())),
        wire.call("DoAction", proto.message("GetSessionOptions", b"")),
        wire.call("DoAction", proto.message("NoSuchAction", b"")),
    ]
    assert [answer.code for answer in answers].count("OK") >= 5
    for answer in answers:
        assert answer.header("authorization") == [], answer.rpc


# --- DoPut that stays open -------------------------------------------------------------------------------------------

RESET = "RESET datafusion.execution.batch_size"
# C++ and Java send a schema without fields behind the descriptor, arrow-rs sends nothing there.
FIRST = {
    "cpp_and_java": lambda command: [flight_data(command, EMPTY_SCHEMA)],
    "rust": lambda command: [flight_data(command)],
    "schema_by_itself": lambda command: [flight_data(command), flight_data(None, EMPTY_SCHEMA)],
}


@pytest.mark.parametrize("first", FIRST)
def test_an_update_is_answered_before_the_client_half_closes(first, wire):
    answer = within(5, lambda: wire.call_held_open("DoPut", *FIRST[first](proto.statement_update(RESET)))).good()
    (result,) = answer.messages
    # PutResult, and in it DoPutUpdateResult: nothing was counted, and an absent number is zero.
    assert proto.first(proto.fields(proto.first(proto.fields(result), 1)), 1, 0) == 0


@pytest.mark.parametrize("first", FIRST)
def test_an_update_that_is_refused_is_refused_before_the_client_half_closes(first, wire):
    wire.call_held_open("DoPut", *FIRST[first](proto.statement_update(RESET))).good()
    for sql in ("INSERT INTO region VALUES (99, 'X', 'x')", "SELECT 1", "no sql at all"):
        put = FIRST[first](proto.statement_update(sql))
        answer = within(5, lambda: wire.call_held_open("DoPut", *put))
        answer.refused("INVALID_ARGUMENT", "PERMISSION_DENIED", "UNIMPLEMENTED")
        assert answer.messages == []
    assert wire.sql("SELECT count(*) AS n FROM region").to_pylist() == [{"n": 5}]


@pytest.mark.parametrize("first", FIRST)
def test_a_prepared_update_is_answered_before_the_client_half_closes(first, wire):
    prepared = wire.prepare(RESET)
    within(5, lambda: wire.call_held_open("DoPut", *FIRST[first](proto.prepared_update(prepared.handle)))).good()
    # JDBC half-closes first; the answer is the same.
    wire.call("DoPut", *FIRST[first](proto.prepared_update(prepared.handle))).good()
    wire.close(prepared.handle)


def test_a_put_without_a_descriptor_is_refused_at_once(wire):
    wire.call_held_open("DoPut", flight_data(proto.statement_update(RESET), EMPTY_SCHEMA)).good()
    for first in (flight_data(None, EMPTY_SCHEMA), b"", proto.message(path("a"), EMPTY_SCHEMA)):
        answer = within(5, lambda: wire.call_held_open("DoPut", first))
        answer.refused("INVALID_ARGUMENT", "UNIMPLEMENTED")


# --- prepared statements ---------------------------------------------------------------------------------------------


def test_a_prepared_select_tells_its_schema_and_is_no_update(wire):
    prepared = wire.prepare("SELECT n_nationkey, n_name FROM nation")
    assert schema_of(prepared.dataset_schema).names == ["n_nationkey", "n_name"]
    assert not prepared.is_update
    assert len(schema_of(prepared.parameter_schema)) == 0 if prepared.parameter_schema else True
    wire.close(prepared.handle)


def test_a_prepared_statement_without_rows_has_no_schema_and_is_an_update(wire, name):
    for sql in (RESET, f"CREATE VIEW {name} AS SELECT 1 AS x"):
        prepared = wire.prepare(sql)
        # An empty schema is what old JDBC drivers go by, field 4 what new ones do.
        assert prepared.dataset_schema == b"" or len(schema_of(prepared.dataset_schema)) == 0
        assert prepared.is_update
        wire.close(prepared.handle)
    # Preparing has not made the view.
    wire.call("GetFlightInfo", descriptor(proto.statement_query(f"SELECT * FROM {name}"))).refused("INVALID_ARGUMENT")


def test_a_handle_is_closed_twice_and_another_time_by_another_connection(gate, received, wire):
    prepared = wire.prepare("SELECT 1 AS x")
    assert wire.query(proto.prepared_query(prepared.handle)).num_rows == 1
    for _ in range(2):
        wire.close(prepared.handle)
    with Wire(gate, received) as other:
        other.close(prepared.handle)


def test_many_handles_are_left_open_as_jdbc_does_when_a_statement_is_used_again(wire):
    handles = [wire.prepare(f"SELECT {number} AS x").handle for number in range(200)]
    assert len(set(handles)) == 200
    for number in (0, 100, 199):
        assert wire.query(proto.prepared_query(handles[number])).to_pylist() == [{"x": number}]


# --- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", METADATA)
def test_the_schema_of_metadata_is_that_of_the_specification_in_all_places(what, wire):
    command, fields = METADATA[what]
    info = wire.info(command)
    streamed = wire.get(info.tickets[0]).schema
    asked = wire.schema(command)
    assert asked.equals(info.schema, check_metadata=True)
    assert streamed.equals(info.schema, check_metadata=True)
    # By the strings too: `equals` of a list does not look at the name of its item's field.
    assert [(field.name, field.type, field.nullable) for field in asked] == [
        (field.name, field.type, field.nullable) for field in fields
    ]


def test_the_schema_of_sql_info_is_one_in_all_places(wire):
    info = wire.info(proto.get_sql_info())
    for schema in (wire.schema(proto.get_sql_info()), wire.get(info.tickets[0]).schema):
        assert schema.equals(info.schema, check_metadata=True)


@pytest.mark.parametrize("query", ["case_without_else", "count_star", "empty", "left_join", "union_of_types", "window"])
def test_the_schema_of_a_query_is_one_to_the_byte_wherever_it_is_told(query, wire):
    prepared = wire.prepare(SCHEMAS[query])
    infos = [wire.info(proto.statement_query(SCHEMAS[query])), wire.info(proto.prepared_query(prepared.handle))]
    asked = [
        proto.first(proto.fields(wire.call("GetSchema", descriptor(command)).good().messages[0]), 1)
        for command in (proto.statement_query(SCHEMAS[query]), proto.prepared_query(prepared.handle))
    ]
    for told in [info.schema_bytes for info in infos] + asked + [prepared.dataset_schema]:
        assert schema_of(told).equals(infos[0].schema, check_metadata=True)
    for info in infos:
        assert wire.get(info.tickets[0]).schema.equals(info.schema, check_metadata=True)


@pytest.mark.parametrize("what", METADATA)
def test_a_metadata_ticket_is_read_by_another_connection_and_twice(what, gate, received, wire):
    (ticket,) = wire.info(METADATA[what][0]).tickets
    first = wire.get(ticket)
    with Wire(gate, received) as other:
        assert other.get(ticket).equals(first)


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_catalog_that_is_there_is_set_and_one_that_is_not_is_an_invalid_value(wire):
    assert option_errors(wire.act("SetSessionOptions", session_options(catalog="tpch"))[0]) == {}
    errors = option_errors(wire.act("SetSessionOptions", session_options(catalog="no_such_catalog"))[0])
    assert errors == {"catalog": INVALID_VALUE}
    # The catalog is the one before, and unqualified names are found in it.
    wire.still_answers()


def test_an_unknown_option_is_an_invalid_name_and_the_others_are_set(wire):
    # The keys and kinds of value of the C++ integration scenario.
    number, real = proto.varint(3 << 3 | 1) + (123).to_bytes(8, "little"), proto.varint(4 << 3 | 1) + bytes(8)
    request = session_options(
        foolong=number,
        bardouble=real,
        lol_invalid="this won't get set",
        big_ol_string_list=proto.field(5, proto.message(["a", "b", "sea", "dee", " ", " ", "geee", "(づ｡◕‿‿◕｡)づ"])),
        flag=proto.field(2, True),
        catalog="tpch",
    )
    errors = option_errors(wire.act("SetSessionOptions", request)[0])
    assert errors == {
        name: INVALID_NAME for name in ("foolong", "bardouble", "lol_invalid", "big_ol_string_list", "flag")
    }
    (told,) = wire.act("GetSessionOptions")
    names = [proto.first(proto.fields(entry), 1).decode() for entry in proto.fields(told)[1]]
    assert "catalog" in names and "foolong" not in names


def test_a_value_of_the_wrong_kind_is_an_invalid_value(wire):
    key = "datafusion.execution.batch_size"
    for value in ("lol_invalid", "0", "-1", ""):
        errors = option_errors(wire.act("SetSessionOptions", session_options(**{key: value}))[0])
        assert errors == {key: INVALID_VALUE}, value
    # An absent value takes an option back.
    assert option_errors(wire.act("SetSessionOptions", session_options(**{key: b""}))[0]) == {}


def test_closing_the_session_of_an_api_key_twice_is_no_error_and_closes_nothing(wire):
    for _ in range(2):
        (body,) = wire.act("CloseSession")
        assert closed_as(body) == NOT_CLOSEABLE
    wire.still_answers()


# --- headers ---------------------------------------------------------------------------------------------------------


def test_a_bearer_of_thirty_kibibytes_is_judged(gate, received, wire):
    wire.still_answers()
    with Wire(gate, received, authorization="Bearer " + "a" * 30 * 1024) as large:
        large.call("GetFlightInfo", descriptor(proto.get_catalogs())).refused("UNAUTHENTICATED")


def test_headers_beyond_the_limit_end_the_call_and_neither_the_connection_nor_the_gate(gate, wire):
    request, credential = (
        descriptor(proto.statement_query("SELECT 1")),
        (b"authorization", b"Bearer " + gate.token.encode()),
    )
    with Http2(gate) as connection:
        assert connection.call(1, "GetFlightInfo", request, credential)["grpc-status"] == "0"
        # 48 KiB beside the credential still fit.
        assert (
            connection.call(3, "GetFlightInfo", request, credential, (b"x-large", b"a" * 48 * 1024))["grpc-status"]
            == "0"
        )
        answer = connection.call(5, "GetFlightInfo", request, credential, (b"x-large", b"a" * 70 * 1024))
        # "Request header fields too large"; there is no gRPC in it, since nobody has read the request.
        assert answer.get(":status") == "431", answer
        assert connection.call(7, "GetFlightInfo", request, credential)["grpc-status"] == "0"
    wire.still_answers()


def test_a_credential_beyond_the_limit_is_refused_in_every_size(gate, received, wire):
    for size in (33, 60, 100, 500):
        with Wire(gate, received, authorization="Bearer " + "a" * size * 1024) as large:
            answer = within(10, lambda: large.call("GetFlightInfo", descriptor(proto.get_catalogs()), timeout=10))
            # Beyond the 64 KiB that the gate announces there is no gRPC in the answer, and far beyond (here 500 KiB)
            # that one connection ends.
            answer.refused(
                *(["UNAUTHENTICATED"] if size < 64 else ["RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"])
            )
        wire.still_answers()


def test_unknown_headers_are_ignored_and_not_logged(gate, received):
    unknown = [("passwrod", "mistypedCppPassword"), ("x-middleware", "expected value"), ("traceparent", "00-1-2-03")]
    with Wire(gate, received, headers=[*unknown, ("data-bin", b"\x00\xff")]) as wire:
        answer = wire.call("GetFlightInfo", descriptor(proto.get_catalogs())).good()
        assert not [key for key, _ in answer.headers + answer.trailers if key in dict(unknown)]
        wire.still_answers()
    assert "mistypedCppPassword" not in gate.output.read_text(errors="replace")


def test_the_headers_of_an_answer_stay_below_eight_kibibytes(wire):
    # JDBC and grpc give up at 8192 bytes, and a message is percent-encoded on the way.
    wide = ", ".join(f"{number} AS a_rather_long_name_of_a_column_{number}" for number in range(500))
    good = [f"SELECT {wide}", "SELECT 1"]
    bad = [
        "SELECT " + "x" * 30_000 + " FROM nation",
        'SELECT "' + "ü" * 8_000 + '" FROM nation',
        'SELECT "' + "%" * 8_000 + '" FROM nation',
        'SELECT "' + "\n" * 8_000 + '" FROM nation',
        'SELECT "' + "\U0001f600" * 8_000 + '" FROM nation',
        "SELECT * FROM " + ".".join(["a" * 3_000] * 3),
        f"SELECT no_such_column FROM (SELECT {wide}) AS t",
        "SELECT '" + "x" * 30_000,
    ]
    for sql in good + bad:
        answer = wire.call("GetFlightInfo", descriptor(proto.statement_query(sql)))
        assert (answer.code == "OK") == (sql in good), f"{sql[:60]}: {answer.code}: {answer.text}"
        assert answer.header_size() < 8192, f"{sql[:60]}: {answer.header_size()} bytes"
        prepared = wire.call("DoAction", proto.message("CreatePreparedStatement", proto.create_prepared(sql)))
        assert prepared.header_size() < 8192, sql[:60]


# --- errors, concurrency, what is not served -------------------------------------------------------------------------


def test_an_error_of_a_stream_arrives_as_trailers_with_a_message(wire):
    info = wire.info(proto.statement_query("SELECT 1 AS x"))
    assert message_kinds(wire.call("DoGet", proto.message(info.tickets[0])).good().messages) == [
        "schema",
        "record batch",
    ]
    # Constants are computed when the ticket is read, so the error comes in mid-stream.
    failing = wire.info(proto.statement_query("SELECT 1 / 0 AS x"))
    answer = wire.call("DoGet", proto.message(failing.tickets[0])).refused("INVALID_ARGUMENT")
    assert "ivide by zero" in answer.text
    # A reset would be told by the client library in its own words.
    assert "RST" not in answer.text
    wire.call("DoGet", proto.message(b"no ticket")).refused("INVALID_ARGUMENT")
    wire.still_answers()


def test_forty_streams_are_open_on_one_connection_at_once(wire):
    sql = "SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_orderkey % 4 = "
    infos = [wire.info(proto.statement_query(f"{sql}{number}")) for number in range(4)]
    calls = [wire.start("DoGet", [proto.message(info.tickets[0])]) for info in infos * 10]
    # Every stream has begun before one is read to its end.
    firsts = [next(call) for call in calls]
    assert message_kinds(firsts) == ["schema"] * 40
    answers = [wire.finish("DoGet", call, [first]).good() for call, first in zip(calls, firsts)]
    rows = [table_of(answer.messages).num_rows for answer in answers]
    assert rows == rows[:4] * 10
    assert sum(rows[:4]) == wire.sql("SELECT count(*) AS n FROM lineitem").to_pylist()[0]["n"]


def test_several_threads_share_a_connection_without_mixing_answers(wire):
    wrong = []

    def ask(number):
        for step in range(10):
            rows = wire.sql(f"SELECT {number * 1000 + step} AS x").to_pylist()
            if rows != [{"x": number * 1000 + step}]:
                wrong.append((number, step, rows))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_every_command_that_is_not_served_is_unimplemented(wire):
    wire.still_answers()
    commands = {
        "unknown": proto.any_message("CommandNoSuch"),
        "of another package": proto.any_message("FetchPartition", prefix="type.googleapis.com/ballista.protobuf."),
        "ingest": proto.any_message("CommandStatementIngest", proto.message(b"", "t")),
    }
    for what, command in commands.items():
        for rpc in ("GetFlightInfo", "GetSchema", "PollFlightInfo"):
            answer = wire.call(rpc, descriptor(command))
            assert answer.refused("UNIMPLEMENTED").rpc == rpc, what
        wire.call_held_open("DoPut", flight_data(command, EMPTY_SCHEMA)).refused("UNIMPLEMENTED")
    wire.call("ListFlights", b"").refused("UNIMPLEMENTED")
    wire.call("DoExchange", flight_data(commands["unknown"])).refused("UNIMPLEMENTED")


def test_the_actions_that_are_listed_work_and_no_other_does(wire):
    listed = {
        proto.first(proto.fields(message), 1).decode() for message in wire.call("ListActions", b"").good().messages
    }
    assert {"CreatePreparedStatement", "ClosePreparedStatement", "SetSessionOptions", "CloseSession"} <= listed
    specified = {
        "BeginSavepoint",
        "BeginTransaction",
        "CancelFlightInfo",
        "CancelQuery",
        "ClosePreparedStatement",
        "CloseSession",
        "CreatePreparedStatement",
        "CreatePreparedSubstraitPlan",
        "EndSavepoint",
        "EndTransaction",
        "GetSessionOptions",
        "RenewFlightEndpoint",
        "SetSessionOptions",
    }
    assert listed <= specified
    for action in sorted(specified | {"NoSuchAction", "", "closesession"}):
        answer = wire.call("DoAction", proto.message(action, b""))
        assert (answer.code == "UNIMPLEMENTED") == (action not in listed), f"{action}: {answer.code}"


def test_every_rpc_of_flight_is_judged_before_it_is_looked_at(gate, received, wire):
    for rpc in RPCS:
        assert wire.call(rpc, b"").code != "UNAUTHENTICATED", rpc
    texts = set()
    with Wire(gate, received, authorization="") as stranger:
        for rpc in RPCS:
            texts.add(stranger.call(rpc, b"").refused("UNAUTHENTICATED").text)
            texts.add(stranger.call_held_open(rpc).refused("UNAUTHENTICATED").text)
    assert len(texts) == 1


def test_a_stream_begins_with_a_schema_that_equals_that_of_the_info(wire):
    for sql in ("SELECT 1 AS x", "SELECT * FROM orders", "SELECT n_name FROM nation WHERE false"):
        info = wire.info(proto.statement_query(sql))
        messages = wire.call("DoGet", proto.message(info.tickets[0])).good().messages
        kinds = message_kinds(messages)
        assert kinds[0] == "schema" and set(kinds[1:]) <= {"record batch"}, sql
        assert pa.ipc.read_schema(pa.py_buffer(info.schema_bytes)).equals(wire.get(info.tickets[0]).schema)
