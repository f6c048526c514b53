"""`flightsql-dbapi` under SQLAlchemy 1.4, as Superset uses it: its URL, its inspector, its cursors.

Runs in an environment of its own (`requirements.txt` beside this file). The client has no option for a CA: gRPC reads
the one that the environment names. Must not import what the other environment alone has.
"""

import os
import subprocess
import sys
import textwrap

import flightsql
import flightsql.sqlalchemy  # registers the dialect
import pandas as pd
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import sqlalchemy as sa

from conftest import DEADLINE, within
from queries import TABLES

ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"

# Before the first channel: gRPC reads it once.
os.environ[ROOTS] = os.environ["PORTCULLIS_CA"]


def url(gate, *words, token=None):
    """The string of the documentation, with more words behind it."""
    return f"datafusion+flightsql://{gate.host}:{gate.port}?" + "&".join([f"token={token or gate.token}", *words])


@pytest.fixture
def engine(gate):
    engine = sa.create_engine(url(gate))
    yield engine
    engine.dispose()


@pytest.fixture
def inspector(engine):
    return sa.inspect(engine)


@pytest.fixture
def connection(gate):
    client = flightsql.FlightSQLClient(host=gate.host, port=gate.port, token=gate.token)
    with flightsql.connect(client) as connection:
        yield connection
    client.close()


def rows(engine, sql):
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(sql) if isinstance(sql, str) else sql)]


def unauthenticated(received, address):
    with pytest.raises(flight.FlightUnauthenticatedError) as caught:
        rows(sa.create_engine(address), "SELECT 1")
    text = str(received.keep_error("flightsql-dbapi", caught.value))
    assert "credential" in text
    return text


# --- signing in ------------------------------------------------------------------------------------------------------


def test_a_token_in_the_url_is_enough_to_select_one(engine):
    assert rows(engine, "SELECT 1") == [(1,)]


def test_without_a_token_the_client_sends_bearer_none_and_is_unauthenticated(engine, gate, received):
    assert rows(engine, "SELECT 1") == [(1,)]
    unauthenticated(received, f"datafusion+flightsql://{gate.host}:{gate.port}")
    assert rows(engine, "SELECT 1") == [(1,)]


def test_a_wrong_token_is_unauthenticated(gate, received):
    assert "nonsense" not in unauthenticated(received, url(gate, token="pk1.nonsense.nonsense"))


def test_a_password_is_refused_where_no_password_scheme_is_configured(gate, received):
    text = unauthenticated(received, f"datafusion+flightsql://alice:wonderland@{gate.host}:{gate.port}")
    assert "wonderland" not in text


def test_further_words_of_the_url_are_headers_that_do_no_harm_even_when_empty(gate):
    engine = sa.create_engine(url(gate, "database=", "x-trace=1", "pasword=mistypedInTheURL"))
    assert rows(engine, "SELECT 1") == [(1,)]
    assert "mistypedInTheURL" not in gate.output.read_text(errors="replace")


def test_the_certificate_need_not_be_checked_when_the_url_says_so(gate, received):
    unchecked = url(gate, "disable_server_verification=true")
    assert ask_alone(gate, received, unchecked).stdout.strip() == "[(1,)]"
    refused = ask_alone(gate, received, url(gate))
    assert refused.returncode != 0
    assert "certificate verify failed" in refused.stderr


def ask_alone(gate, received, address):
    """In a process that has not been told of the CA."""
    program = """
        import sys, flightsql.sqlalchemy, sqlalchemy
        with sqlalchemy.create_engine(sys.argv[1]).connect() as connection:
            print(connection.execute(sqlalchemy.text("SELECT 1")).fetchall())
    """
    env = {key: value for key, value in os.environ.items() if key != ROOTS}
    command = [sys.executable, "-c", textwrap.dedent(program), address]
    ran = within(DEADLINE, lambda: subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=env))
    received.keep("flightsql-dbapi alone", ran.stdout)
    return ran


# --- statements ------------------------------------------------------------------------------------------------------


def test_a_statement_with_columns_of_many_types_is_answered(engine):
    (row,) = rows(
        engine,
        "SELECT o_orderkey, o_orderstatus, CAST(o_totalprice AS DOUBLE) AS p, o_totalprice, o_orderdate, true, NULL "
        "FROM orders WHERE o_orderkey = 1",
    )
    assert row[0] == 1
    assert row[1] in ("F", "O", "P")
    assert row[2] == float(row[3])
    assert 1992 <= pd.Timestamp(row[4]).year <= 1998
    assert row[5] is True
    assert row[6] is None


