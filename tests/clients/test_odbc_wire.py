"""The Arrow Flight SQL ODBC driver, call by call: what it sends from SQLDriverConnect to SQLDisconnect.

The driver itself is not on any registry. Its calls, headers and the ways in which it crashes are repeated here by
grpcio, for Power BI, Excel and everything else above ODBC. Must not send what the driver does not send.
"""

import pyarrow as pa
import pytest

import flightsql_proto as proto
from conftest import within
from queries import ENDLESS, TABLES
from wire import (
    KEYS,
    METADATA,
    SQL_INFO,
    SQL_INFO_OF_SOME,
    Wire,
    descriptor,
    member_of,
    message_kinds,
    wire_fixture,
)

# After its handshake the driver sends an empty `auth-token-bin` with every call. Keys of the connection string that it
# does not know become headers, in lower case.
HEADERS = [("auth-token-bin", b""), ("driver", "{Arrow Flight SQL ODBC}"), ("applicationintent", "ReadOnly")]
wire = wire_fixture(headers=HEADERS, agent="Flight SQL ODBC")

INT32, BIGINT, VARCHAR = 4, -5, 12


# --- connecting ------------------------------------------------------------------------------------------------------


def test_a_token_in_the_connection_string_is_a_handshake_with_one_empty_payload(gate, received):
    with Wire(gate, received, headers=[("driver", "x")]) as connecting:
        answer = connecting.handshake(b"", timeout=10).good()
        # A token in the answer would replace the one that the user gave.
        assert answer.header("authorization") == []
        assert len(answer.messages) <= 1
    with Wire(gate, received, headers=HEADERS) as connected:
        connected.still_answers()


def test_a_wrong_token_fails_the_handshake_and_is_not_repeated_in_the_answer(gate, received):
    with Wire(gate, received) as good:
        good.handshake(b"", timeout=10).good()
    wrong = "pk1.AAAAAAAAAAAA.thisIsTheWrongTokenOfTheOdbcTestAndMustNotReturn"
    with Wire(gate, received, authorization=f"Bearer {wrong}") as connecting:
        answer = connecting.handshake(b"", timeout=10).refused("UNAUTHENTICATED")
    everything = answer.text + repr(answer.headers) + repr(answer.trailers) + repr(answer.messages)
    assert "thisIsTheWrongToken" not in everything
    assert "thisIsTheWrongToken" not in gate.output.read_text(errors="replace")


def test_a_user_and_password_are_refused_in_time_where_no_scheme_takes_them(gate, received):
    with Wire(gate, received) as good:
        good.handshake(b"", timeout=10).good()
    with Wire(gate, received, authorization="Basic dWlkOnB3ZA==") as connecting:
        within(10, lambda: connecting.call("Handshake", timeout=10)).refused("UNAUTHENTICATED")


def test_the_empty_header_of_the_driver_is_no_second_credential(gate, received, wire):
    assert wire.sql("SELECT 1 AS x").to_pylist() == [{"x": 1}]
    # Nor a first one.
    with Wire(gate, received, authorization="", headers=HEADERS) as stranger:
        stranger.call("GetFlightInfo", descriptor(proto.get_catalogs())).refused("UNAUTHENTICATED")
    # And a good token in that place counts for nothing.
    hidden = [("auth-token-bin", gate.token.encode())]
    with Wire(gate, received, authorization="", headers=hidden) as stranger:
        stranger.call("GetFlightInfo", descriptor(proto.get_catalogs())).refused("UNAUTHENTICATED")


def test_unknown_keys_of_the_connection_string_are_ignored_and_not_logged(gate, received):
    unknown = [("pwdd", "mistypedOdbcPassword"), ("stringcolumnlength", ""), ("x" * 200, "y" * 2000)]
    with Wire(gate, received, headers=HEADERS + unknown) as wire:
        wire.still_answers()
    assert "mistypedOdbcPassword" not in gate.output.read_text(errors="replace")


def test_several_connections_come_and_go_without_closing_a_session(gate, received):
    for _ in range(5):
        with Wire(gate, received, headers=HEADERS) as wire:
            wire.handshake(b"", timeout=10).good()
            assert wire.sql("SELECT 1 AS x").num_rows == 1


# --- SQLExecDirect, SQLPrepare ---------------------------------------------------------------------------------------


def test_a_select_is_a_statement_query_whose_schema_is_told_at_once(wire):
    info = wire.info(proto.statement_query("SELECT n_nationkey, n_name FROM nation ORDER BY 1"))
    assert info.schema.names == ["n_nationkey", "n_name"]
    assert len(info.tickets) == 1 and info.locations == []
    rows = wire.get(info.tickets[0])
    assert rows.schema.equals(info.schema)
    assert rows.num_rows == 25 and rows.column("n_name")[0].as_py() == "ALGERIA"


