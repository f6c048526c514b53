"""`pyarrow.flight` (the C++ client) with hand-written Flight SQL messages: the wire as it is, and as it should not be.

pyarrow has no Flight SQL client, so every command, ticket and action here is chosen byte by byte. Also holds the table
of calls and bad credentials, and the four places where a client learns a schema.
"""

import concurrent.futures
import random
import re
import socket
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, everything, within
from queries import ENDLESS, SCHEMAS, TABLES

UNIMPLEMENTED = pa.ArrowNotImplementedError
# How pyarrow tells INVALID_ARGUMENT and NOT_FOUND.
INVALID, MISSING = pa.ArrowInvalid, pa.lib.ArrowKeyError
# Wrong bytes and unknown names alike.
BAD_INPUT = (INVALID, MISSING)


def command(body):
    return flight.FlightDescriptor.for_command(body)


def ask(gate, client, sql, options=None):
    """Plans and reads a statement, all endpoints of it."""
    options = options or gate.headers()
    info = client.get_flight_info(command(proto.statement_query(sql)), options)
    tables = [everything(client.do_get(endpoint.ticket, options)) for endpoint in info.endpoints]
    return pa.concat_tables(tables)


def act(gate, client, kind, body=b"", options=None):
    results = client.do_action(flight.Action(kind, body), options or gate.headers())
    return [result.body.to_pybytes() for result in results]


def prepare(gate, client, sql):
    (body,) = act(gate, client, "CreatePreparedStatement", proto.create_prepared(sql))
    return proto.Prepared(body)


def still_answers(gate, client):
    assert within(DEADLINE, lambda: ask(gate, client, "SELECT count(*) AS n FROM nation")).to_pylist() == [{"n": 25}]


def sentence(error):
    """What the server said, without pyarrow's own additions; one of them names the peer, which is the gate itself."""
    return re.split(r"[. ]*(?:gRPC client debug context|Detail):", str(error))[0].split("with message: ")[-1]


def classed(call):
    """pyarrow forgets the class of an error in its GetSchema, and of one that passes through its own callbacks."""
    try:
        return call()
    except OSError as error:
        if "Unauthenticated" in str(error):
            raise flight.FlightUnauthenticatedError(str(error)) from error
        raise


def handshake(client, options):
    classed(lambda: client.authenticate(Silent(), options))


# --- statements ------------------------------------------------------------------------------------------------------


def test_a_statement_has_one_endpoint_without_a_location(gate, client, received):
    for sql in ("SELECT 1", "SELECT * FROM lineitem", "SELECT n_name FROM nation WHERE false"):
        info = received.keep_info(sql, client.get_flight_info(command(proto.statement_query(sql)), gate.headers()))
        assert len(info.endpoints) == 1
        assert info.endpoints[0].locations == []
        assert len(info.endpoints[0].ticket.ticket) <= 4096


def test_a_ticket_gives_the_rows(gate, client):
    table = ask(gate, client, "SELECT n_name FROM nation WHERE n_nationkey < 3 ORDER BY n_nationkey")
    assert table.column("n_name").to_pylist() == ["ALGERIA", "ARGENTINA", "BRAZIL"]


def test_a_ticket_can_be_read_again_and_by_another_connection(gate, client):
    info = client.get_flight_info(command(proto.statement_query("SELECT r_name FROM region")), gate.headers())
    first = everything(client.do_get(info.endpoints[0].ticket, gate.headers()))
    with gate.flight() as other:
        assert everything(other.do_get(info.endpoints[0].ticket, gate.headers())).equals(first)
    assert first.num_rows == 5


