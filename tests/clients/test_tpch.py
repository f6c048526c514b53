"""TPC-H: all 22 queries at scale 0.01, row by row against another engine, through ADBC, pyarrow and the Rust client.

DuckDB gets the rows that the gate serves and runs the same SQL text; its own generator is what the rows themselves
are compared with. Must not adapt a query: what is standard
enough for DuckDB and DataFusion is asked as it is.
"""

import decimal
import itertools
import math
import os
import subprocess

import duckdb
import duckdb_extensions
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import flightsql_proto as proto
from conftest import everything
from queries import TABLES

# Which output columns a query orders by. Rows that are equal in these may come in any order.
ORDER = {
    1: (0, 1),
    2: (0, 2, 1, 3),
    3: (1, 2),
    4: (0,),
    5: (1,),
    6: (),
    7: (0, 1, 2),
    8: (0,),
    9: (0, 1),
    10: (2,),
    11: (1,),
    12: (0,),
    13: (1, 0),
    14: (),
    15: (0,),
    16: (3, 0, 1, 2),
    17: (),
    18: (4, 3),
    19: (),
    20: (0,),
    21: (1, 0),
    22: (0,),
}


@pytest.fixture(scope="module")
def other_engine():
    """DuckDB with its own data."""
    yield from engine("CALL dbgen(sf = 0.01)")


@pytest.fixture(scope="module")
def other_engine_with_our_data(gate):
    """DuckDB with the tables as the gate serves them: the generators agree on all but the random text."""
    for connection in engine("CALL dbgen(sf = 0)"):
        with gate.adbc() as ours, ours.cursor() as cursor:
            for table in TABLES:
                names = ", ".join(columns(connection, table))
                cursor.execute(f"SELECT {names} FROM {table}")
                connection.register("ours", cursor.fetch_arrow_table())
                connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM ours")
                connection.unregister("ours")
        yield connection


def engine(fill):
    connection = duckdb.connect()
    duckdb_extensions.import_extension("tpch", con=connection)
    connection.execute("LOAD tpch")
    connection.execute(fill)
    yield connection
    connection.close()


def columns(connection, table):
    return [column[0] for column in connection.execute(f"SELECT * FROM {table} LIMIT 0").description]


@pytest.fixture(scope="module")
def tpch(other_engine_with_our_data):
    """{number: (sql, expected column names, expected rows)}"""
    answers = {}
    for number, sql in other_engine_with_our_data.execute("SELECT query_nr, query FROM tpch_queries()").fetchall():
        result = other_engine_with_our_data.execute(sql)
        answers[number] = (sql.rstrip().rstrip(";"), [column[0] for column in result.description], result.fetchall())
    assert sorted(answers) == sorted(ORDER)
    return answers


@pytest.mark.parametrize("number", ORDER)
def test_adbc_and_the_other_engine_agree_on_query(number, tpch, cursor):
    sql, names, expected = tpch[number]
    cursor.execute(sql)
    compare_names(names, [column[0] for column in cursor.description])
    compare(number, expected, cursor.fetchall())


@pytest.mark.parametrize("number", ORDER)
def test_pyarrow_and_the_other_engine_agree_on_query(number, tpch, gate, client):
    sql, names, expected = tpch[number]
    descriptor = flight.FlightDescriptor.for_command(proto.statement_query(sql))
    info = client.get_flight_info(descriptor, gate.headers())
    table = pa.concat_tables(everything(client.do_get(e.ticket, gate.headers())) for e in info.endpoints)
    assert table.schema.equals(info.schema)
    compare_names(names, table.schema.names)
    compare(number, expected, list(zip(*(column.to_pylist() for column in table.columns))))


@pytest.mark.parametrize("number", ORDER)
def test_the_rust_client_and_the_other_engine_agree_on_query(number, tpch, gate):
    sql, names, expected = tpch[number]
    client = [os.environ["PORTCULLIS_RUST_CLIENT"], os.environ["PORTCULLIS_CA"], os.environ["PORTCULLIS_TOKEN_FILE"]]
    ran = subprocess.run([*client, gate.url], input=sql.encode(), capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
    table = pa.ipc.open_stream(ran.stdout).read_all()
    compare_names(names, table.schema.names)
    compare(number, expected, list(zip(*(column.to_pylist() for column in table.columns))))


@pytest.mark.parametrize("table", TABLES)
def test_the_generated_table_is_that_of_the_other_engine(table, other_engine, cursor):
    # Random text comes from another pool of words in DuckDB; every number, date, key and name is the same.
    names = [name for name in columns(other_engine, table) if not name.endswith(("_comment", "_address"))]
    sql = f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(names[:4])}"
    cursor.execute(sql)
    ours = cursor.fetchall()
    assert len(ours) > 0
    assert ours == other_engine.execute(sql).fetchall()


# --- comparing -------------------------------------------------------------------------------------------------------


def compare_names(expected, got):
    """Names that the query gives are equal; what an engine calls a nameless expression is its own affair."""
    assert len(got) == len(expected)
    assert all(want == have for want, have in zip(expected, got) if want.isidentifier())


def compare(number, expected, got):
    assert len(got) == len(expected)
    by = ORDER[number]
    for at, (want, have) in enumerate(zip(expected, got)):
        for column in by:
            assert same(want[column], have[column]), f"row {at}, column {column}: {want} and {have}"
    # Between equal keys any order is right, so each such group is compared sorted.
    at = 0
    for _, group in itertools.groupby(expected, key=lambda row: [row[column] for column in by] if by else None):
        wanted = sorted(group, key=rough)
        found = sorted(got[at : at + len(wanted)], key=rough)
        for want, have in zip(wanted, found):
            assert len(want) == len(have)
            assert all(map(same, want, have)), f"group at row {at}: {want} and {have}"
        at += len(wanted)


def rough(row):
    """A sort key that two engines agree on although their decimals have other scales."""
    return [f"{value:.2f}" if isinstance(value, (float, decimal.Decimal)) else str(value) for value in row]


def same(want, have):
    """Equal, up to the scale that the coarser of the two decimals can hold, or 1e-9 where one is a float."""
    numbers = (float, decimal.Decimal)
    if want is None or have is None or not (isinstance(want, numbers) or isinstance(have, numbers)):
        return want == have
    steps = [10.0 ** value.as_tuple().exponent for value in (want, have) if isinstance(value, decimal.Decimal)]
    if len(steps) == 2 and steps[0] == steps[1]:
        return want == have
    return math.isclose(want, have, rel_tol=1e-9, abs_tol=max(steps, default=0.0) * 1.01)
