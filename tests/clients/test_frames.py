"""Polars and pandas over ADBC: the frames that they make, and what they cannot say to the driver.

Both are compared with pyarrow's own table of the same statement. Must not repeat what test_adbc.py asks of the driver.
"""

import os
import subprocess
import sys
import textwrap

import adbc_driver_manager as adbc
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest

from conftest import DEADLINE
from queries import TABLES
from test_tpch import compare, compare_names
from test_tpch import other_engine_with_our_data, tpch  # noqa: F401  (fixtures)

STATEMENTS = {
    "aggregates": "SELECT n_regionkey, count(*) AS n, sum(n_nationkey) FROM nation GROUP BY n_regionkey ORDER BY 1",
    "constants": "SELECT 1 AS one, 'two' AS two, 2.5 AS half, true AS yes",
    "dates": "SELECT o_orderkey, o_orderdate FROM orders ORDER BY o_orderkey LIMIT 100",
    "decimals": "SELECT l_orderkey, l_extendedprice, l_discount FROM lineitem ORDER BY 1, 2 LIMIT 100",
    "empty": "SELECT n_name, n_nationkey FROM nation WHERE n_nationkey < 0",
    "nulls": "SELECT n_name, nullif(n_regionkey, 1) AS r, nullif(n_name, 'PERU') AS n FROM nation ORDER BY n_nationkey",
    "table": "SELECT * FROM orders ORDER BY o_orderkey",
    "timestamps": "SELECT TIMESTAMP '2024-02-29 12:34:56.789' AS at, TIME '12:34:56' AS time",
}


def arrow(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


# --- Polars ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", STATEMENTS)
def test_polars_reads_the_same_frame_as_pyarrow(statement, connection):
    sql = STATEMENTS[statement]
    frame = pl.read_database(sql, connection)
    polars.testing.assert_frame_equal(frame, pl.from_arrow(arrow(connection, sql)))
    assert frame.height > 0 or statement == "empty"


def test_polars_reads_every_table_whole(connection):
    for table in TABLES:
        frame = pl.read_database(f"SELECT * FROM {table}", connection)
        assert frame.height == arrow(connection, f"SELECT count(*) AS n FROM {table}").column("n")[0].as_py()


def test_polars_reads_in_batches(connection):
    batches = list(pl.read_database("SELECT o_orderkey FROM orders", connection, iter_batches=True, batch_size=1000))
    assert len(batches) > 1
    assert pl.concat(batches)["o_orderkey"].n_unique() == 15_000


def test_polars_casts_to_the_types_that_it_is_told(connection):
    told = {"n_nationkey": pl.Int16}
    assert pl.read_database("SELECT n_nationkey FROM nation", connection, schema_overrides=told).schema == told


def test_polars_binds_a_parameter_or_is_refused(connection, received):
    sql = "SELECT n_name FROM nation WHERE n_nationkey = $1"
    try:
        frame = pl.read_database(sql, connection, execute_options={"parameters": [7]})
        assert frame.to_dicts() == [{"n_name": "GERMANY"}]
    except (adbc.NotSupportedError, adbc.ProgrammingError) as error:
        assert "parameter" in str(received.keep_error(sql, error))
    assert pl.read_database("SELECT 1 AS one", connection).to_dicts() == [{"one": 1}]


def test_polars_is_told_what_is_wrong_with_a_statement(connection, refusal):
    error = refusal(lambda: pl.read_database("SELECT no_such_column FROM nation", connection))
    assert isinstance(error, adbc.ProgrammingError)
    assert "no_such_column" in str(error)


def test_polars_cannot_write_a_table_and_is_told_so(connection, refusal, name):
    frame = pl.DataFrame({"a": [1, 2, 3]})
    error = refusal(lambda: frame.write_database(name, connection, engine="adbc"))
    assert isinstance(error, adbc.NotSupportedError)


@pytest.mark.parametrize("number", [1, 6, 13])
def test_polars_and_the_other_engine_agree_on_query(number, tpch, connection):  # noqa: F811
    sql, names, expected = tpch[number]
    frame = pl.read_database(sql, connection)
    compare_names(names, frame.columns)
    compare(number, expected, frame.rows())


@pytest.mark.parametrize("user", ["", "alice:wonderland@"])
def test_polars_by_uri_has_no_way_to_say_a_credential_and_the_text_names_what_is_missing(user, gate, received):
    """`read_database_uri` has no driver options, and the driver drops a user and password that stand in the URI."""
    program = f"""
        import adbc_driver_manager, polars
        try:
            polars.read_database_uri("SELECT 1", "flightsql://{user}{gate.host}:{gate.port}", engine="adbc")
        except adbc_driver_manager.ProgrammingError as error:
            print(error.status_code.name, error)
    """
    # A process of its own: the driver reads this variable once, and it is the only way to name a CA here.
    env = {**os.environ, "SSL_CERT_FILE": os.environ["PORTCULLIS_CA"]}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=env)
    received.keep("polars by uri", ran.stdout)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("UNAUTHENTICATED")
    assert "credential" in ran.stdout and "authorization" in ran.stdout
    assert "wonderland" not in ran.stdout


