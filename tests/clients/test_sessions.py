"""Sessions by cookie: connections with one API key that do not share what they set."""

import re

import adbc_driver_manager.dbapi as adbc
import pytest

from conftest import Options
from wire import own_gate

COOKIES = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}


def ask(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


@pytest.fixture
def with_cookies(connect):
    """Opens ADBC connections that keep cookies."""
    assert Options.WITH_COOKIE_MIDDLEWARE.value in COOKIES
    return lambda: connect(database=COOKIES)


def test_without_cookies_connections_with_one_key_share_a_session(connect, name):
    one, other = connect(), connect()
    ask(one, f"CREATE VIEW {name} AS SELECT 1 AS a")
    assert ask(other, f"SELECT a FROM {name}") == [(1,)]
    ask(one, f"DROP VIEW {name}")


def test_connections_that_keep_cookies_have_views_of_their_own(with_cookies, name):
    one, other = with_cookies(), with_cookies()
    ask(one, f"CREATE VIEW {name} AS SELECT 1 AS a")
    ask(other, f"CREATE VIEW {name} AS SELECT 2 AS a")
    assert ask(one, f"SELECT a FROM {name}") == [(1,)]
    assert ask(other, f"SELECT a FROM {name}") == [(2,)]


def test_connections_that_keep_cookies_have_settings_of_their_own(with_cookies, connect):
    setting = "datafusion.execution.batch_size"
    one, other, without = with_cookies(), with_cookies(), connect()
    usual = ask(without, f"SHOW {setting}")
    ask(one, f"SET {setting} = 1234")
    ask(other, f"SET {setting} = 4321")
    assert [ask(connection, f"SHOW {setting}")[0][-1] for connection in (one, other)] == ["1234", "4321"]
    assert ask(without, f"SHOW {setting}") == usual


def test_connections_that_keep_cookies_have_catalogs_of_their_own(gate):
    configured = (gate.folder / "portcullis.toml").read_text()
    table = re.search(r'\[catalog\.tpch\.public\.region\]\nlocation = ("[^"]+")', configured)
    second = f'\n[catalog.second.extra.only_here]\nlocation = {table.group(1)}\nformat = "parquet"\n'
    with own_gate(gate, second) as own, own.adbc(database=COOKIES) as one, own.adbc(database=COOKIES) as other:
        one.adbc_current_catalog = "second"
        one.adbc_current_db_schema = "extra"
        assert (one.adbc_current_catalog, other.adbc_current_catalog) == ("second", "tpch")
        assert ask(one, "SELECT count(*) FROM only_here") == [(5,)]
        assert ask(other, "SELECT count(*) FROM nation") == [(25,)]
        with pytest.raises(adbc.ProgrammingError):
            ask(other, "SELECT count(*) FROM only_here")


def test_closing_a_connection_ends_its_session_and_no_other(with_cookies, name):
    one, other = with_cookies(), with_cookies()
    ask(other, f"CREATE VIEW {name} AS SELECT 2 AS a")
    ask(one, f"CREATE VIEW {name} AS SELECT 1 AS a")
    one.close()
    assert ask(other, f"SELECT a FROM {name}") == [(2,)]
    with pytest.raises(adbc.ProgrammingError):
        ask(with_cookies(), f"SELECT a FROM {name}")
