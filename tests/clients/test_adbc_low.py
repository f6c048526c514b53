"""The ADBC driver by its own functions, as R, C# and Go programs call it: below what Python's DBAPI makes of them.

The driver is the Go one, compiled into the wheel, and `adbc_driver_manager` calls it without a layer between. Must not
repeat what test_adbc.py asks through the DBAPI.
"""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading

import adbc_driver_flightsql
import adbc_driver_manager as adbc
import pyarrow as pa
import pytest

from conftest import DEADLINE, within
from queries import ENDLESS, TABLES

ObjectDepth = adbc.GetObjectsDepth


@pytest.fixture
def low(gate):
    """A database and a connection, with nothing that the DBAPI does at connect."""
    options = adbc_driver_flightsql.DatabaseOptions
    words = {
        options.AUTHORIZATION_HEADER.value: f"Bearer {gate.token}",
        options.TLS_ROOT_CERTS.value: gate.ca,
        options.TIMEOUT_FETCH.value: str(float(DEADLINE)),
        options.TIMEOUT_QUERY.value: str(float(DEADLINE)),
        options.TIMEOUT_UPDATE.value: str(float(DEADLINE)),
    }
    with adbc_driver_flightsql.connect(gate.url, db_kwargs=words) as database:
        with adbc.AdbcConnection(database) as connection:
            yield connection


@pytest.fixture
def statement(low):
    with contextlib.closing(adbc.AdbcStatement(low)) as statement:
        yield statement


def table(handle):
    with pa.RecordBatchReader.from_stream(handle) as reader:
        return reader.read_all()


def schema(handle):
    return pa.Schema._import_from_c(handle.address)


def run(statement):
    stream, _ = statement.execute_query()
    return table(stream)


def test_a_statement_object_is_used_for_one_statement_after_another(statement):
    for number in range(3):
        statement.set_sql_query(f"SELECT {number} AS n")
        assert run(statement).to_pylist() == [{"n": number}]
    statement.set_sql_query("SELECT count(*) AS n FROM nation")
    statement.prepare()
    assert [run(statement).to_pylist() for _ in range(2)] == [[{"n": 25}]] * 2


def test_the_parameters_of_a_statement_without_any_are_an_empty_schema(statement):
    """R's DBI layer asks for them before each query, and stops where there is no answer."""
    statement.set_sql_query("SELECT n_name FROM nation LIMIT 10")
    statement.prepare()
    assert schema(statement.get_parameter_schema()).names == []
    assert run(statement).num_rows == 10


def test_the_schema_of_a_statement_is_told_prepared_or_not(statement):
    statement.set_sql_query("SELECT n_name, n_nationkey FROM nation")
    before = schema(statement.execute_schema())
    statement.prepare()
    assert schema(statement.execute_schema()).equals(before)
    assert run(statement).schema.equals(before)


def test_all_information_is_told_and_by_its_code(low):
    everything = {row["info_name"]: row["info_value"] for row in table(low.get_info()).to_pylist()}
    assert "portcullis" in everything[int(adbc.AdbcInfoCode.VENDOR_NAME)].lower()
    assert everything[int(adbc.AdbcInfoCode.VENDOR_VERSION)]
    one = table(low.get_info([adbc.AdbcInfoCode.VENDOR_NAME])).to_pylist()
    assert [row["info_name"] for row in one] == [int(adbc.AdbcInfoCode.VENDOR_NAME)]
    for code in adbc.AdbcInfoCode:
        assert len(table(low.get_info([code]))) <= 1, code


