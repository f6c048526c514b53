"""User and password of a configured `users.toml`, whose hashes `portcullis hash-password` made."""

import threading

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import adbc_driver_manager.dbapi as adbc
import pyarrow.flight as flight
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, Options, everything
from schemes import PASSWORDS, files_beside, gate_with_users, hash_of, reloaded, users_of
from test_pyarrow import command


@pytest.fixture(scope="module")
def files(gate):
    with files_beside(gate) as files:
        yield files


@pytest.fixture(scope="module")
def own(gate, files):
    with gate_with_users(gate, files, users_of(PASSWORDS)) as own:
        yield own


def connect(own, user, password):
    options = {Options.TLS_ROOT_CERTS.value: own.ca, "username": user, "password": password}
    return adbc_driver_flightsql.dbapi.connect(own.url, db_kwargs=options, autocommit=True)


def ask(connection, sql="SELECT count(*) FROM nation"):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def refusal_of(received, own, user, password):
    with pytest.raises(adbc.Error) as caught:
        connect(own, user, password)
    return received.keep_error(f"{user} refused", caught.value)


@pytest.mark.parametrize("user", PASSWORDS)
def test_adbc_signs_in_with_a_password_of_every_kind(user, own):
    with connect(own, user, PASSWORDS[user]) as connection:
        assert ask(connection) == [(25,)]


def test_a_hash_is_of_argon2id_and_never_the_same_twice():
    one, other = hash_of(PASSWORDS["alice"]), hash_of(PASSWORDS["alice"])
    assert one.startswith("$argon2id$v=19$m=")
    assert one != other
    assert PASSWORDS["alice"] not in one


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(own, received):
    connect(own, "alice", PASSWORDS["alice"]).close()
    texts = set()
    for user, password in [("alice", "wrong"), ("nobody", "wrong"), ("Alice", PASSWORDS["alice"])]:
        error = refusal_of(received, own, user, password)
        assert error.status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED
        # Each refusal has a request id of its own.
        texts.add(str(error).split("(request")[0])
    assert len(texts) == 1, texts


def test_one_login_of_adbc_is_one_session(own, name):
    with connect(own, "bob", PASSWORDS["bob"]) as one, connect(own, "bob", PASSWORDS["bob"]) as other:
        ask(one, f"CREATE VIEW {name} AS SELECT 1 AS a")
        assert ask(one, f"SELECT a FROM {name}") == [(1,)]
        with pytest.raises(adbc.ProgrammingError):
            ask(other, f"SELECT a FROM {name}")


def test_pyarrow_gets_a_token_for_a_password_and_reads_with_it(own):
    with own.flight() as client:
        name, value = client.authenticate_basic_token("dave", PASSWORDS["dave"])
        assert (name, value[:11]) == (b"authorization", b"Bearer ps1.")
        options = flight.FlightCallOptions(headers=[(name, value)], timeout=DEADLINE)
        info = client.get_flight_info(command(proto.statement_query("SELECT count(*) AS n FROM region")), options)
        assert everything(client.do_get(info.endpoints[0].ticket, options)).to_pydict() == {"n": [5]}
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.authenticate_basic_token("dave", "wrong")


def test_the_key_of_the_run_signs_in_beside_the_passwords(own):
    with own.adbc() as connection:
        assert ask(connection) == [(25,)]


def test_a_user_who_is_taken_out_is_refused_on_the_next_call(gate):
    # A hash that is made anew is another credential, so the one who stays keeps theirs.
    erin, frank = users_of({"erin": "one"}), users_of({"frank": "two"})
    with files_beside(gate) as files, gate_with_users(gate, files, erin + frank) as own:
        with connect(own, "erin", "one") as connection, connect(own, "frank", "two") as other:
            assert ask(connection) == ask(other) == [(25,)]
            files.write("users.toml", frank)
            reloaded(own)
            with pytest.raises(adbc.Error) as caught:
                ask(connection)
            assert caught.value.status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED
            assert ask(other) == [(25,)]


def test_a_name_that_is_guessed_at_has_to_wait_and_others_do_not(gate, received):
    limits = '\n[limits]\nfailed_auth_per_name = "3/h"\n'
    users = users_of({"alice": "one", "bob": "two", "carol": "three"})
    with files_beside(gate) as files, gate_with_users(gate, files, users, limits) as own:
        with connect(own, "alice", "one") as connection, own.adbc() as by_key:
            for user in ("alice", "carol"):
                texts = [str(refusal_of(received, own, user, f"guess-{number}")) for number in range(8)]
                assert "Unauthenticated;" in texts[0] and "ResourceExhausted;" in texts[-1], texts
            # The right password has to wait as well, or guessing would go on.
            assert "ResourceExhausted;" in str(refusal_of(received, own, "carol", "three"))
            # A failure limit never stops what is cheap to verify: a session, a key, a password that was right just now.
            assert ask(connection) == ask(by_key) == [(25,)]
            with connect(own, "alice", "one") as again, connect(own, "bob", "two") as other:
                assert ask(again) == ask(other) == [(25,)]


def test_many_logins_at_once_are_all_let_in(own):
    failed = []

    def sign_in(user):
        try:
            with connect(own, user, PASSWORDS[user]) as connection:
                assert ask(connection) == [(25,)]
        except (adbc.Error, AssertionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=sign_in, args=(user,)) for user in PASSWORDS for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not failed


def test_no_password_reaches_the_output_of_the_gate(own):
    connect(own, "carol", PASSWORDS["carol"]).close()
    assert not [password for password in PASSWORDS.values() if password in own.log()]
