"""The JDBC driver with tokens of a real identity provider: signing in, expiry, other issuers, and keys that turn.

Versions 18.2.0 and 18.3.0 have no `oauth.flow`: a program gets its token first and hands it over as `token=`. That is
what is done here, with Java's own HTTP client, and what becomes of the properties all the same. Must not make a token.
"""

import json
import time
import urllib.parse

import pytest

from conftest import DEADLINE
from idp import BRIEF, CLIENT, IdentityProvider
from test_idp import SECONDS, trusting
from test_jdbc import DriverManager, SQLException, address, ask, jpype, jvm
from wire import own_gate


@pytest.fixture(scope="module")
def turning():
    """A realm whose keys change."""
    with IdentityProvider("turning") as realm:
        yield realm


@pytest.fixture(scope="module")
def own(gate, corp, turning):
    chain = trusting(corp, "corp") + trusting(turning, "turning", f'jwks = "{turning.jwks_url}"')
    with own_gate(gate, chain, level="debug") as own:
        yield own


def connect(own, token, **more):
    return DriverManager.getConnection(address(own, token=token, **more))


def count(connection):
    with connection.createStatement() as statement:
        return ask(statement, "SELECT count(*) FROM nation")


def refusal_of(received, where, call):
    with pytest.raises(SQLException) as caught:
        call()
    return unauthenticated(received, where, caught.value)


def unauthenticated(received, where, error):
    """The text of a refusal for want of identity. The code is with a cause, and not always in a text."""
    text = received.keep(where, jvm.exception_text(error))
    codes = []
    while error is not None:
        if hasattr(error, "status"):
            codes.append(str(error.status().code()))
        error = error.getCause()
    assert codes == ["UNAUTHENTICATED"], f"{codes}: {text}"
    return text


def token_by_java(realm, client):
    """The client credentials flow with what every Java has, and the provider's CA as the only one that is trusted."""
    java = jpype.JClass
    store = java("java.security.KeyStore").getInstance("PKCS12")
    store.load(None, None)
    pem = java("java.io.ByteArrayInputStream")(realm.ca.read_bytes())
    certificates = java("java.security.cert.CertificateFactory").getInstance("X.509")
    store.setCertificateEntry("idp", certificates.generateCertificate(pem))
    factory = java("javax.net.ssl.TrustManagerFactory")
    trust = factory.getInstance(factory.getDefaultAlgorithm())
    trust.init(store)
    context = java("javax.net.ssl.SSLContext").getInstance("TLS")
    context.init(None, trust.getTrustManagers(), None)

    http = "java.net.http.Http"
    form = {"grant_type": "client_credentials", "client_id": client, "client_secret": realm.secrets[client]}
    request = (
        java(f"{http}Request")
        .newBuilder(java("java.net.URI").create(realm.token_url))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .timeout(java("java.time.Duration").ofSeconds(DEADLINE))
        .POST(java(f"{http}Request$BodyPublishers").ofString(urllib.parse.urlencode(form)))
        .build()
    )
    browser = java(f"{http}Client").newBuilder().sslContext(context).build()
    answer = browser.send(request, java(f"{http}Response$BodyHandlers").ofString())
    assert answer.statusCode() == 200, answer.body()
    return json.loads(str(answer.body()))["access_token"]


def test_a_program_gets_a_token_and_signs_in_with_it(own, corp):
    with connect(own, token_by_java(corp, CLIENT)) as connection:
        assert count(connection) == [(25,)]


def test_a_token_of_another_realm_or_for_somebody_else_is_refused_at_connect(own, corp, other, received):
    connect(own, corp.client_credentials().text).close()
    for token in (other.client_credentials(), corp.client_credentials(f"{CLIENT}-elsewhere")):
        text = refusal_of(received, "refused", lambda: connect(own, token.text))
        assert token.text not in text


def test_a_session_ends_with_the_token_that_made_it(own, corp, received):
    # Everything has been loaded once before the seconds are counted.
    with connect(own, corp.client_credentials().text) as connection:
        assert count(connection) == [(25,)]
    token = corp.client_credentials(f"{CLIENT}-brief")
    with connect(own, token.text) as connection:
        assert count(connection) == [(25,)]
        ends = time.monotonic() + BRIEF + SECONDS
        while True:
            try:
                count(connection)
            except SQLException as error:
                unauthenticated(received, "the session ended", error)
                break
            assert time.monotonic() < ends, "the session has outlived its token"
            time.sleep(0.5)
        assert time.time() >= token.claims["exp"]
    refusal_of(received, "expired", lambda: connect(own, token.text))


def test_a_connection_goes_on_when_keys_turn(own, turning):
    with connect(own, turning.client_credentials().text) as connection:
        assert count(connection) == [(25,)]
        new_key = turning.rotate_keys()
        new = turning.client_credentials()
        assert new.header["kid"] == new_key
        ends = time.monotonic() + SECONDS
        while True:
            try:
                connect(own, new.text).close()
                break
            except SQLException:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.5)
        assert count(connection) == [(25,)]


def test_the_oauth_properties_are_headers_to_these_versions_and_no_credential(own, corp, received):
    """The day that a version has the flow this fails, and the page of the driver has more to tell."""
    flow = {
        "oauth.flow": "client_credentials",
        "oauth.tokenUri": urllib.parse.quote(corp.token_url, safe=""),
        "oauth.clientId": CLIENT,
        "oauth.clientSecret": corp.secrets[CLIENT],
    }
    with connect(own, None, **flow) as connection:
        refusal_of(received, "no credential", lambda: count(connection))
    # The secret was sent to the gate, and the gate has not written it down.
    assert corp.secrets[CLIENT] not in own.log()
    with connect(own, corp.client_credentials().text, **flow) as connection:
        assert count(connection) == [(25,)]
