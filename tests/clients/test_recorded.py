"""What each client sends to connect, list the tables, ask one statement and close, as it was recorded.

The record is `expect/wire-<client>.txt`: one line per call with the names of its headers. A client whose calls change
with a new version fails here first. `PORTCULLIS_BLESS=1` writes the records anew. Must not judge: a call that is here
is what the client does, and the other suites say whether it is answered well.
"""

import os
import pathlib
import subprocess
import textwrap
import urllib.parse
import warnings

import adbc_driver_flightsql.dbapi
import adbc_driver_manager as adbc
import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa

from conftest import DEADLINE, within
from queries import ENDLESS
from recorder import Recorder

EXPECT = pathlib.Path(__file__).parent / "expect"

SQL = "SELECT n_name FROM nation"


# --- the clients -----------------------------------------------------------------------------------------------------


def connect(gate, proxy, **connection):
    options = adbc_driver_flightsql.DatabaseOptions
    words = {options.AUTHORIZATION_HEADER.value: f"Bearer {gate.token}", options.TLS_ROOT_CERTS.value: proxy.ca}
    return adbc_driver_flightsql.dbapi.connect(proxy.url, db_kwargs=words, conn_kwargs=connection, autocommit=True)


def use_adbc(gate, proxy):
    with connect(gate, proxy) as connection, connection.cursor() as cursor:
        connection.adbc_get_objects(depth="tables").read_all()
        cursor.execute(SQL)
        assert len(cursor.fetchall()) == 25


def use_pandas(gate, proxy):
    """Lists no tables itself, but looks for one that is called like the statement."""
    with connect(gate, proxy) as connection:
        assert len(pd.read_sql(SQL, connection)) == 25


def use_polars(gate, proxy):
    """Has no call that lists tables."""
    with connect(gate, proxy) as connection:
        assert len(pl.read_database(SQL, connection)) == 25


def use_sqlalchemy(gate, proxy):
    words = {"authorization": f"Bearer {gate.token}", "adbc.flight.sql.client_option.tls_root_certs": proxy.ca}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adbc.Warning)
        engine = sa.create_engine(f"adbc+flightsql://{proxy.host}:{proxy.port}?{urllib.parse.urlencode(words)}")
        sa.inspect(engine).get_table_names()
        with engine.connect() as connection:
            assert len(connection.execute(sa.text(SQL)).fetchall()) == 25
        engine.dispose()


def use_dbapi(gate, proxy):
    program = f"""
        import sys, flightsql.sqlalchemy, sqlalchemy
        engine = sqlalchemy.create_engine(sys.argv[1])
        assert "nation" in sqlalchemy.inspect(engine).get_table_names()
        with engine.connect() as connection:
            assert len(connection.execute(sqlalchemy.text({SQL!r})).fetchall()) == 25
        engine.dispose()
    """
    address = f"datafusion+flightsql://{proxy.host}:{proxy.port}?token={gate.token}"
    apart(program, address, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(proxy.ca_file))


def use_harlequin(gate, proxy):
    program = f"""
        import sys, warnings
        from harlequin_adbc import HarlequinAdbcAdapter
        warnings.simplefilter("ignore")
        connection = HarlequinAdbcAdapter(sys.argv[1:2], driver_type="flightsql", db_kwargs_str=sys.argv[2]).connect()
        assert connection.get_catalog().items
        cursor = connection.execute({SQL!r})
        assert cursor.fetchall().num_rows == 25
        cursor.cur.close()
        connection.conn.close()
    """
    options = f"adbc.flight.sql.authorization_header=Bearer {gate.token}"
    apart(program, f"flightsql://{proxy.host}:{proxy.port}", options, SSL_CERT_FILE=str(proxy.ca_file))


def use_go(gate, proxy):
    run([os.environ["PORTCULLIS_GO_TESTS"]], PORTCULLIS_GO_TASK="wire", **place(proxy))


