"""Signing in with a client certificate: ADBC and pyarrow, other CAs, revocation, and a certificate beside a key.

Must not look at how names come out of certificates: that is tried beside the scheme.
"""

import adbc_driver_manager.dbapi as adbc
import pyarrow.flight as flight
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, everything, refused
from schemes import KEPT, Authority, files_beside, gate_with_certificates, reloaded
from test_pyarrow import command

CHAIN = "adbc.flight.sql.client_option.mtls_cert_chain"
KEY = "adbc.flight.sql.client_option.mtls_private_key"


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


def by_certificate(own, certificate, authorization=""):
    return own.adbc(authorization=authorization, database={CHAIN: certificate.chain, KEY: certificate.key})


def ask(connection, sql="SELECT count(*) FROM nation"):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def signed_in(own, certificate, authorization=""):
    with by_certificate(own, certificate, authorization) as connection:
        return ask(connection)


def refusal_of(received, where, call):
    with pytest.raises(adbc.Error) as caught:
        call()
    return str(received.keep_error(where, caught.value))


def test_adbc_signs_in_with_a_certificate_and_reads(own, authority):
    with by_certificate(own, authority.service("etl")) as connection:
        assert ask(connection) == [(25,)]
        catalogs = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        schemas = [schema for catalog in catalogs for schema in catalog["catalog_db_schemas"]]
        assert "nation" in {table["table_name"] for schema in schemas for table in schema["db_schema_tables"]}


def test_pyarrow_signs_in_with_a_certificate_and_reads(own, authority):
    etl = authority.service("etl")
    options = flight.FlightCallOptions(timeout=DEADLINE)
    with flight.FlightClient(own.url, tls_root_certs=own.ca, cert_chain=etl.chain, private_key=etl.key) as client:
        info = client.get_flight_info(command(proto.statement_query("SELECT count(*) AS n FROM region")), options)
        assert everything(client.do_get(info.endpoints[0].ticket, options)).to_pydict() == {"n": [5]}


def test_connections_of_one_certificate_share_a_session_and_of_another_they_do_not(own, authority, name):
    one, other = authority.service("etl"), authority.service("reports")
    with by_certificate(own, one) as first, by_certificate(own, one) as second, by_certificate(own, other) as stranger:
        ask(first, f"CREATE VIEW {name} AS SELECT 7 AS a")
        assert ask(second, f"SELECT a FROM {name}") == [(7,)]
        with pytest.raises(adbc.ProgrammingError):
            ask(stranger, f"SELECT a FROM {name}")


def test_a_ticket_of_one_certificate_does_not_open_for_another(own, authority, received):
    options = flight.FlightCallOptions(timeout=DEADLINE)

    def client(name):
        shown = authority.service(name)
        return flight.FlightClient(own.url, tls_root_certs=own.ca, cert_chain=shown.chain, private_key=shown.key)

    with client("etl") as mine, client("reports") as theirs, client("etl") as renewed:
        info = mine.get_flight_info(command(proto.statement_query("SELECT count(*) AS n FROM region")), options)
        ticket = info.endpoints[0].ticket
        assert everything(mine.do_get(ticket, options)).to_pydict() == {"n": [5]}
        # A renewed certificate is the same service.
        assert everything(renewed.do_get(ticket, options)).to_pydict() == {"n": [5]}
        refused(received, "ticket of another", lambda: everything(theirs.do_get(ticket, options)))


def test_a_certificate_of_another_ca_gets_no_connection(own, authority, received):
    assert signed_in(own, authority.service("etl")) == [(25,)]
    # Of the same name: what counts is the key that signed.
    for other in (Authority("clients"), Authority("strangers")):
        text = refusal_of(received, "another CA", lambda: signed_in(own, other.service("etl")))  # noqa: B023
        assert "count" not in text


def test_without_a_certificate_the_key_signs_in_and_nothing_does_not(own, received):
    with own.adbc() as connection:
        assert ask(connection) == [(25,)]
    with own.adbc(authorization="") as connection:
        assert "UNAUTHENTICATED" in refusal_of(received, "nothing", lambda: ask(connection)).upper()


def test_a_certificate_and_a_key_together_are_refused(own, authority, received):
    etl = authority.service("etl")
    assert signed_in(own, etl) == [(25,)]
    text = refusal_of(received, "two credentials", lambda: signed_in(own, etl, f"Bearer {own.token}"))
    assert "UNAUTHENTICATED" in text.upper()
    assert own.token not in text


def test_a_revoked_certificate_is_refused_on_the_next_call_and_gets_no_connection(own, files, authority, received):
    lost, kept = authority.service("laptop"), authority.service("etl")
    with by_certificate(own, lost) as connection, by_certificate(own, kept) as other:
        assert ask(connection) == ask(other) == [(25,)]
        files.write("crl.pem", authority.revoking(lost))
        reloaded(own)
        # The connection that is open already, and then a new one.
        refusal_of(received, "revoked", lambda: ask(connection))
        refusal_of(received, "revoked, anew", lambda: signed_in(own, lost))
        assert ask(other) == [(25,)]
    assert signed_in(own, kept) == [(25,)]


def test_a_list_that_cannot_be_read_changes_nothing(own, files, authority):
    good = authority.revoking()
    files.write("crl.pem", good[: len(good) // 2])
    try:
        reloaded(own, KEPT)
        assert signed_in(own, authority.service("etl")) == [(25,)]
    finally:
        files.write("crl.pem", good)
        reloaded(own)


def test_no_key_reaches_the_output_of_the_gate(own, authority):
    shown = authority.service("etl")
    assert signed_in(own, shown) == [(25,)]
    lines = [line for line in shown.key.splitlines() if not line.startswith("-")]
    assert not [line for line in lines if line in own.log()]