# --- pandas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", STATEMENTS)
def test_pandas_reads_the_same_frame_as_pyarrow(statement, connection):
    sql = STATEMENTS[statement]
    frame = pd.read_sql(sql, connection, dtype_backend="pyarrow")
    expected = arrow(connection, sql).to_pandas(types_mapper=pd.ArrowDtype)
    pd.testing.assert_frame_equal(frame, expected)


def test_pandas_reads_into_its_own_types(connection):
    frame = pd.read_sql("SELECT n_nationkey, n_name FROM nation ORDER BY 1", connection)
    assert frame["n_nationkey"].tolist() == list(range(25))
    assert frame["n_name"][7] == "GERMANY"


def test_pandas_looks_for_a_table_named_like_the_statement_first(connection):
    """Its text becomes a pattern for table names, so whatever stands in a statement has to be a pattern as well."""
    for sql, value in {
        "select 'a%b''c' as x": "a%b'c",
        "select '\\' as x": "\\",
        "select '%\\%_' as x": "%\\%_",
        "select '[a-z]*(' as x": "[a-z]*(",
        'select \'"\' as x -- %_"\'': '"',
        f"select '{'%' * 1000}' as x": "%" * 1000,
    }.items():
        assert pd.read_sql(sql, connection)["x"].tolist() == [value], sql


def test_pandas_reads_a_table_by_its_name(connection):
    expected = arrow(connection, "SELECT * FROM nation").to_pandas()
    for frame in (pd.read_sql("nation", connection), pd.read_sql_table("nation", connection)):
        pd.testing.assert_frame_equal(frame.sort_values("n_nationkey"), expected.sort_values("n_nationkey"))


def test_pandas_is_told_what_is_wrong_with_a_statement(connection, received):
    with pytest.raises(pd.errors.DatabaseError, match="No field named no_such_column") as caught:
        pd.read_sql("SELECT no_such_column FROM nation", connection)
    assert isinstance(received.keep_error("pandas", caught.value.__cause__), adbc.ProgrammingError)


def test_pandas_cannot_write_a_table_and_is_told_so(connection, received, name):
    with pytest.raises(pd.errors.DatabaseError) as caught:
        pd.DataFrame({"a": [1]}).to_sql(name, connection)
    # pandas says a sentence of its own and keeps the driver's as the cause.
    assert isinstance(received.keep_error(name, caught.value.__cause__), adbc.NotSupportedError)


def test_a_frame_library_gets_plain_arrow_types(connection):
    """No views, dictionaries or run ends: what a frame library does with those differs from version to version."""
    schema = arrow(connection, "SELECT * FROM orders LIMIT 1").schema
    assert schema.field("o_comment").type == pa.string()
    assert not any(pa.types.is_dictionary(field.type) for field in schema)
