"""What the Flight SQL that Ballista once had was reported for, each as a test: its endpoints, its errors, its DDL.

datafusion-ballista#756, #839, #941, #1012 and #1349, and reports of other servers about endpoints and locations (EP).
Must not be satisfied by an error where the reporter had expected rows.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import adbc_driver_flightsql
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.flight as flight
import pyarrow.parquet as parquet
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, Received, everything
from queries import TABLES
from test_reports_connect import located
from wire import Wire, descriptor, own_gate, path, relay

STAGES = "SELECT n_regionkey, count(*) AS n FROM nation GROUP BY n_regionkey ORDER BY n_regionkey"


def command(sql):
    return flight.FlightDescriptor.for_command(proto.statement_query(sql))


# --- datafusion-ballista#1012, arrow-adbc#862: endpoint locations ----------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_ballista_1012_an_info_has_one_endpoint_without_a_location_whatever_the_host(host, gate):
    """#1012: the location was that of an executor, and JDBC and Go could not even run `SELECT 1`."""
    with flight.FlightClient(f"grpc+tls://{host}:{gate.port}", tls_root_certs=gate.ca) as client:
        for sql in ("SELECT 1 AS x", STAGES, "SELECT * FROM lineitem", "SHOW TABLES", "EXPLAIN SELECT 1"):
            info = client.get_flight_info(command(sql), gate.headers())
            assert len(info.endpoints) == 1, sql
            assert info.endpoints[0].locations == [], sql
            assert everything(client.do_get(info.endpoints[0].ticket, gate.headers())).num_rows > 0, sql


def test_ballista_1012_a_prepared_statement_and_metadata_have_no_location_either(gate, received):
    with Wire(gate, received) as wire:
        prepared = wire.prepare(STAGES)
        for body in (proto.prepared_query(prepared.handle), proto.get_catalogs(), proto.get_tables()):
            info = wire.info(body)
            assert (len(info.endpoints), info.locations) == (1, [])
            assert wire.get(info.tickets[0]).num_rows > 0
        wire.close(prepared.handle)


@pytest.mark.parametrize("sql", ["SELECT 1", STAGES])
def test_arrow_adbc_862_the_go_driver_reads_what_the_gate_answers(sql, cursor):
    """arrow-adbc#862: the same fault, met by ADBC."""
    cursor.execute(sql)
    assert cursor.fetchall() == ([(1,)] if sql == "SELECT 1" else [(region, 5) for region in range(5)])


def test_ep_05_a_gate_that_is_bound_to_every_address_advertises_none(gate):
    """EP-05 (doris#36340, arrow#40369): clients were told to dial 0.0.0.0."""

    def everywhere(text):
        return text.replace('listen = "127.0.0.1:0"', 'listen = "0.0.0.0:0"')

    with own_gate(gate, change=everywhere) as own:
        kept = Received()
        with Wire(own, kept) as wire:
            for sql in ("SHOW TABLES", "EXPLAIN SELECT 1", "SELECT 1", STAGES):
                info = wire.info(proto.statement_query(sql))
                assert (len(info.endpoints), info.locations) == (1, []), sql
                assert wire.get(info.tickets[0]).num_rows > 0, sql
            assert wire.query(proto.get_catalogs()).num_rows > 0
        assert len(kept.items) > 10
        for where, data in kept.items:
            assert b"0.0.0.0" not in data and str(own.port).encode() not in data, where


def test_ep_09_a_ticket_is_read_with_the_credential_and_not_without(gate, received):
    """EP-09 (arrow#38576): a driver that follows an endpoint may forget its token on the way."""
    with Wire(gate, received) as wire:
        (ticket,) = wire.info(proto.statement_query(STAGES)).tickets
        with Wire(gate, received) as other:
            assert other.get(ticket).num_rows == 5
        with Wire(gate, received, authorization="") as nobody:
            nobody.call("DoGet", proto.message(ticket)).refused("UNAUTHENTICATED")
        assert wire.get(ticket).num_rows == 5


def test_ep_11_odd_characters_and_long_statements_survive_the_ticket(cursor):
    """EP-11 (doris#58830): an ampersand in the SQL broke the ticket."""
    odd = 'a&b=c|d;e:f%20\\n"?#'
    cursor.execute(f"SELECT '{odd}' AS s, '日本語' AS u, ';' AS semicolon FROM nation LIMIT 1")
    assert cursor.fetchall() == [(odd, "日本語", ";")]
    long = "x" * 900_000
    cursor.execute(f"SELECT length('{long}') AS n")
    assert cursor.fetchall() == [(len(long),)]


def test_ep_15_a_sorted_result_is_sorted_when_its_endpoints_are_read_in_order(gate, client):
    """EP-15 (doris#67578)."""
    info = client.get_flight_info(command("SELECT l_orderkey AS k FROM lineitem ORDER BY k"), gate.headers())
    keys = []
    for endpoint in info.endpoints:
        keys += everything(client.do_get(endpoint.ticket, gate.headers())).column("k").to_pylist()
    assert len(keys) > 60_000
    assert keys == sorted(keys)
    assert info.ordered or len(info.endpoints) == 1


