"""Tables in a real S3 server, read through a gate of its own, and no credential of the store where a client sees it.

The server verifies signatures and knows one pair of keys, good for one bucket. Must not know which server it is.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess

import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet
import pytest

from conftest import refused
from queries import REMOTE
from wire import binary, own_gate

ROWS = 10_000
PARTS = {"2025": 3, "2026": 4}


class Store:
    """The server of the run, and what it takes to come in."""

    def __init__(self):
        found = json.loads((pathlib.Path(os.environ["PORTCULLIS_S3"]) / "s3.json").read_text())
        self.address, self.region, self.bucket, self.other = (
            found[key] for key in ("address", "region", "bucket", "other")
        )
        self.id, self.key = found["access_key_id"], found["secret_access_key"]

    @property
    def secrets(self):
        return [self.id.encode(), self.key.encode()]

    def files(self):
        return pyarrow.fs.S3FileSystem(
            access_key=self.id,
            secret_key=self.key,
            endpoint_override=self.address.removeprefix("http://"),
            scheme="http",
            region=self.region,
        )

    def section(self, bucket, key=None):
        return f"""
[object_store."s3://{bucket}"]
region = "{self.region}"
endpoint = "{self.address}"
danger_http = true
access_key_id = "{self.id}"
secret_access_key = {key or '{ env = "TEST_S3_KEY" }'}
"""


def table(name, location, form, more=""):
    return f"""
[catalog.lake.public.{name}]
location = "{location}"
format = "{form}"
{more}

