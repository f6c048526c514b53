"""The Flight SQL data source of Grafana, call by call, with the headers that its settings page lets a user add.

The plugin runs inside Grafana, which is not started here; its Go client is tested by the Go suite. Must not ask for
more than the plugin does.
"""

import pyarrow as pa

import flightsql_proto as proto
from queries import TABLES
from wire import Wire, message_kinds, wire_fixture

HEADERS = [("database", "tpch"), ("x-grafana-org-id", "1")]
wire = wire_fixture(headers=HEADERS, agent="grpc-go/1.71.0")


def test_bi_09_the_health_check_selects_one_from_one_endpoint_without_a_location(wire):
    """BI-09 (gigapi#91): the plugin refuses a FlightInfo that has not exactly one endpoint."""
    info = wire.info(proto.statement_query("select 1"))
    assert len(info.endpoints) == 1
    assert info.locations == []
    assert list(wire.get(info.tickets[0]).to_pylist()[0].values()) == [1]


def test_a_panel_query_has_one_endpoint_however_large_it_is(wire):
    info = wire.info(proto.statement_query("SELECT l_shipdate AS time, l_quantity AS value FROM lineitem ORDER BY 1"))
    assert len(info.endpoints) == 1 and info.locations == []
    messages = wire.call("DoGet", proto.message(info.tickets[0])).good().messages
    assert message_kinds(messages)[:2] == ["schema", "record batch"]
    rows = wire.get(info.tickets[0])
    assert rows.num_rows == wire.sql("SELECT count(*) AS n FROM lineitem").to_pylist()[0]["n"] > 60_000
    times = rows.column("time").to_pylist()
    assert times == sorted(times)


def test_bi_09_the_words_for_a_table_that_the_plugin_knows_are_answered_and_no_error(wire):
    """BI-09: it filters by 'BASE TABLE' and 'table'. A filter matches the types that GetTableTypes tells, exactly."""
    kinds = {row["table_type"] for row in wire.query(proto.get_table_types()).to_pylist()}
    known = {row["table_name"]: row["table_type"] for row in wire.query(proto.get_tables("tpch", "public")).to_pylist()}
    assert set(TABLES) <= set(known) and set(known.values()) <= kinds
    for asked in (["BASE TABLE", "table"], ["BASE TABLE"], ["TABLE"], ["TABLE", "no such type"], sorted(kinds)):
        rows = wire.query(proto.get_tables("tpch", "public", types=asked)).to_pylist()
        assert {row["table_name"] for row in rows} == {table for table, kind in known.items() if kind in asked}, asked


def test_the_query_builder_gets_the_columns_of_a_table(wire):
    (row,) = wire.query(proto.get_tables(table_pattern="orders", include_schema=True)).to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert schema.names[:2] == ["o_orderkey", "o_custkey"]


def test_the_info_of_the_server_is_asked_without_a_code(wire):
    rows = wire.query(proto.get_sql_info()).to_pylist()
    told = {row["info_name"]: row["value"] for row in rows}
    assert "portcullis" in told[0].lower()
    # What the editor completes: keywords and the functions by kind.
    for code in (508, 509, 510, 511, 512):
        assert len(told[code]) > 0, code


def test_a_header_without_a_value_is_no_error(gate, received):
    """BI-09 (grafana-flightsql-datasource#115): an empty line on the settings page is sent as it is."""
    with Wire(gate, received, headers=[*HEADERS, ("bucket-name", ""), ("x", "")]) as wire:
        assert wire.sql("select 1").num_rows == 1
        assert wire.query(proto.get_tables("tpch", "public")).num_rows >= len(TABLES)


def test_a_wrong_token_fails_the_health_check_with_a_class_that_can_be_told(gate, received):
    with Wire(gate, received, headers=HEADERS) as wire:
        assert wire.sql("select 1").num_rows == 1
    with Wire(gate, received, authorization="Bearer nothing", headers=HEADERS) as wire:
        refused = wire.call("GetFlightInfo", proto.message(2, proto.statement_query("select 1")))
        refused.refused("UNAUTHENTICATED")


def test_a_query_that_is_wrong_tells_the_user_what(wire):
    refused = wire.call("GetFlightInfo", proto.message(2, proto.statement_query("select no_such_column from nation")))
    assert "no_such_column" in refused.refused("INVALID_ARGUMENT").text
    wire.still_answers()