@pytest.mark.parametrize("query", SCHEMAS)
def test_the_sources_of_a_schema_are_equal_for(query, gate, client, received):
    descriptor = command(proto.statement_query(SCHEMAS[query]))
    info = received.keep_info(query, client.get_flight_info(descriptor, gate.headers()))
    asked = client.get_schema(descriptor, gate.headers()).schema
    prepared = prepare(gate, client, SCHEMAS[query])
    dataset = pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema))
    prepared_info = client.get_flight_info(command(proto.prepared_query(prepared.handle)), gate.headers())
    streams = [
        everything(client.do_get(endpoint.ticket, gate.headers())).schema
        for endpoint in info.endpoints + prepared_info.endpoints
    ]
    received.keep(f"{query} handle", prepared.handle)
    for source in [asked, dataset, prepared_info.schema, *streams]:
        received.keep_schema(query, source)
        assert source.equals(info.schema, check_metadata=True), f"{source}\n\nand in FlightInfo:\n{info.schema}"
    act(gate, client, "ClosePreparedStatement", proto.close_prepared(prepared.handle))


def test_no_message_is_larger_than_four_mebibytes(gate, received):
    # grpc refuses what is larger on this channel, as arrow-rs's client does by default.
    with gate.flight(generic_options=[("grpc.max_receive_message_length", 4 * 1024 * 1024)]) as client:
        wide = ask(gate, client, "SELECT * FROM lineitem")
        assert wide.num_rows > 60_000
        long = ask(gate, client, "SELECT l_orderkey, repeat('x', 1024) AS pad FROM lineitem")
        assert long.num_rows == wide.num_rows


def test_batches_carry_no_compression_that_was_not_asked_for(gate, client):
    info = client.get_flight_info(command(proto.statement_query("SELECT * FROM orders")), gate.headers())
    reader = client.do_get(info.endpoints[0].ticket, gate.headers())
    batches = [chunk.data for chunk in reader]
    assert sum(batch.num_rows for batch in batches) == 15_000
    assert all(batch.validate(full=True) is None for batch in batches)


# --- prepared statements ---------------------------------------------------------------------------------------------


def test_a_prepared_statement_runs_more_than_once_and_closes_more_than_once(gate, client):
    prepared = prepare(gate, client, "SELECT count(*) AS n FROM supplier")
    assert prepared.dataset_schema
    assert not prepared.is_update
    for _ in range(2):
        info = client.get_flight_info(command(proto.prepared_query(prepared.handle)), gate.headers())
        assert everything(client.do_get(info.endpoints[0].ticket, gate.headers())).to_pylist() == [{"n": 100}]
    for _ in range(2):
        act(gate, client, "ClosePreparedStatement", proto.close_prepared(prepared.handle))


def test_the_schema_of_a_prepared_statement_can_be_asked(gate, client):
    prepared = prepare(gate, client, "SELECT n_name FROM nation")
    schema = client.get_schema(command(proto.prepared_query(prepared.handle)), gate.headers()).schema
    assert schema.names == ["n_name"]


def test_preparing_bad_sql_is_refused_in_the_words_of_the_planner(gate, client, refusal):
    error = refusal(lambda: prepare(gate, client, "SELECT no_such_column FROM nation"))
    assert isinstance(error, BAD_INPUT), error
    assert "no_such_column" in str(error)


# --- metadata --------------------------------------------------------------------------------------------------------

UTF8, INT32 = pa.string(), pa.int32()


def required(name, data_type):
    return pa.field(name, data_type, nullable=False)


METADATA = {
    "catalogs": (proto.get_catalogs(), [required("catalog_name", UTF8)]),
    "schemas": (
        proto.get_db_schemas("tpch", "pub%"),
        [pa.field("catalog_name", UTF8), required("db_schema_name", UTF8)],
    ),
    "table_types": (proto.get_table_types(), [required("table_type", UTF8)]),
    "tables": (
        proto.get_tables("tpch", "public"),
        [
            pa.field("catalog_name", UTF8),
            pa.field("db_schema_name", UTF8),
            required("table_name", UTF8),
            required("table_type", UTF8),
        ],
    ),
    "tables_with_schema": (
        proto.get_tables("tpch", "public", include_schema=True),
        [
            pa.field("catalog_name", UTF8),
            pa.field("db_schema_name", UTF8),
            required("table_name", UTF8),
            required("table_type", UTF8),
            required("table_schema", pa.binary()),
        ],
    ),
}