# --- datafusion-ballista#941: DecodeErrors with pyarrow --------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    ["select 'Hello from Arrow Ballista!';", "  select 'Hello from Arrow Ballista!' ;\n-- done\n", "SELECT ';' AS x"],
)
def test_ballista_941_pyarrow_reads_a_statement_with_semicolons_and_comments(sql, gate, client):
    """#941: what the reporter asked, as the Flight SQL command that it has to be."""
    info = client.get_flight_info(command(sql), gate.headers())
    (row,) = everything(client.do_get(info.endpoints[0].ticket, gate.headers())).to_pylist()
    assert list(row.values()) in (["Hello from Arrow Ballista!"], [";"])


@pytest.mark.parametrize(
    "sql",
    [
        b"select 'Hello from Arrow Ballista!';",
        b"create external table sample stored as CSV with header row location '/mnt/sample.csv';",
        b"SELECT 1",
        b"",
    ],
)
def test_ballista_941_and_er_01_plain_sql_is_refused_in_words_that_help(sql, gate, received):
    """#941, ER-01: SQL put straight into a descriptor was answered with the errors of a protobuf parser."""
    with Wire(gate, received) as wire:
        wire.still_answers()
        for rpc in ("GetFlightInfo", "GetSchema"):
            refused = wire.call(rpc, descriptor(sql)).refused("INVALID_ARGUMENT")
            assert "Flight SQL" in refused.text
            for internal in ("DecodeError", "wire type", "underflow", "varint", "prost", "type_url"):
                assert internal not in refused.text
        # A path is another way in which plain Flight asks.
        refused = wire.call("GetFlightInfo", path("nation")).refused("INVALID_ARGUMENT", "UNIMPLEMENTED")
        assert "Flight SQL" in refused.text


# --- datafusion-ballista#756, #839: "Unable to find factory for PARQUET" ---------------------------------------------