def test_a_statement_without_rows_is_a_statement_query_with_a_schema_and_one_row(wire, name):
    # The driver has no other way for DDL, and an empty schema is an error to it.
    for sql in (f"CREATE VIEW {name} AS SELECT 1 AS x", f"DROP VIEW {name}"):
        info = wire.info(proto.statement_query(sql))
        assert len(info.schema) == 1
        rows = wire.get(info.tickets[0])
        assert rows.schema.equals(info.schema)
        assert rows.num_rows == 1
    wire.call("GetFlightInfo", descriptor(proto.statement_query(f"SELECT * FROM {name}"))).refused("INVALID_ARGUMENT")


def test_an_insert_into_a_table_that_is_read_only_is_refused_and_leaves_the_connection(wire):
    insert = proto.statement_query("INSERT INTO region VALUES (99, 'X', 'x')")
    answer = within(10, lambda: wire.call("GetFlightInfo", descriptor(insert)))
    answer.refused("UNIMPLEMENTED", "PERMISSION_DENIED", "INVALID_ARGUMENT")
    assert wire.sql("SELECT count(*) AS n FROM region").to_pylist() == [{"n": 5}]


def test_a_prepared_statement_tells_its_columns_runs_and_closes(wire):
    prepared = wire.prepare("SELECT r_regionkey, r_name FROM region ORDER BY 1")
    for _ in range(2):
        info = wire.info(proto.prepared_query(prepared.handle))
        assert info.schema.names == ["r_regionkey", "r_name"]
        assert wire.get(info.tickets[0]).num_rows == 5
    wire.close(prepared.handle)


def test_an_empty_result_is_a_stream_with_its_schema(wire):
    info = wire.info(proto.statement_query("SELECT n_name FROM nation WHERE false"))
    messages = wire.call("DoGet", proto.message(info.tickets[0])).good().messages
    assert message_kinds(messages)[0] == "schema"
    assert wire.get(info.tickets[0]).num_rows == 0


def test_the_columns_of_a_result_are_of_types_that_the_driver_converts(wire):
    sql = """SELECT arrow_cast('v', 'Utf8View') AS v, arrow_cast('d', 'Dictionary(Int32, Utf8)') AS d,
        arrow_cast(X'00', 'BinaryView') AS b, arrow_cast(1.5, 'Float16') AS f FROM nation"""
    schema = wire.info(proto.statement_query(sql)).schema
    assert schema.types == [pa.string(), pa.string(), pa.binary(), pa.float32()]


# --- SQLTables, SQLColumns, SQLPrimaryKeys, SQLGetTypeInfo -----------------------------------------------------------


@pytest.mark.parametrize("what", METADATA)
def test_the_columns_are_where_the_driver_reads_them_for(what, wire):
    # It takes columns by position and by type, not by name.
    command, fields = METADATA[what]
    info = wire.info(command)
    assert len(info.tickets) == 1 and info.locations == []
    rows = wire.get(info.tickets[0])
    for schema in (rows.schema, info.schema):
        assert schema.names == [field.name for field in fields]
        assert [field.nullable for field in schema] == [field.nullable for field in fields]
        assert schema.types == [field.type for field in fields]
    assert (rows.num_rows == 0) == (what in KEYS)


def test_every_field_of_every_table_has_metadata_or_the_driver_crashes(wire):
    rows = wire.query(proto.get_tables(include_schema=True)).to_pylist()
    assert set(TABLES) <= {row["table_name"] for row in rows}
    for row in rows:
        schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
        assert len(schema) > 0, row["table_name"]
        for field in schema:
            told = field.metadata or {}
            assert told.get(b"ARROW:FLIGHT:SQL:TYPE_NAME"), f"{row['table_name']}.{field.name}: {told}"


def test_the_columns_of_one_table_are_asked_by_its_name_as_a_pattern(wire):
    rows = wire.query(proto.get_tables(None, "public", "part", include_schema=True)).to_pylist()
    # `_` and `%` would be wildcards; `part` must not find `partsupp`.
    assert [row["table_name"] for row in rows] == ["part"]
    schema = pa.ipc.read_schema(pa.py_buffer(rows[0]["table_schema"]))
    asked = wire.sql("SELECT * FROM part LIMIT 0").schema
    assert schema.names == asked.names and schema.types == asked.types
    decimal = schema.field("p_retailprice").metadata
    assert decimal[b"ARROW:FLIGHT:SQL:PRECISION"] == str(asked.field("p_retailprice").type.precision).encode()
    assert decimal[b"ARROW:FLIGHT:SQL:SCALE"] == str(asked.field("p_retailprice").type.scale).encode()


def test_the_types_are_told_in_order_with_one_for_each_column_of_the_tables(wire):
    rows = wire.query(proto.any_message("CommandGetXdbcTypeInfo")).to_pylist()
    order = [(row["data_type"], row["type_name"]) for row in rows]
    assert order == sorted(order)
    assert {INT32, BIGINT, VARCHAR} <= {data_type for data_type, _ in order}
    # Power BI looks a column's type up by its name: "Unable to understand the type for column".
    names = {row["type_name"] for row in rows}
    for table in wire.query(proto.get_tables("tpch", "public", include_schema=True)).to_pylist():
        for field in pa.ipc.read_schema(pa.py_buffer(table["table_schema"])):
            name = field.metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"].decode()
            assert name in names, f"{table['table_name']}.{field.name} is a {name}"