@pytest.mark.parametrize("what", METADATA)
def test_metadata_has_the_schema_of_the_specification(what, gate, client, received):
    body, fields = METADATA[what]
    info = received.keep_info(what, client.get_flight_info(command(body), gate.headers()))
    assert len(info.endpoints) == 1 and info.endpoints[0].locations == []
    table = everything(client.do_get(info.endpoints[0].ticket, gate.headers()))
    assert table.num_rows > 0
    for schema in (table.schema, info.schema, client.get_schema(command(body), gate.headers()).schema):
        assert schema.remove_metadata() == pa.schema(fields)


def test_the_tables_carry_schemas_that_can_be_read(gate, client, received):
    info = client.get_flight_info(command(proto.get_tables(include_schema=True)), gate.headers())
    rows = everything(client.do_get(info.endpoints[0].ticket, gate.headers())).to_pylist()
    found = {row["table_name"]: row for row in rows if row["db_schema_name"] == "public"}
    assert set(TABLES) <= set(found)
    for table in TABLES:
        schema = received.keep_schema(table, pa.ipc.read_schema(pa.py_buffer(found[table]["table_schema"])))
        assert len(schema) > 0
        # The ODBC driver dereferences a null pointer at a field without metadata.
        assert all(b"ARROW:FLIGHT:SQL:TYPE_NAME" in (field.metadata or {}) for field in schema)


def sql_info(gate, client, *codes):
    info = client.get_flight_info(command(proto.get_sql_info(*codes)), gate.headers())
    rows = everything(client.do_get(info.endpoints[0].ticket, gate.headers())).to_pylist()
    return {row["info_name"]: row["value"] for row in rows}


def test_sql_info_tells_what_drivers_ask_at_once(gate, client):
    # The name, the version, read only, quote character; and that there are no transactions.
    for codes in ((0, 1, 3, 504, 8), ()):
        told = sql_info(gate, client, *codes)
        assert "portcullis" in told[0].lower()
        assert told[1]
        assert isinstance(told[3], bool)
        assert told[504] == '"'
        assert told[8] == 0
        # A code that a driver does not know is a null pointer in the JDBC driver.
        assert all(code < 10_000 for code in told)
    assert set(sql_info(gate, client, 0)) == {0}


# --- actions ---------------------------------------------------------------------------------------------------------

# What this version serves. A name is added here together with the code that serves it.
SERVED = {
    "ClosePreparedStatement",
    "CloseSession",
    "CreatePreparedStatement",
    "CreatePreparedSubstraitPlan",
    "GetSessionOptions",
    "SetSessionOptions",
}
OTHER = {
    "BeginSavepoint",
    "BeginTransaction",
    "CancelFlightInfo",
    "CancelQuery",
    "EndSavepoint",
    "EndTransaction",
    "RenewFlightEndpoint",
}


def test_the_list_of_actions_is_what_is_served(gate, client):
    listed = {action.type for action in client.list_actions(gate.headers())}
    assert listed == SERVED


@pytest.mark.parametrize("kind", sorted(OTHER) + ["NoSuchAction", "", "createpreparedstatement", "x" * 1000, "Grüße"])
def test_an_action_that_is_not_listed_is_unimplemented(kind, gate, client, refusal):
    error = refusal(lambda: act(gate, client, kind))
    assert isinstance(error, UNIMPLEMENTED), error


def test_session_options_are_told_and_an_unknown_one_is_an_entry_and_not_an_error(gate, client):
    (told,) = act(gate, client, "GetSessionOptions")
    options = {}
    for entry in proto.fields(told).get(1, []):
        pair = proto.fields(entry)
        options[proto.first(pair, 1).decode()] = proto.first(pair, 2)
    assert proto.first(proto.fields(options["catalog"]), 1) == b"tpch"
    assert proto.first(proto.fields(options["schema"]), 1) == b"public"

    value = proto.message("x")
    request = proto.field(1, proto.message("no_such_option", value))
    (answer,) = act(gate, client, "SetSessionOptions", request)
    (problem,) = proto.fields(answer)[1]
    assert proto.first(proto.fields(problem), 1) == b"no_such_option"


# --- handshake and sessions ------------------------------------------------------------------------------------------