FORMATS = {
    "parquet": "STORED AS PARQUET LOCATION '{folder}/trips.parquet'",
    "parquet_in_lower_case": "stored as parquet\nlocation '{folder}/trips.parquet' ;",
    "csv": "STORED AS CSV LOCATION '{folder}/trips.csv' OPTIONS ('format.has_header' 'true')",
    "json": "STORED AS JSON LOCATION '{folder}/trips.json'",
    "parquet_url": "STORED AS PARQUET LOCATION 'file://{folder}/trips.parquet'",
    "parquet_folder": "STORED AS PARQUET LOCATION '{folder}/many/'",
}


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """A folder of files that a rule names, and beside it one that none names."""
    folder = tmp_path_factory.mktemp("trips").resolve()
    table = pa.table({"id": [1, 2, 3], "city": ["Bern", "Basel", "Zug"]})
    (folder / "many").mkdir()
    (folder.parent / "elsewhere").mkdir()
    parquet.write_table(table, folder / "trips.parquet")
    parquet.write_table(table, folder.parent / "elsewhere" / "trips.parquet")
    csv.write_csv(table, folder / "trips.csv")
    (folder / "trips.json").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for part in range(3):
        parquet.write_table(table.slice(part, 1), folder / "many" / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def own(gate, trips):
    with own_gate(gate, located(trips)) as own:
        yield own


@pytest.mark.parametrize("how", ["query", "prepared", "update"])
@pytest.mark.parametrize("form", FORMATS)
def test_ballista_756_and_839_an_external_table_is_made_and_read(form, how, own, trips, name):
    """#756, #839: every format failed with "Unable to find factory", in `executeQuery` and `executeUpdate` alike."""
    sql = f"create external table {name} {FORMATS[form].format(folder=trips)}"
    with Wire(own, Received()) as wire:
        match how:
            case "query":
                assert wire.sql(sql).num_rows == 1
            case "prepared":
                prepared = wire.prepare(sql)
                assert prepared.is_update
                wire.call("DoPut", proto.message(descriptor(proto.prepared_update(prepared.handle)))).good()
                wire.close(prepared.handle)
            case "update":
                wire.call_held_open("DoPut", proto.message(descriptor(proto.statement_update(sql))), timeout=30).good()
        rows = wire.sql(f"SELECT id, city FROM {name} ORDER BY id").to_pylist()
        assert rows == [{"id": 1, "city": "Bern"}, {"id": 2, "city": "Basel"}, {"id": 3, "city": "Zug"}]
        joined = wire.sql(f"SELECT count(*) AS n FROM {name} JOIN nation ON n_nationkey = id").to_pylist()
        assert joined == [{"n": 3}]
        wire.sql(f"DROP TABLE {name}")


def test_ballista_756_and_839_the_go_driver_makes_an_external_table(own, trips, name):
    with own.adbc() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{trips}/trips.parquet'")
        cursor.execute(f"SELECT count(*) FROM {name}")
        assert cursor.fetchall() == [(3,)]
        cursor.execute(f"DROP TABLE {name}")


def test_ballista_756_and_839_no_table_is_made_where_no_rule_allows_it(own, trips, gate, received, name):
    def create(folder):
        sql = f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{folder}/trips.parquet'"
        return descriptor(proto.statement_query(sql))

    kept = Received()
    with Wire(own, kept) as wire:
        wire.call("GetFlightInfo", create(trips)).good()
        wire.sql(f"DROP TABLE {name}")
        elsewhere = trips.parent / "elsewhere"
        refused = wire.call("GetFlightInfo", create(elsewhere)).refused("PERMISSION_DENIED")
        missing = wire.call("GetFlightInfo", create(elsewhere / "no-such-folder")).refused("PERMISSION_DENIED")
        climbing = wire.call("GetFlightInfo", create(f"{trips}/../elsewhere")).refused("PERMISSION_DENIED")
        # What is there and what is not cannot be told apart, and "no factory" is not the reason.
        assert refused.text == missing.text == climbing.text
        assert "factory" not in refused.text
        wire.call("GetFlightInfo", descriptor(proto.statement_query(f"SELECT * FROM {name}"))).refused(
            "INVALID_ARGUMENT"
        )
    # The gate of the run has no rule at all.
    with Wire(gate, received) as wire:
        wire.still_answers()
        wire.call("GetFlightInfo", create(trips)).refused("PERMISSION_DENIED")


# --- datafusion-ballista#1349: results outside the container network -------------------------------------------------

SCRIPT = pathlib.Path(__file__).parent / "one_door.py"
ASKED = [
    "SELECT 1 AS x",
    STAGES,
    "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, count(*) AS n FROM lineitem GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT c_custkey, o_orderkey FROM customer JOIN orders ON c_custkey = o_custkey ORDER BY 1, 2",
    "SELECT * FROM region ORDER BY r_regionkey",
]


def test_ballista_1349_clients_that_reach_only_the_gates_port_get_everything(gate, cursor, tmp_path):
    """#1349: only one port was published, and clients were sent to executors inside the container network."""
    expected = {}
    for sql in ASKED:
        cursor.execute(sql)
        expected[sql] = [[str(value) for value in row] for row in cursor.fetchall()]
    door = str(tmp_path / "door")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(door)
    listener.listen()
    with relay(listener, lambda: socket.create_connection((gate.host, gate.port), timeout=DEADLINE)) as dialled:
        request = {"socket": door, "port": gate.port, "ca": gate.ca, "token": gate.token, "sql": ASKED}
        ran = subprocess.run(
            [sys.executable, str(SCRIPT)],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=200,
            cwd=SCRIPT.parent,
            env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"},
        )
        assert ran.returncode == 0, ran.stderr.decode()[-3000:]
        assert len(dialled) >= 2
    told = json.loads(ran.stdout)
    # In a network of its own the gate's port itself is out of reach; without one the list below is the proof.
    assert told["alone"] != told["reachable"]
    for sql in ASKED:
        assert len(expected[sql]) > 0
        for client in ("adbc", "pyarrow"):
            assert told["answers"][f"{client} {sql}"] == expected[sql], f"{client}: {sql}"
    # Every TCP socket of the clients is the door's own, or leads to it.
    assert [told["door"], "0.0.0.0:0"] in told["seen"]
    assert [ends for ends in told["seen"] if ends[1] == told["door"]]
    assert [ends for ends in told["seen"] if told["door"] not in ends] == []


def test_ballista_1349_all_of_a_table_comes_through_one_forwarded_port(gate, cursor):
    """#1349: the published port of a container, on another address than the gate knows of itself."""
    Options = adbc_driver_flightsql.DatabaseOptions
    with socket.create_server(("127.0.0.9", 0)) as listener:
        port = listener.getsockname()[1]
        with relay(listener, lambda: socket.create_connection((gate.host, gate.port), timeout=DEADLINE)) as dialled:
            database = {Options.TLS_OVERRIDE_HOSTNAME.value: "localhost"}
            with gate.adbc(uri=f"grpc+tls://127.0.0.9:{port}", database=database) as connection:
                with connection.cursor() as through:
                    for table in TABLES:
                        sql = f"SELECT * FROM {table} ORDER BY 1, {4 if table == 'lineitem' else 2}"
                        through.execute(sql)
                        cursor.execute(sql)
                        rows = through.fetch_arrow_table()
                        assert rows.num_rows > 0
                        assert rows.equals(cursor.fetch_arrow_table()), table
            assert len(dialled) >= 1
        started = time.monotonic()
    # The door is shut, and there was no other.
    with pytest.raises(adbc_driver_flightsql.dbapi.OperationalError):
        with gate.adbc(uri=f"grpc+tls://127.0.0.9:{port}", database=database) as connection:
            with connection.cursor() as through:
                through.execute("SELECT 1")
    assert time.monotonic() - started < 30
