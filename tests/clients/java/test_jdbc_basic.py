"""The JDBC driver with `user=` and `password=`, before a scheme that takes them."""

import pytest

from basic_gate import PASSWORDS, basic_gate
from test_jdbc import DriverManager, Properties, SQLException, address, ask, jvm


@pytest.fixture(scope="module")
def own(gate):
    with basic_gate(gate) as own:
        yield own


def connect(own, user, password):
    bag = Properties()
    bag.setProperty("user", user)
    bag.setProperty("password", password)
    return DriverManager.getConnection(address(own, token=None), bag)


@pytest.mark.parametrize("user", PASSWORDS)
def test_a_user_signs_in_with_a_password_of_every_kind(user, own):
    with connect(own, user, PASSWORDS[user]) as connection, connection.createStatement() as statement:
        assert ask(statement, "SELECT count(*) FROM nation") == [(25,)]


def test_user_and_password_may_stand_in_the_url(own):
    url = address(own, token=None, user="bob", password=PASSWORDS["bob"])
    with DriverManager.getConnection(url) as connection, connection.createStatement() as statement:
        assert ask(statement, "SELECT 1") == [(1,)]


def test_a_wrong_password_and_an_unknown_user_are_refused_alike_at_connect(own, received):
    connect(own, "alice", PASSWORDS["alice"]).close()
    texts = set()
    for user, password in [("alice", "wrong"), ("nobody", "wrong")]:
        with pytest.raises(SQLException) as caught:
            connect(own, user, password)
        text = received.keep("refused", jvm.exception_text(caught.value))
        assert password not in text
        texts.add(text.split("(request")[0])
    assert len(texts) == 1, texts


def test_a_login_is_a_session_and_closing_it_leaves_the_other(own):
    with connect(own, "carol", PASSWORDS["carol"]) as one, connect(own, "carol", PASSWORDS["carol"]) as other:
        with one.createStatement() as statement:
            statement.execute("CREATE VIEW mine AS SELECT 1 AS a")
            assert ask(statement, "SELECT a FROM mine") == [(1,)]
        with other.createStatement() as statement, pytest.raises(SQLException):
            ask(statement, "SELECT a FROM mine")
        one.close()
        with other.createStatement() as statement:
            assert ask(statement, "SELECT 1") == [(1,)]