class Silent(flight.ClientAuthHandler):
    """A handshake whose only credential is in the headers; the payloads are empty, as the ODBC driver sends them."""

    def authenticate(self, outgoing, incoming):
        outgoing.write(b"")
        self.answer = incoming.read()

    def get_token(self):
        return b""


class Listener(flight.ClientMiddlewareFactory):
    """Keeps the headers of every answer, by method."""

    def __init__(self, received=None):
        self.seen = []
        self.received = received

    def start_call(self, info):
        outer = self

        class Middleware(flight.ClientMiddleware):
            def received_headers(self, headers):
                outer.seen.append((info.method, headers))
                if outer.received:
                    outer.received.keep(f"headers of {info.method}", repr(headers))

        return Middleware()

    def header(self, name):
        return [value for _, headers in self.seen for value in headers.get(name, [])]


def test_a_handshake_with_a_token_succeeds_and_leaves_that_token_in_use(gate, received):
    # What the JDBC and ODBC drivers do with `token=`. Another token in the answer would replace the client's own.
    listener = Listener(received)
    with gate.flight(middleware=[listener]) as client:
        handshake(client, gate.headers())
        assert listener.header("authorization") == []
        assert ask(gate, client, "SELECT count(*) AS n FROM nation").to_pylist() == [{"n": 25}]


def test_no_handshake_of_many_at_once_hangs(gate):
    # A server that ends the call while the client still writes leaves gRPC's C core waiting, one time in ten.
    def one(_):
        with gate.flight() as client:
            handshake(client, gate.headers())

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        within(DEADLINE, lambda: list(pool.map(one, range(300))))


def test_a_handshake_with_a_bad_token_is_unauthenticated(gate, client, refusal):
    error = refusal(lambda: handshake(client, gate.headers("Bearer pk1.no.body")))
    assert isinstance(error, flight.FlightUnauthenticatedError), error


def test_basic_credentials_are_refused_where_no_password_scheme_is_configured(gate, client, refusal):
    error = refusal(lambda: client.authenticate_basic_token(b"alice", b"wonderland", gate.headers("")))
    assert isinstance(error, flight.FlightUnauthenticatedError), error


def test_closing_the_session_of_the_token_itself_is_no_error_and_the_token_goes_on(gate, client):
    for _ in range(2):
        act(gate, client, "CloseSession")
    still_answers(gate, client)


def test_no_call_answers_with_an_authorization_header(gate, received):
    listener = Listener(received)
    with gate.flight(middleware=[listener]) as client:
        still_answers(gate, client)
        list(client.list_actions(gate.headers()))
        act(gate, client, "GetSessionOptions")
    assert listener.seen
    assert listener.header("authorization") == []


# --- every call and every bad credential -----------------------------------------------------------------------------


def put(gate, client, options, body=None):
    descriptor = command(body or proto.statement_update("DELETE FROM nation"))
    writer, reader = client.do_put(descriptor, pa.schema([]), options)
    return close_after(writer, reader.read)


def exchange(gate, client, options):
    writer, reader = client.do_exchange(command(b"x"), options)
    writer.done_writing()
    return close_after(writer, reader.read_all)


def close_after(writer, read):
    """Reads before the half-close, as C++ does, and lets the first error out whichever call meets it."""
    try:
        answer = read()
    except BaseException:
        try:
            writer.close()
        except Exception:
            pass
        raise
    writer.close()
    return answer


CALLS = {
    "DoAction": lambda gate, client, options: act(gate, client, "GetSessionOptions", options=options),
    "DoExchange": exchange,
    "DoGet": lambda gate, client, options: everything(client.do_get(flight.Ticket(proto.get_catalogs()), options)),
    "DoPut": put,
    "GetFlightInfo": lambda gate, client, options: client.get_flight_info(command(proto.get_catalogs()), options),
    "GetSchema": lambda gate, client, options: classed(
        lambda: client.get_schema(command(proto.get_catalogs()), options)
    ),
    "Handshake": lambda gate, client, options: handshake(client, options),
    "ListActions": lambda gate, client, options: list(client.list_actions(options)),
    "ListFlights": lambda gate, client, options: list(client.list_flights(b"", options)),
}