@pytest.mark.parametrize("depth", [depth.name for depth in ObjectDepth])
def test_objects_have_the_layout_of_the_specification_at_the_depth_of(depth, low):
    found = table(low.get_objects(ObjectDepth[depth]))
    assert found.schema.names == ["catalog_name", "catalog_db_schemas"]
    catalogs = {row["catalog_name"]: row["catalog_db_schemas"] for row in found.to_pylist()}
    if depth == "CATALOGS":
        assert not catalogs["tpch"]
        return
    schemas = {row["db_schema_name"]: row["db_schema_tables"] for row in catalogs["tpch"]}
    if depth == "DB_SCHEMAS":
        assert not schemas["public"]
        return
    tables = {row["table_name"]: row for row in schemas["public"]}
    assert set(TABLES) <= set(tables)
    if depth == "TABLES":
        assert not tables["nation"]["table_columns"]
        return
    columns = tables["nation"]["table_columns"]
    assert [column["ordinal_position"] for column in columns] == [1, 2, 3, 4]
    assert all(column["xdbc_type_name"] for column in columns)
    assert tables["nation"]["table_type"] == "TABLE"


def test_the_schema_of_a_table_is_found_by_its_exact_name(low, refusal):
    """`part` as a pattern would match just itself, but `p_rt` and `%` would match others."""
    assert schema(low.get_table_schema(None, None, "part")).names[0] == "p_partkey"
    assert schema(low.get_table_schema("tpch", "public", "partsupp")).names[0] == "ps_partkey"
    for pattern in ("p_rt", "%", "no_such_table"):
        refusal(lambda: schema(low.get_table_schema(None, None, pattern)))


def test_table_types_are_told(low):
    assert {"TABLE", "VIEW"} <= set(table(low.get_table_types()).column("table_type").to_pylist())


def test_a_partition_is_read_by_another_process(statement, gate, received):
    statement.set_sql_query("SELECT n_nationkey FROM nation")
    partitions, _, _ = statement.execute_partitions()
    program = """
        import os, pathlib, sys
        from adbc_driver_flightsql import dbapi
        token = pathlib.Path(os.environ["PORTCULLIS_TOKEN_FILE"]).read_text().strip()
        options = {
            "adbc.flight.sql.authorization_header": f"Bearer {token}",
            "adbc.flight.sql.client_option.tls_root_certs": pathlib.Path(os.environ["PORTCULLIS_CA"]).read_text(),
        }
        with dbapi.connect(sys.argv[1], db_kwargs=options, autocommit=True) as connection:
            with connection.cursor() as cursor:
                cursor.adbc_read_partition(sys.stdin.buffer.read())
                print(sum(key for (key,) in cursor.fetchall()))
    """
    assert partitions
    total = 0
    for partition in partitions:
        command = [sys.executable, "-c", textwrap.dedent(program), gate.url]
        received.keep("partition", partition)
        ran = subprocess.run(command, input=partition, capture_output=True, timeout=DEADLINE)
        assert ran.returncode == 0, ran.stderr.decode()
        total += int(ran.stdout)
    assert total == sum(range(25))


def test_session_options_are_told_as_a_whole(low):
    words = adbc_driver_flightsql.ConnectionOptions
    assert "tpch" in low.get_option(words.OPTION_SESSION_OPTIONS.value)


@pytest.mark.late
def test_a_cancelled_statement_object_ends_and_is_used_again(statement, received):
    statement.set_sql_query(ENDLESS)
    finished, ended = threading.Event(), []

    def wait():
        try:
            ended.append(run(statement))
        except (adbc.Error, pa.ArrowException, OSError) as error:
            ended.append(received.keep_error("cancelled", error))
        finally:
            finished.set()

    threading.Thread(target=wait, daemon=True).start()
    # Long enough to be on the cluster; then again and again, for a cancel can come too early.
    for attempt in range(40):
        if finished.wait(2 if attempt == 0 else 0.5):
            break
        statement.cancel()
    assert finished.is_set(), "the statement did not end"
    assert isinstance(ended[0], Exception)
    assert "ancel" in str(ended[0])
    statement.set_sql_query("SELECT count(*) AS n FROM nation")
    assert within(DEADLINE, lambda: run(statement)).to_pylist() == [{"n": 25}]
