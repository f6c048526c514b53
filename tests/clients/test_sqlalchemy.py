"""SQLAlchemy 2 by `sqlalchemy-adbc`: its URL, its inspector, statements as text and as expressions.

What a web application or a notebook does. Must not work round the dialect: what it cannot do is said where it is shown.
"""

import urllib.parse
import warnings

import adbc_driver_manager as adbc
import pytest
import sqlalchemy as sa

from queries import TABLES


def url(gate, authorization):
    """The dialect hands all that it does not know to the driver, so the CA itself stands in the URL."""
    words = {
        "authorization": authorization,
        "adbc.flight.sql.client_option.tls_root_certs": gate.ca,
        "adbc.flight.sql.rpc.timeout_seconds.fetch": "60",
        "adbc.flight.sql.rpc.timeout_seconds.query": "60",
        "adbc.flight.sql.rpc.timeout_seconds.update": "60",
    }
    query = urllib.parse.urlencode({key: value for key, value in words.items() if value})
    return f"adbc+flightsql://{gate.host}:{gate.port}?{query}"


@pytest.fixture
def open_engine():
    """Opens engines and lets go of their pools when the test is over."""
    opened = []

    def open_one(address):
        opened.append(sa.create_engine(address))
        return opened[-1]

    with warnings.catch_warnings():
        # SQLAlchemy leaves autocommit off, and the driver says that there are no transactions.
        warnings.simplefilter("ignore", adbc.Warning)
        yield open_one
        for engine in opened:
            engine.dispose()


@pytest.fixture
def engine(open_engine, gate):
    return open_engine(url(gate, f"Bearer {gate.token}"))


@pytest.fixture
def inspector(engine):
    return sa.inspect(engine)


def rows(engine, statement):
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(statement)]


def test_a_statement_as_text_is_answered(engine):
    assert rows(engine, sa.text("SELECT 1")) == [(1,)]
    assert len(rows(engine, sa.text("SELECT n_name FROM nation WHERE n_regionkey = 3"))) == 5


def test_the_token_may_stand_as_the_password_of_the_url(open_engine, gate):
    address = url(gate, None).replace("://", f"://anyone:{urllib.parse.quote(gate.token)}@")
    assert rows(open_engine(address), sa.text("SELECT 1")) == [(1,)]


def test_no_token_and_a_wrong_one_are_unauthenticated(open_engine, engine, gate, received):
    assert rows(engine, sa.text("SELECT 1")) == [(1,)]
    for authorization in (None, "Bearer nonsense"):
        with pytest.raises(sa.exc.ProgrammingError) as caught:
            rows(open_engine(url(gate, authorization)), sa.text("SELECT 1"))
        assert received.keep_error("sqlalchemy", caught.value.orig).status_code == adbc.AdbcStatusCode.UNAUTHENTICATED
        assert "credential" in str(caught.value)


def test_the_pool_pings_its_connections(gate, open_engine):
    engine = sa.create_engine(url(gate, f"Bearer {gate.token}"), pool_pre_ping=True, pool_size=1)
    for _ in range(3):
        assert rows(engine, sa.text("SELECT 1")) == [(1,)]
    engine.dispose()


def test_schemas_are_told(inspector):
    assert "public" in inspector.get_schema_names()


def test_tables_are_found_by_their_names(inspector):
    for table in TABLES:
        assert inspector.has_table(table)
        assert inspector.has_table(table, schema="public")
    assert not inspector.has_table("no_such_table")
    assert not inspector.has_table("nation", schema="no_such_schema")


def test_the_dialect_lists_only_what_a_server_calls_table_in_lower_case(engine, inspector, connection):
    """Its `get_table_names` compares with `table`, as SQLite says; Flight SQL servers say `TABLE`. All tables are in
    what it was sent, and the information schema lists them as well."""
    assert inspector.get_table_names() == []
    kinds = {
        table["table_type"]
        for catalog in connection.adbc_get_objects(depth="tables", table_name_filter="nation").read_all().to_pylist()
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    assert kinds == {"TABLE"}
    listed = rows(engine, sa.text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"))
    assert set(TABLES) <= {name for (name,) in listed}


def test_view_names_are_asked_for_without_an_error(inspector):
    assert inspector.get_view_names() == []


def test_columns_are_told_with_their_types(inspector):
    columns = inspector.get_columns("nation")
    assert [column["name"] for column in columns] == ["n_nationkey", "n_name", "n_regionkey", "n_comment"]
    types = {column["name"]: column["type"] for column in inspector.get_columns("lineitem", schema="public")}
    assert len(types) == 16
    for name, expected in {
        "l_orderkey": sa.BigInteger,
        "l_linenumber": sa.Integer,
        "l_quantity": sa.Numeric,
        "l_comment": sa.String,
        "l_shipdate": sa.Date,
    }.items():
        assert isinstance(types[name], expected), (name, types[name])


def test_every_type_of_the_tables_has_a_name_that_the_dialect_knows(inspector):
    for table in TABLES:
        for column in inspector.get_columns(table):
            assert not isinstance(column["type"], sa.types.NullType), (table, column)


def test_keys_and_indexes_are_empty_and_not_an_error(inspector):
    assert inspector.get_pk_constraint("nation") == {"constrained_columns": [], "name": None}
    assert inspector.get_foreign_keys("nation") == []
    assert inspector.get_indexes("nation") == []
    assert inspector.get_unique_constraints("nation") == []


def test_a_reflected_table_is_selected_from(engine):
    nation = sa.Table("nation", sa.MetaData(), autoload_with=engine)
    statement = sa.select(nation.c.n_name).where(nation.c.n_nationkey == sa.literal_column("7"))
    assert rows(engine, statement) == [("GERMANY",)]


def test_a_table_that_is_written_down_is_joined_and_grouped(engine):
    nation = sa.table("nation", sa.column("n_name"), sa.column("n_regionkey"))
    region = sa.table("region", sa.column("r_name"), sa.column("r_regionkey"))
    statement = (
        sa.select(region.c.r_name, sa.func.count().label("n"))
        .join_from(nation, region, nation.c.n_regionkey == region.c.r_regionkey)
        .group_by(region.c.r_name)
        .order_by(region.c.r_name)
    )
    assert rows(engine, statement) == [(name, 5) for name in ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")]


def test_a_bound_value_is_bound_or_refused_but_never_dropped(engine, received):
    nation = sa.table("nation", sa.column("n_name"), sa.column("n_nationkey"))
    statement = sa.select(nation.c.n_name).where(nation.c.n_nationkey == 7)
    try:
        assert rows(engine, statement) == [("GERMANY",)]
    except (sa.exc.ProgrammingError, sa.exc.NotSupportedError) as error:
        assert "parameter" in str(received.keep_error("bound", error.orig))
    # The way round it: values written into the text, by the dialect and not by hand.
    literal = statement.compile(engine, compile_kwargs={"literal_binds": True})
    assert rows(engine, sa.text(str(literal))) == [("GERMANY",)]


def test_an_error_names_the_column_and_the_connection_lives(engine, received):
    with engine.connect() as connection:
        with pytest.raises(sa.exc.ProgrammingError) as caught:
            connection.execute(sa.text("SELECT no_such_column FROM nation"))
        assert "no_such_column" in str(received.keep_error("sqlalchemy", caught.value.orig))
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1


def test_a_whole_table_arrives_through_the_engine(engine):
    assert len(rows(engine, sa.text("SELECT o_orderkey FROM orders"))) == 15_000