CREDENTIALS = {
    "absent": "",
    "basic": "Basic YWxpY2U6d29uZGVybGFuZA",
    "basic_garbage": "Basic ====",
    "bearer_empty": "Bearer",
    "bearer_none": "Bearer None",
    "forged_session": "Bearer ps1." + "A" * 64,
    "large": "Bearer " + "a" * 40_000,
    "unknown_key": "Bearer pk1.AAAAAAAAAAAA." + "A" * 43,
    "unknown_scheme": "Negotiate abc",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_judged_before_anything_else(call, gate, client, received):
    run = CALLS[call]
    try:
        run(gate, client, gate.headers())
    except flight.FlightUnauthenticatedError as error:
        pytest.fail(f"{call} with the good credential: {error}")
    except (flight.FlightError, pa.ArrowException, KeyError) as error:
        # Not served, or refused for what it asks: but let in.
        received.keep_error(call, error)

    texts = {}
    bad = {name: gate.headers(authorization) for name, authorization in CREDENTIALS.items()}
    twice = (b"authorization", f"Bearer {gate.token}".encode())
    bad["twice"] = gate.headers(None, twice)
    for credential, options in bad.items():
        with pytest.raises(flight.FlightUnauthenticatedError) as caught:
            # A fresh client: pyarrow keeps what a handshake taught it.
            with gate.flight() as fresh:
                run(gate, fresh, options)
        received.keep_error(f"{call} {credential}", caught.value)
        texts.setdefault(sentence(caught.value), []).append(credential)
    assert len(texts) == 1, texts
    still_answers(gate, client)


# --- bytes that are not what they should be --------------------------------------------------------------------------


def garbage(seed, count=150):
    """Random bytes, and protobuf-like ones: the same in every run."""
    source = random.Random(seed)
    for number in range(count):
        size = source.choice([0, 1, 2, 7, 32, 200, 5000])
        data = source.randbytes(size)
        yield data
        if number % 3 == 0:
            yield proto.any_message("TicketStatementQuery", proto.message(data))
            yield proto.any_message("CommandPreparedStatementQuery", proto.message(data))
            yield proto.any_message(source.choice(["CommandGetTables", "CommandStatementQuery"]), b"\xff" + data)


def only_refusals(seed, send, received, allowed=BAD_INPUT):
    sent = 0
    for data in garbage(seed):
        try:
            send(data)
        except (*allowed, UNIMPLEMENTED) as error:
            # Not a Flight SQL message at all may also be called unsupported.
            received.keep_error("garbage", error)
            sent += 1
        else:
            pytest.fail(f"{data[:60]!r} was accepted")
    assert sent > 100


def test_a_ticket_of_random_bytes_is_refused(gate, client, received):
    only_refusals(1, lambda data: everything(client.do_get(flight.Ticket(data), gate.headers())), received)
    still_answers(gate, client)


def test_a_command_of_random_bytes_is_refused(gate, client, received):
    only_refusals(2, lambda data: client.get_flight_info(command(data), gate.headers()), received)
    only_refusals(3, lambda data: client.get_schema(command(data), gate.headers()), received)
    still_answers(gate, client)


def test_a_put_of_random_bytes_is_refused(gate, client, received):
    only_refusals(4, lambda data: put(gate, client, gate.headers(), data or b"\x00"), received)
    still_answers(gate, client)


@pytest.mark.parametrize("kind", ["ClosePreparedStatement", "CreatePreparedStatement"])
def test_an_action_with_random_bytes_is_refused(kind, gate, client, received):
    only_refusals(5, lambda data: act(gate, client, kind, data), received)
    still_answers(gate, client)


@pytest.mark.parametrize("kind", ["CloseSession", "GetSessionOptions", "SetSessionOptions"])
def test_a_session_action_with_random_bytes_never_breaks_the_gate(kind, gate, client, received):
    for data in garbage(6, 60):
        try:
            # Nearly any bytes are an empty request with fields that are unknown.
            act(gate, client, kind, data)
        except (*BAD_INPUT, UNIMPLEMENTED) as error:
            received.keep_error(kind, error)
    still_answers(gate, client)


def test_a_prepared_handle_of_random_bytes_is_refused(gate, client, refusal):
    for size in (0, 1, 16, 64, 4096):
        handle = random.Random(size).randbytes(size)
        for body in (proto.prepared_query(handle), proto.any_message("TicketStatementQuery", proto.message(handle))):
            error = refusal(lambda: client.get_flight_info(command(body), gate.headers()))
            assert isinstance(error, (*BAD_INPUT, UNIMPLEMENTED)), error
    still_answers(gate, client)


def test_a_ticket_with_any_byte_changed_is_refused(gate, client, received):
    info = client.get_flight_info(command(proto.statement_query("SELECT r_name FROM region")), gate.headers())
    good = info.endpoints[0].ticket.ticket
    assert everything(client.do_get(flight.Ticket(good), gate.headers())).num_rows == 5
    _, body = proto.unpack_any(good)
    start = good.index(body)
    # Beyond the field headers of the two messages around it, every byte is sealed.
    for at in range(start + 4, len(good), 3):
        changed = bytearray(good)
        changed[at] ^= 1
        with pytest.raises(BAD_INPUT) as caught:
            everything(client.do_get(flight.Ticket(bytes(changed)), gate.headers()))
        received.keep_error("changed ticket", caught.value)
    for cut in (good[:-1], good[: len(good) // 2], good + b"\x00", good * 2):
        try:
            everything(client.do_get(flight.Ticket(cut), gate.headers()))
        except (*BAD_INPUT, UNIMPLEMENTED) as error:
            received.keep_error("cut ticket", error)
        else:
            # Protobuf lets a message be followed by itself: that is the same ticket once more.
            assert cut == good * 2
    still_answers(gate, client)


def test_a_handle_is_no_ticket_and_a_ticket_is_no_handle(gate, client, refusal):
    handle = prepare(gate, client, "SELECT 1 AS x").handle
    info = client.get_flight_info(command(proto.prepared_query(handle)), gate.headers())
    ticket = info.endpoints[0].ticket.ticket
    _, body = proto.unpack_any(ticket)
    sealed = proto.first(proto.fields(body), 1)
    as_ticket = proto.any_message("TicketStatementQuery", proto.message(handle))
    swapped = [
        lambda: everything(client.do_get(flight.Ticket(as_ticket), gate.headers())),
        lambda: client.get_flight_info(command(proto.prepared_query(sealed)), gate.headers()),
    ]
    for call in swapped:
        assert isinstance(refusal(call), BAD_INPUT)


def test_a_forged_ticket_of_the_cluster_makes_the_gate_dial_nobody(gate, client, received):
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        port = trap.getsockname()[1]
        # ballista.protobuf.FetchPartition in an Action, which is the ticket of the cluster's own executors.
        fetch = proto.message("abcdefg", 1, 0, "/etc/passwd", "127.0.0.1", port)
        action = proto.field(3, fetch)
        forged = [
            fetch,
            action,
            proto.any_message("Action", action, prefix="type.googleapis.com/ballista.protobuf."),
            proto.any_message("FetchPartition", fetch, prefix="type.googleapis.com/ballista.protobuf."),
            proto.any_message("TicketStatementQuery", proto.message(action)),
            proto.any_message("TicketStatementQuery", proto.message(fetch)),
        ]
        for ticket in forged:
            with pytest.raises((*BAD_INPUT, UNIMPLEMENTED)) as caught:
                everything(client.do_get(flight.Ticket(ticket), gate.headers()))
            assert str(port) not in sentence(caught.value)
            with pytest.raises((*BAD_INPUT, UNIMPLEMENTED)):
                act(gate, client, "FetchPartition", ticket)
        with pytest.raises(TimeoutError):
            trap.accept()
    still_answers(gate, client)


def test_sql_with_odd_characters_is_refused_or_answered(gate, client, received):
    odd = [
        "SELECT 1\x00",
        "\ufeffSELECT 1 AS x",
        "SELECT '\u202e' AS x",
        "ＳＥＬＥＣＴ 1",
        "SELECT\u20281",
        "SELECT 1 AS \"\"",
    ]
    for sql in odd:
        try:
            ask(gate, client, sql)
        except BAD_INPUT as error:
            received.keep_error("odd sql", error)
    with pytest.raises((*BAD_INPUT, UNIMPLEMENTED)):
        client.get_flight_info(command(proto.statement_query(b"SELECT '\xff\xfe'")), gate.headers())
    still_answers(gate, client)


# --- what is not served ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        proto.statement_update("INSERT INTO region VALUES (99, 'X', 'x')"),
        proto.statement_update("SELECT 1"),
        proto.any_message("CommandStatementIngest", proto.message(b"", "t")),
        proto.any_message("CommandStatementSubstraitPlan", proto.message(proto.message(b"\x0a"))),
    ],
    ids=["insert", "select_as_update", "ingest", "substrait"],
)
def test_a_put_is_answered_before_the_client_half_closes(body, gate, client, refusal):
    error = within(10, lambda: refusal(lambda: put(gate, client, gate.headers(), body)))
    assert isinstance(error, (INVALID, UNIMPLEMENTED, flight.FlightUnauthorizedError)), error
    still_answers(gate, client)


def test_a_statement_inside_a_transaction_that_was_never_begun_is_refused(gate, client, refusal):
    body = proto.statement_query("SELECT 1", b"no-such-transaction")
    error = refusal(lambda: client.get_flight_info(command(body), gate.headers()))
    assert isinstance(error, (*BAD_INPUT, UNIMPLEMENTED)), error


@pytest.mark.parametrize("kind", ["path", "unknown_command"])
def test_a_descriptor_that_is_no_flight_sql_command_is_refused(kind, gate, client, refusal):
    descriptor = flight.FlightDescriptor.for_path("a", "b") if kind == "path" else command(proto.any_message("NoSuch"))
    error = refusal(lambda: client.get_flight_info(descriptor, gate.headers()))
    assert isinstance(error, (*BAD_INPUT, UNIMPLEMENTED)), error


# --- leaving early ---------------------------------------------------------------------------------------------------


def test_a_reader_can_be_cancelled(gate, client):
    info = client.get_flight_info(
        command(proto.statement_query("SELECT l.*, repeat('x', 2000) AS pad FROM lineitem l")), gate.headers()
    )
    reader = client.do_get(info.endpoints[0].ticket, gate.headers())
    assert reader.read_chunk().data.num_rows > 0
    reader.cancel()
    with pytest.raises((flight.FlightCancelledError, pa.ArrowCancelled, StopIteration)):
        while True:
            reader.read_chunk()
    still_answers(gate, client)


@pytest.mark.late
def test_a_call_beyond_its_deadline_times_out_and_frees_the_cluster(gate, client, refusal):
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {gate.token}".encode())], timeout=2)
    error = within(
        10, lambda: refusal(lambda: client.get_flight_info(command(proto.statement_query(ENDLESS)), options))
    )
    assert isinstance(error, flight.FlightTimedOutError), error
    still_answers(gate, client)


@pytest.mark.embedded
@pytest.mark.late
def test_a_client_that_goes_away_frees_the_cluster(gate, client):
    for _ in range(4):
        leaving = gate.flight()
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {gate.token}".encode())], timeout=1)
        with pytest.raises((flight.FlightTimedOutError, flight.FlightCancelledError)):
            leaving.get_flight_info(command(proto.statement_query(ENDLESS)), options)
        leaving.close()
    still_answers(gate, client)


@pytest.mark.embedded
@pytest.mark.late
def test_an_abandoned_query_stops_using_the_processor(gate, client):
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {gate.token}".encode())], timeout=3)
    before = gate.processor_seconds()
    with pytest.raises((flight.FlightTimedOutError, flight.FlightCancelledError)):
        client.get_flight_info(command(proto.statement_query(ENDLESS)), options)
    # Proof that it had begun to work.
    assert gate.processor_seconds() - before > 0.5
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        used = gate.processor_seconds()
        time.sleep(2)
        if gate.processor_seconds() - used < 0.4:
            return
    pytest.fail("the gate was still busy 30 s after its only client had left")