[[grant]]
to = "*"
on = "lake.public.{name}"
allow = ["select"]
"""


@pytest.fixture(scope="module")
def store():
    return Store()


@pytest.fixture(scope="module")
def tables(store):
    """What the tests read, written by somebody else than the gate."""
    files, lake = store.files(), store.bucket
    numbers = pa.table({"n": pa.array(range(ROWS), pa.int64()), "t": [f"row {n}" for n in range(ROWS)]})
    pyarrow.parquet.write_table(numbers, f"{lake}/numbers/one.parquet", filesystem=files, row_group_size=1_000)
    for year, count in PARTS.items():
        part = pa.table({"amount": pa.array(range(count), pa.int64())})
        pyarrow.parquet.write_table(part, f"{lake}/parts/year={year}/data.parquet", filesystem=files)
    with files.open_output_stream(f"{lake}/rates.csv") as out:
        pyarrow.csv.write_csv(pa.table({"code": ["EUR", "USD"], "rate": [1.0, 1.1]}), out)
    for folder in ("drop", "safe"):
        with files.open_output_stream(f"{lake}/{folder}/rates.csv") as out:
            pyarrow.csv.write_csv(pa.table({"code": ["CHF"], "rate": [0.9]}), out)
    return "".join(
        [
            f'[[location]]\nprefix = "s3://{lake}/drop/"\nto = "*"\nallow = ["read"]\n',
            store.section(lake),
            table("numbers", f"s3://{lake}/numbers/", "parquet"),
            table("parts", f"s3://{lake}/parts/", "parquet", 'partitions = ["year int"]'),
            table("rates", f"s3://{lake}/rates.csv", "csv", 'options = { has_header = "true" }'),
        ]
    )


@contextlib.contextmanager
def gate_with(gate, store, more, level="debug", change=lambda text: text):
    """A gate of its own in whose log no credential of the store may be."""
    with own_gate(gate, more=more, level=level, change=change, environment={"TEST_S3_KEY": store.key}) as own:
        yield own
        log = own.log().encode()
        assert not [secret for secret in store.secrets if secret in log]


@pytest.fixture(scope="module")
def own(gate, store, tables):
    with gate_with(gate, store, tables) as own:
        yield own


@pytest.fixture
def ask(own, received):
    with own.adbc() as connection, connection.cursor() as cursor:

        def ask(sql):
            cursor.execute(sql)
            rows = cursor.fetchall()
            received.keep(sql, repr(rows))
            return rows

        yield ask


needs_a_cluster_that_reads = pytest.mark.embedded
"""The stock processes of the remote run are started without a store; `check` says what they would need."""


@needs_a_cluster_that_reads
def test_parquet_is_read_in_parts(ask):
    assert ask("SELECT count(*), min(n), max(n) FROM lake.public.numbers") == [(ROWS, 0, ROWS - 1)]
    assert ask("SELECT t FROM lake.public.numbers WHERE n = 4711") == [("row 4711",)]


@needs_a_cluster_that_reads
def test_a_partitioned_folder_is_a_table_with_its_partitions(ask):
    expected = [(int(year), count) for year, count in PARTS.items()]
    assert ask("SELECT year, count(*) FROM lake.public.parts GROUP BY year ORDER BY year") == expected
    assert ask("SELECT count(*) FROM lake.public.parts WHERE year = 2026") == [(PARTS["2026"],)]


@needs_a_cluster_that_reads
def test_csv_is_read(ask):
    assert ask("SELECT code, rate FROM lake.public.rates ORDER BY code") == [("EUR", 1.0), ("USD", 1.1)]


@needs_a_cluster_that_reads
def test_tables_of_both_places_are_joined(ask):
    joined = "SELECT count(*) FROM lake.public.numbers JOIN tpch.public.nation ON n = n_nationkey"
    assert ask(joined) == [(25,)]


def test_the_tables_are_known_with_their_columns(own, received):
    with own.adbc() as connection:
        for name, columns in {"numbers": ["n", "t"], "parts": ["amount", "year"], "rates": ["code", "rate"]}.items():
            schema = connection.adbc_get_table_schema(name, catalog_filter="lake", db_schema_filter="public")
            assert received.keep_schema(name, schema).names == columns


def test_no_setting_and_no_plan_shows_the_store(ask, store):
    for sql in (
        "SHOW ALL",
        "SELECT * FROM information_schema.df_settings",
        "EXPLAIN SELECT * FROM lake.public.numbers",
        "SELECT * FROM information_schema.tables",
    ):
        shown = repr(ask(sql))
        for hidden in [store.id, store.key, store.address.removeprefix("http://")]:
            assert hidden not in shown, sql


def external(name, location):
    return f"CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION '{location}' OPTIONS ('format.has_header' 'true')"


@needs_a_cluster_that_reads
def test_a_file_below_an_allowed_prefix_can_be_made_a_table(ask, name, store):
    ask(external(name, f"s3://{store.bucket}/drop/rates.csv"))
    assert ask(f"SELECT code, rate FROM {name}") == [("CHF", 0.9)]


def test_what_is_not_below_an_allowed_prefix_is_no_table(own, received, name, store):
    with own.adbc() as connection, connection.cursor() as cursor:
        cursor.execute(external(name, f"s3://{store.bucket}/drop/rates.csv"))
        ways = ("safe/", "drop/../safe/", "drop/%2e%2e/safe/", "drop/%2E./safe/")
        for place in (f"{way}rates.csv" for way in ways):
            sql = external(f"{name}_safe", f"s3://{store.bucket}/{place}")
            error = refused(received, place, lambda sql=sql: cursor.execute(sql))
            assert "the location is not one that you may read" in str(error), error


@needs_a_cluster_that_reads
def test_a_table_that_sql_makes_is_kept_in_the_store(gate, store, received, name):
    def in_the_store(text):
        managed = f'managed = "s3://{store.bucket}/kept/"'
        text, found = re.subn(r'^managed = "tables"$', managed, text, flags=re.MULTILINE)
        assert found == 1
        return text

    made = f"CREATE TABLE {name} AS SELECT n_name FROM nation WHERE n_regionkey = 3"
    count = f"SELECT count(*) FROM {name}"
    with gate_with(gate, store, store.section(store.bucket), change=in_the_store) as own:
        with own.adbc() as connection, connection.cursor() as cursor:
            cursor.execute(made)
            cursor.execute(count)
            assert cursor.fetchall() == [(5,)]
            assert "already exists" in str(refused(received, "again", lambda: cursor.execute(made)))
    below = pyarrow.fs.FileSelector(f"{store.bucket}/kept", recursive=True)
    files = [file.path for file in store.files().get_file_info(below)]
    assert {".parquet", ".json"} <= {pathlib.PurePath(file).suffix for file in files}, files
    with gate_with(gate, store, store.section(store.bucket), change=in_the_store) as later:
        with later.adbc() as connection, connection.cursor() as cursor:
            cursor.execute(count)
            assert cursor.fetchall() == [(5,)]
            cursor.execute(f"DROP TABLE {name}")
            assert "not found" in str(refused(received, "dropped", lambda: cursor.execute(count)))


def test_what_is_not_configured_is_not_reached(own, received, name, store):
    with own.adbc() as connection, connection.cursor() as cursor:
        for bucket in (store.other, "nowhere"):
            location = f"s3://{bucket}/x/"
            sql = f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{location}'"
            error = refused(received, location, lambda sql=sql: cursor.execute(sql))
            assert "PERMISSION_DENIED" in str(error) or "UNAUTHORIZED" in str(error), error


@pytest.mark.parametrize("wrong", ["key", "bucket"])
def test_a_store_that_refuses_the_gate_takes_nothing_else_down(wrong, gate, store, received):
    bucket = store.bucket if wrong == "key" else store.other
    section = store.section(bucket, key='"wrong-secret-of-a-test"' if wrong == "key" else None)
    with gate_with(gate, store, section + table("numbers", f"s3://{bucket}/numbers/", "parquet")) as own:
        with own.adbc() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
            query = "SELECT count(*) FROM lake.public.numbers"
            error = refused(received, wrong, lambda: cursor.execute(query))
            for hidden in (store.address.removeprefix("http://"), "SignatureDoesNotMatch", "AccessDenied"):
                assert hidden not in str(error), error
        assert "wrong-secret-of-a-test" not in own.log()


if REMOTE:

    def test_a_cluster_that_does_not_know_the_store_is_told_apart_from_a_broken_one(own, received):
        with own.adbc() as connection, connection.cursor() as cursor:
            query = "SELECT count(*) FROM lake.public.numbers"
            error = refused(received, query, lambda: cursor.execute(query))
            assert "the cluster does not know the object store of a table" in str(error)

    def test_check_says_what_a_stock_cluster_needs(gate, store, tables):
        file = gate.folder / "check-stores.toml"
        file.write_text((gate.folder / "portcullis.toml").read_text() + tables)
        try:
            command = [binary(), "check", "--config", str(file)]
            environment = os.environ | {"TEST_S3_KEY": store.key}
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        finally:
            file.unlink()
        assert ran.returncode == 0, ran.stderr
        [note] = [line for line in ran.stdout.splitlines() if "lake.public.numbers" in line]
        assert "lake.public.parts" in note and "lake.public.rates" in note
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", f"AWS_REGION={store.region}"):
            assert variable in note
        assert f"AWS_ENDPOINT={store.address}" in note
        assert not [secret for secret in (store.id, store.key) if secret in ran.stdout + ran.stderr]


@pytest.mark.last
def test_no_credential_of_the_store_was_received(store, received):
    finds = [where for where, data in received.items for secret in store.secrets if secret in data]
    assert not finds
    assert any(re.search(rb"row 4711", data) for _, data in received.items) or REMOTE
