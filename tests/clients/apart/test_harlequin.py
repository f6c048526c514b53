"""Harlequin's ADBC adapter: the catalog that its side bar shows, and statements with and without its limit of rows.

The adapter is all of Harlequin that meets a server. Its option string is cut at every `=`, so a CA (whose text has
some) comes from the environment, as `SSL_CERT_FILE`. Must not start the terminal program itself.
"""

import os
import warnings

import adbc_driver_manager as adbc
import pytest
from harlequin.exception import HarlequinConfigError, HarlequinQueryError
from harlequin_adbc import HarlequinAdbcAdapter

from queries import TABLES


@pytest.fixture(autouse=True, scope="module")
def trust():
    """The driver is Go and sees the environment that the process was started with, so it cannot be set here."""
    ca = os.environ["PORTCULLIS_CA"]
    assert os.environ.get("SSL_CERT_FILE") == ca, "these tests are run with SSL_CERT_FILE set to the CA of the gate"


def adapt(gate, options, scheme="flightsql"):
    return HarlequinAdbcAdapter([f"{scheme}://{gate.host}:{gate.port}"], driver_type="flightsql", db_kwargs_str=options)


@pytest.fixture
def harlequin(gate):
    with warnings.catch_warnings():
        # Harlequin leaves autocommit off, and the driver says that there are no transactions.
        warnings.simplefilter("ignore", adbc.Warning)
        connection = adapt(gate, f"adbc.flight.sql.authorization_header=Bearer {gate.token}").connect()
    yield connection
    connection.conn.close()


@pytest.fixture
def catalog(harlequin):
    return {item.label: item for item in harlequin.get_catalog().items}


def children(item):
    return {child.label: child for child in item.children}


def test_a_statement_is_answered_with_its_columns(harlequin):
    cursor = harlequin.execute("SELECT n_name, n_nationkey FROM nation ORDER BY n_nationkey")
    assert cursor.columns() == [("n_name", "s"), ("n_nationkey", "##")]
    table = cursor.fetchall()
    assert table.num_rows == 25
    assert table.column("n_name")[7].as_py() == "GERMANY"


def test_both_schemes_of_the_driver_reach_the_gate(gate, harlequin):
    assert harlequin.execute("SELECT 1 AS one").fetchall().to_pylist() == [{"one": 1}]
    options = f"adbc.flight.sql.authorization_header=Bearer {gate.token}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adbc.Warning)
        other = adapt(gate, options, scheme="grpc+tls").connect()
    assert other.execute("SELECT 1 AS one").fetchall().to_pylist() == [{"one": 1}]
    other.conn.close()


def test_the_limit_cuts_a_result_and_the_next_statement_is_whole(harlequin):
    limited = harlequin.execute("SELECT l_orderkey FROM lineitem").set_limit(500)
    assert len(limited.fetchall()) == 500
    assert harlequin.execute("SELECT l_orderkey FROM lineitem").fetchall().num_rows > 60_000


def test_an_empty_result_has_its_columns(harlequin):
    cursor = harlequin.execute("SELECT n_name FROM nation WHERE n_nationkey < 0")
    assert cursor.columns() == [("n_name", "s")]
    assert cursor.fetchall().num_rows == 0


def test_the_catalog_tree_is_complete(catalog, harlequin):
    assert "tpch" in catalog
    schemas = children(catalog["tpch"])
    assert "public" in schemas
    tables = children(schemas["public"])
    assert set(TABLES) <= set(tables)
    for table in TABLES:
        assert tables[table].type_label == "t"
        expected = harlequin.execute(f"SELECT * FROM {table} LIMIT 1").fetchall().schema.names
        assert list(children(tables[table])) == expected


def test_the_names_that_the_tree_inserts_are_answered(catalog, harlequin):
    nation = children(children(catalog["tpch"])["public"])["nation"]
    column = children(nation)["n_name"]
    assert nation.query_name == '"tpch"."public"."nation"'
    found = harlequin.execute(f"SELECT {column.query_name} FROM {nation.query_name}").fetchall()
    assert found.num_rows == 25


def test_a_view_stands_in_the_tree_as_a_view(harlequin, name):
    harlequin.execute(f"CREATE VIEW {name} AS SELECT n_name FROM nation")
    try:
        tree = {item.label: item for item in harlequin.get_catalog().items}
        view = children(children(tree["tpch"])["public"])[name]
        assert view.type_label == "v"
        assert list(children(view)) == ["n_name"]
    finally:
        harlequin.execute(f"DROP VIEW {name}")


def test_bad_sql_is_shown_in_the_words_of_the_planner(harlequin, received):
    with pytest.raises(HarlequinQueryError) as caught:
        harlequin.execute("SELECT no_such_column FROM nation")
    assert "no_such_column" in received.keep("harlequin", caught.value.msg)
    assert harlequin.execute("SELECT 1 AS one").fetchall().to_pylist() == [{"one": 1}]


def test_a_missing_and_a_wrong_token_are_shown_with_the_reason(gate, harlequin, received):
    assert harlequin.execute("SELECT 1 AS one").fetchall().to_pylist() == [{"one": 1}]
    for options in (None, "adbc.flight.sql.authorization_header=Bearer nonsense"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", adbc.Warning)
            other = adapt(gate, options).connect()
        with pytest.raises(HarlequinQueryError) as caught:
            other.execute("SELECT 1")
        assert "credential" in received.keep("harlequin", caught.value.msg)
        assert "nonsense" not in caught.value.msg
        other.conn.close()


def test_the_adapter_wants_to_be_told_the_driver(gate):
    with pytest.raises(HarlequinConfigError):
        HarlequinAdbcAdapter([f"flightsql://{gate.host}:{gate.port}"])
