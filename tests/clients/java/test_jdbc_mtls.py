"""The JDBC driver with a client certificate, and with user and password of a configured `users.toml`."""

import pytest

from schemes import PASSWORDS, Authority, files_beside, gate_with_certificates, gate_with_users, reloaded, users_of
from test_jdbc import DriverManager, Properties, SQLException, address, ask, jvm

CHAIN, KEY = "clientCertificate", "clientKey"


@pytest.fixture(scope="module")
def authority():
    return Authority("clients")


@pytest.fixture(scope="module")
def files(gate):
    with files_beside(gate) as files:
        yield files


@pytest.fixture(scope="module")
def own(gate, files, authority):
    with gate_with_certificates(gate, files, authority) as own:
        yield own


def connect(own, files, certificate, name="client", **more):
    chain, key = files.write(f"{name}.pem", certificate.chain), files.write(f"{name}.key", certificate.key)
    properties = {"token": None, CHAIN: chain, KEY: key} | more
    return DriverManager.getConnection(address(own, **properties))


def count(connection):
    with connection.createStatement() as statement:
        return ask(statement, "SELECT count(*) FROM nation")


def refusal_of(received, where, call):
    with pytest.raises(SQLException) as caught:
        call()
    return received.keep(where, jvm.exception_text(caught.value))


def test_a_certificate_signs_in_and_reads(own, files, authority):
    with connect(own, files, authority.service("etl")) as connection:
        assert count(connection) == [(25,)]
        with connection.getMetaData().getTables(None, None, "nation", None) as tables:
            assert tables.next()
            assert str(tables.getString("TABLE_NAME")) == "nation"


def test_a_certificate_of_another_ca_gets_no_connection(own, files, authority, received):
    with connect(own, files, authority.service("etl")) as connection:
        assert count(connection) == [(25,)]

    def stranger():
        with connect(own, files, Authority("clients").service("etl"), "stranger") as connection:
            count(connection)

    refusal_of(received, "another CA", stranger)


def test_a_revoked_certificate_is_refused_on_the_next_statement(own, files, authority, received):
    lost, kept = authority.service("laptop"), authority.service("etl")
    with connect(own, files, kept, "kept") as other, connect(own, files, lost, "lost") as connection:
        assert count(connection) == count(other) == [(25,)]
        files.write("crl.pem", authority.revoking(lost))
        reloaded(own)
        refusal_of(received, "revoked", lambda: count(connection))
        assert count(other) == [(25,)]


def test_a_certificate_and_a_token_together_are_refused(own, files, authority, received):
    etl = authority.service("etl")
    with connect(own, files, etl) as connection:
        assert count(connection) == [(25,)]

    def both():
        with connect(own, files, etl, token=own.token) as connection:
            count(connection)

    assert "UNAUTHENTICATED" in refusal_of(received, "two credentials", both).upper()


def test_users_of_the_configuration_sign_in_with_their_passwords(gate, received):
    with files_beside(gate) as files, gate_with_users(gate, files, users_of(PASSWORDS)) as own:

        def by_password(user, password):
            bag = Properties()
            bag.setProperty("user", user)
            bag.setProperty("password", password)
            return DriverManager.getConnection(address(own, token=None), bag)

        for user, password in PASSWORDS.items():
            with by_password(user, password) as connection:
                assert count(connection) == [(25,)]
        texts = set()
        for user, password in [("alice", "wrong"), ("nobody", "wrong")]:
            text = refusal_of(received, user, lambda: by_password(user, password))  # noqa: B023
            assert password not in text
            texts.add(text.split("(request")[0])
        assert len(texts) == 1, texts
        assert not [password for password in PASSWORDS.values() if password in own.log()]