def test_a_result_of_a_hundred_thousand_rows_is_complete(engine):
    """The client reads the first endpoint only, and does not notice when there are more."""
    found = rows(engine, "SELECT l_orderkey, l_linenumber, x FROM lineitem CROSS JOIN (VALUES (1), (2)) AS twice(x)")
    expected = 2 * rows(engine, "SELECT count(*) FROM lineitem")[0][0]
    assert len(found) == len(set(found)) == expected > 100_000


def test_an_empty_result_has_no_rows_and_its_columns(engine):
    with engine.connect() as connection:
        result = connection.execute(sa.text("SELECT n_name, n_nationkey FROM nation WHERE n_nationkey < 0"))
        assert list(result.keys()) == ["n_name", "n_nationkey"]
        assert result.fetchall() == []


def test_an_expression_with_values_is_answered_with_literals(engine):
    """Without its feature for prepared statements the dialect writes values into the text."""
    nation = sa.Table("nation", sa.MetaData(), autoload_with=engine)
    statement = sa.select(nation.c.n_name).where(nation.c.n_nationkey.in_([7, 8])).order_by(nation.c.n_nationkey)
    assert rows(engine, statement.limit(1)) == [("GERMANY",)]
    assert rows(engine, statement) == [("GERMANY",), ("INDIA",)]


def test_a_parameter_is_bound_or_refused_and_nothing_hangs(connection, received):
    """Parameters travel as dense unions, one per value."""
    cursor = connection.cursor()
    try:
        found = within(DEADLINE, lambda: cursor.execute("SELECT n_name FROM nation WHERE n_nationkey = $1", (7,)))
        assert [tuple(row) for row in found.fetchall()] == [("GERMANY",)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        assert "parameter" in str(received.keep_error("parameter", error))
    assert [tuple(row) for row in connection.cursor().execute("SELECT 1").fetchall()] == [(1,)]


def test_bad_sql_is_refused_in_the_words_of_the_planner(engine, received):
    with pytest.raises(pa.ArrowInvalid) as caught:
        rows(engine, "SELECT no_such_column FROM nation")
    assert "no_such_column" in str(received.keep_error("flightsql-dbapi", caught.value))
    assert rows(engine, "SELECT 1") == [(1,)]


def test_an_update_is_refused_without_a_hang(connection, received):
    """The client does not end its half of the stream before it reads the answer."""
    for sql in ("INSERT INTO region VALUES (99, 'X', 'x')", "DROP TABLE region"):
        with pytest.raises((pa.ArrowException, flight.FlightError)) as caught:
            within(20, lambda: connection.client.execute_update(sql))
        received.keep_error(sql, caught.value)
    assert [tuple(row) for row in connection.cursor().execute("SELECT count(*) FROM region").fetchall()] == [(5,)]


# --- metadata --------------------------------------------------------------------------------------------------------


def test_schemas_and_tables_are_told(inspector):
    assert "public" in inspector.get_schema_names()
    assert set(TABLES) <= set(inspector.get_table_names())
    assert set(TABLES) <= set(inspector.get_table_names(schema="public"))
    assert inspector.get_table_names(schema="nowhere") == []


def test_a_table_is_there_or_not(inspector):
    assert inspector.has_table("nation")
    assert not inspector.has_table("no_such_table")


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_told_with_their_types(table, inspector, engine):
    """`part` is looked for as a pattern and must not find `partsupp`; the schema is read as a stream of its own."""
    columns = inspector.get_columns(table)
    with engine.connect() as connection:
        keys = list(connection.execute(sa.text(f"SELECT * FROM {table} LIMIT 0")).keys())
    assert [column["name"] for column in columns] == keys
    assert not any(isinstance(column["type"], sa.types.BLOB) for column in columns)


def test_the_server_tells_what_the_dialect_asks_for_at_every_connect(connection, engine):
    told = connection.flightsql_get_sql_info([0, 2, 3, 504])
    assert set(told) == {0, 2, 3, 504}
    assert "portcullis" in told[0].lower()
    assert told[504] == '"'
    assert isinstance(told[3], bool)
    assert rows(engine, 'SELECT "n_name" FROM "tpch"."public"."nation" LIMIT 1') == [("ALGERIA",)]


def test_keys_are_empty_and_not_an_error(connection):
    assert connection.flightsql_get_primary_keys("nation") == []
    assert connection.flightsql_get_foreign_keys("nation") == []


def test_every_metadata_call_of_the_client_has_rows_to_read(connection):
    client = connection.client
    for info, column in [
        (client.get_catalogs(), "catalog_name"),
        (client.get_db_schemas(), "db_schema_name"),
        (client.get_tables(include_schema=True), "table_schema"),
        (client.get_table_types(), "table_type"),
        (client.get_xdbc_type_info(None), "type_name"),
    ]:
        assert len(info.endpoints) == 1
        table = client.do_get(info.endpoints[0].ticket).read_all()
        assert table.num_rows > 0
        assert column in table.schema.names
