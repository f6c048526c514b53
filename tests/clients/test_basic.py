"""User and password before a scheme that takes them: the handshake mints a token, and the client goes on with it."""

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import adbc_driver_manager.dbapi as adbc
import pyarrow.flight as flight
import pytest

import flightsql_proto as proto
from basic_gate import PASSWORDS, basic_gate
from conftest import DEADLINE, Options, everything
from test_pyarrow import command


@pytest.fixture(scope="module")
def own(gate):
    with basic_gate(gate) as own:
        yield own


def connect(own, user, password):
    options = {Options.TLS_ROOT_CERTS.value: own.ca, "username": user, "password": password}
    return adbc_driver_flightsql.dbapi.connect(own.url, db_kwargs=options, autocommit=True)


@pytest.mark.parametrize("user", PASSWORDS)
def test_adbc_signs_in_with_a_password_of_every_kind(user, own):
    with connect(own, user, PASSWORDS[user]) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM nation")
        assert cursor.fetchall() == [(25,)]


def test_adbc_is_refused_alike_for_a_wrong_password_and_an_unknown_user(own, received):
    connect(own, "alice", PASSWORDS["alice"]).close()
    texts = set()
    for user, password in [("alice", "wrong"), ("nobody", "wrong"), ("alice", "")]:
        with pytest.raises(adbc.ProgrammingError) as caught:
            connect(own, user, password)
        assert received.keep_error("refused", caught.value).status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED
        # Each refusal has a request id of its own.
        texts.add(str(caught.value).split("(request")[0])
    assert len(texts) == 1, texts


def test_one_login_of_adbc_is_one_session(own):
    with connect(own, "bob", PASSWORDS["bob"]) as one, connect(own, "bob", PASSWORDS["bob"]) as other:
        with one.cursor() as cursor:
            cursor.execute("CREATE VIEW mine AS SELECT 1 AS a")
            cursor.execute("SELECT a FROM mine")
            assert cursor.fetchall() == [(1,)]
        with other.cursor() as cursor, pytest.raises(adbc.ProgrammingError):
            cursor.execute("SELECT a FROM mine")


def test_pyarrow_gets_a_token_for_a_password_and_reads_with_it(own):
    with own.flight() as client:
        name, value = client.authenticate_basic_token("dave", PASSWORDS["dave"])
        assert (name, value[:11]) == (b"authorization", b"Bearer ps1.")
        options = flight.FlightCallOptions(headers=[(name, value)], timeout=DEADLINE)
        info = client.get_flight_info(command(proto.statement_query("SELECT count(*) AS n FROM region")), options)
        assert everything(client.do_get(info.endpoints[0].ticket, options)).to_pydict() == {"n": [5]}
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.authenticate_basic_token("dave", "wrong")


def test_no_password_reaches_the_output_of_the_gate(own):
    connect(own, "carol", PASSWORDS["carol"]).close()
    assert not [password for password in PASSWORDS.values() if password in own.log()]