def use_go_database_sql(gate, proxy):
    """A pool lists no tables, and says nothing when it is closed."""
    name = "TestDatabaseSQLSelectsWithATokenInTheName"
    run([os.environ["PORTCULLIS_GO_TESTS"], "-test.run", f"^{name}$"], **place(proxy))


def use_rust_cli(gate, proxy):
    command = [os.environ["PORTCULLIS_FLIGHT_SQL_CLIENT"], "--host", proxy.host, "--port", str(proxy.port), "--tls"]
    for words in (["tables", "tpch"], ["statement-query", SQL], ["prepared-statement-query", SQL]):
        run([*command, "--token", gate.token, *words], SSL_CERT_FILE=str(proxy.ca_file), RUST_BACKTRACE="0")


CLIENTS = {
    "adbc": use_adbc,
    "flightsql-dbapi": use_dbapi,
    "go": use_go,
    "go-database-sql": use_go_database_sql,
    "harlequin-adbc": use_harlequin,
    "pandas": use_pandas,
    "polars": use_polars,
    "rust-cli": use_rust_cli,
    "sqlalchemy-adbc": use_sqlalchemy,
}


def place(proxy):
    return {"PORTCULLIS_URL": proxy.url, "PORTCULLIS_CA": str(proxy.ca_file)}


def apart(program, *arguments, **env):
    run([os.environ["PORTCULLIS_APART_PYTHON"], "-c", textwrap.dedent(program), *arguments], **env)


def run(command, **env):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env={**os.environ, **env})
    assert ran.returncode == 0, ran.stdout + ran.stderr


# --- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_the_calls_of_a_client_are_those_on_record(client, gate):
    with Recorder(gate) as proxy:
        CLIENTS[client](gate, proxy)
        recorded = "".join(line + "\n" for line in proxy.lines)
    assert gate.token not in recorded
    path = EXPECT / f"wire-{client}.txt"
    if os.environ.get("PORTCULLIS_BLESS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(recorded)
    assert recorded == path.read_text(), f"{client} sent something else; see {path.name}"


def test_every_record_belongs_to_a_client():
    recorded = {path.stem.removeprefix("wire-") for path in EXPECT.glob("wire-*.txt")}
    # The JDBC driver has a suite of its own that records it in the same folder.
    assert {client for client in recorded if not client.startswith(("jdbc", "java"))} == set(CLIENTS)


def test_the_proxy_passes_errors_on_and_records_no_secret(gate, received):
    """The good case is every test above; a proxy that swallowed errors would make them meaningless."""
    with Recorder(gate) as proxy:
        words = {
            "adbc.flight.sql.authorization_header": "Bearer pk1.thisIsNot.onRecord",
            "adbc.flight.sql.client_option.tls_root_certs": proxy.ca,
        }
        with adbc_driver_flightsql.dbapi.connect(proxy.url, db_kwargs=words, autocommit=True) as connection:
            with connection.cursor() as cursor, pytest.raises(adbc.ProgrammingError) as caught:
                cursor.execute(SQL)
        recorded = "\n".join(proxy.lines)
    assert received.keep_error("through the proxy", caught.value).status_code == adbc.AdbcStatusCode.UNAUTHENTICATED
    assert "DoAction CreatePreparedStatement <authorization: Bearer" in recorded
    assert "onRecord" not in recorded
    assert "nation" not in recorded


@pytest.mark.late
def test_the_deadline_of_a_client_reaches_the_gate_through_the_proxy(gate, received):
    limit = {adbc_driver_flightsql.ConnectionOptions.TIMEOUT_QUERY.value: "1.0"}
    with Recorder(gate) as proxy, connect(gate, proxy, **limit) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc.OperationalError) as caught:
            within(10, lambda: cursor.execute(ENDLESS))
        assert received.keep_error("deadline", caught.value).status_code == adbc.AdbcStatusCode.TIMEOUT
        assert proxy.calls[-1] == "GetFlightInfo CommandPreparedStatementQuery"
    with gate.adbc() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM nation")
        assert cursor.fetchall() == [(25,)]