def test_one_type_can_be_asked_for_and_one_that_is_not_there_is_no_error(wire):
    def types(number):
        # A protobuf int32 is ten bytes long when it is negative.
        body = proto.field(1, number & 0xFFFF_FFFF_FFFF_FFFF)
        rows = wire.query(proto.any_message("CommandGetXdbcTypeInfo", body))
        return {row["data_type"] for row in rows.to_pylist()}

    assert types(VARCHAR) == {VARCHAR}
    assert types(BIGINT) == {BIGINT}
    assert types(9999) == set()


# --- SQLGetInfo ------------------------------------------------------------------------------------------------------


def sql_info(wire, *codes):
    """{code: (member of the union, value)}"""
    rows = wire.query(proto.get_sql_info(*codes)).combine_chunks()
    names = rows.column("info_name").to_pylist()
    assert len(names) == len(set(names)), "a code is told twice"
    values = rows.column("value").combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return {name: (values.type_codes[at].as_py(), values[at].as_py()) for at, name in enumerate(names)}


def test_the_members_of_the_union_are_in_the_order_of_the_specification(wire):
    schema = wire.info(proto.get_sql_info()).schema
    assert schema.names == ["info_name", "value"]
    assert schema.field(0).type == pa.uint32() and not schema.field(0).nullable
    union = schema.field(1).type
    assert union.mode == "dense" and union.type_codes == [0, 1, 2, 3, 4, 5]
    members = [union.field(at).type for at in range(union.num_fields)]
    assert members[:4] == [pa.string(), pa.bool_(), pa.int64(), pa.int32()]
    assert pa.types.is_list(members[4]) and members[4].value_type == pa.string()
    assert pa.types.is_map(members[5]) and members[5].key_type == pa.int32()
    assert members[5].item_type.value_type == pa.int32()


def test_an_empty_list_of_codes_asks_for_all_and_tells_none_that_a_driver_does_not_know(wire):
    told = sql_info(wire)
    assert not [code for code in told if member_of(code) is None]
    missing = [code for codes in SQL_INFO.values() for code in codes if code not in told]
    assert not missing


@pytest.mark.parametrize("code", sorted(code for codes in SQL_INFO.values() for code in codes))
def test_a_code_alone_is_one_row_in_the_member_that_the_driver_reads(code, wire):
    told = sql_info(wire, code)
    assert list(told) == [code]
    member, value = told[code]
    assert member == member_of(code), value
    assert value is not None


@pytest.mark.parametrize("code", sorted(code for codes in SQL_INFO_OF_SOME.values() for code in codes))
def test_a_code_of_a_feature_is_absent_or_in_the_member_that_the_driver_reads(code, wire):
    assert sql_info(wire, 0, code).keys() <= {0, code}
    assert all(member == member_of(code) for member, _ in sql_info(wire, code).values())


def test_a_code_that_nobody_knows_is_left_out_without_an_error(wire):
    assert sql_info(wire, 99_999) == {}
    assert sql_info(wire, 0, 99_999, 577, 10_000).keys() == {0}
    assert sql_info(wire, 0, 0, 0).keys() == {0}


def test_the_driver_finds_catalogs_and_a_way_to_quote(wire):
    told = {code: value for code, (_, value) in sql_info(wire, 0, 1, 504, 513, 531).items()}
    assert "portcullis" in told[0].lower()
    assert told[1]
    assert told[504] == '"'
    assert told[513] == "\\"
    # Without a term for them the driver says that there are no catalogs.
    assert told[531]


def test_the_conversions_are_a_map_that_can_be_read(wire):
    _, conversions = sql_info(wire, 517)[517]
    assert len(conversions) > 0
    for source, targets in conversions:
        assert 0 <= source <= 19
        assert len(targets) > 0 and all(0 <= target <= 19 for target in targets)


# --- timeouts and SQLCancel ------------------------------------------------------------------------------------------


def test_the_login_timeout_is_a_deadline_on_the_handshake(wire):
    within(5, lambda: wire.handshake(b"", timeout=5).good())


@pytest.mark.late
def test_the_query_timeout_is_a_deadline_and_the_connection_lives(wire):
    command = descriptor(proto.statement_query(ENDLESS))
    answer = within(10, lambda: wire.call("GetFlightInfo", command, timeout=1))
    answer.refused("DEADLINE_EXCEEDED")
    wire.still_answers()


def test_a_cancelled_stream_ends_and_the_connection_lives(wire):
    info = wire.info(proto.statement_query("SELECT l.*, repeat('x', 2000) AS pad FROM lineitem l"))
    call = wire.start("DoGet", [proto.message(info.tickets[0])])
    assert message_kinds([next(call), next(call)]) == ["schema", "record batch"]
    call.cancel()
    assert wire.finish("DoGet", call).code == "CANCELLED"
    within(30, wire.still_answers)
