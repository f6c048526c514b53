"""Tokens of a real identity provider at the gate: ADBC and pyarrow, other issuers, expiry, and keys that turn.

What the provider itself promises is looked at first, so that a failure has one meaning. Must not make a token: forged
ones are tried beside the scheme.
"""

import datetime
import json
import time

import adbc_driver_manager.dbapi as adbc
import pyarrow.flight as flight
import pytest
from adbc_driver_manager import AdbcStatusCode

import flightsql_proto as proto
from conftest import Options, everything
from idp import AUDIENCE, BRIEF, CLIENT, LIFETIME, ROLE, USER, IdentityProvider, Refused
from test_pyarrow import command
from wire import own_gate

SECONDS = 20
"""Within these a new key has to be known: the gate asks for keys at most every few seconds."""


def trusting(realm, name, keys="discovery = true"):
    """The entry of the chain that takes a realm's tokens."""
    # A clock that is the provider's own needs no leeway, and expiry can be seen to the second.
    lines = [
        "[[auth]]",
        'scheme = "jwt"',
        f'name = "{name}"',
        f'issuer = "{realm.issuer}"',
        f'audience = ["{AUDIENCE}"]',
        'algorithms = ["RS256"]',
        keys,
        'roles_claim = "groups"',
        'leeway = "0s"',
    ]
    if "file" not in keys:
        lines.append(f'ca = "{realm.ca}"')
    return "\n".join(["", *lines, ""])


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


def ask(connection, sql="SELECT count(*) FROM nation"):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def signed_in(own, token, sql="SELECT count(*) FROM nation"):
    with own.adbc(authorization=token.bearer) as connection:
        return ask(connection, sql)


def refusal_of(received, where, call):
    """The text of a refusal for want of identity."""
    with pytest.raises(adbc.ProgrammingError) as caught:
        call()
    error = received.keep_error(where, caught.value)
    assert error.status_code == AdbcStatusCode.UNAUTHENTICATED, error
    return str(error)


def answers_soon(own, token):
    """Waits until a token is accepted."""
    ends = time.monotonic() + SECONDS
    while True:
        try:
            return signed_in(own, token)
        except adbc.Error:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


# --- the provider ----------------------------------------------------------------------------------------------------


def test_a_service_gets_a_token_that_says_for_whom_and_by_whom(corp):
    token = corp.client_credentials()
    claims = token.claims
    assert (claims["iss"], claims["aud"], claims["groups"]) == (corp.issuer, AUDIENCE, [ROLE])
    assert claims["sub"] == f"service-account-{CLIENT}"
    assert claims["exp"] - claims["iat"] == LIFETIME
    assert token.header["alg"] == "RS256"
    assert {token.header["kid"]} == corp.key_ids()
    assert token.text not in repr(token)


def test_the_discovery_document_names_the_issuer_and_the_keys(corp):
    document = corp.discovery()
    assert (document["issuer"], document["jwks_uri"]) == (corp.issuer, corp.jwks_url)
    assert document["token_endpoint"] == corp.token_url


def test_a_key_that_encrypts_is_in_the_set_beside_the_one_that_signs(corp):
    assert {key["use"] for key in corp.jwks()["keys"]} == {"sig", "enc"}


def test_a_person_is_another_subject_than_the_service(corp):
    assert corp.password_grant().claims["sub"] == USER
    assert corp.client_credentials(f"{CLIENT}-brief").claims["sub"] == f"service-account-{CLIENT}-brief"


def test_a_wrong_secret_and_a_wrong_password_get_no_token(corp):
    corp.client_credentials()
    with pytest.raises(Refused):
        corp.client_credentials(secret="wrong")
    corp.password_grant()
    with pytest.raises(Refused):
        corp.password_grant(password="wrong")


def test_realms_share_names_and_nothing_else(corp, other):
    ours, theirs = corp.client_credentials(), other.client_credentials()
    assert ours.claims["sub"] == theirs.claims["sub"]
    assert ours.claims["iss"] != theirs.claims["iss"]
    assert not corp.key_ids() & other.key_ids()
    with pytest.raises(Refused):
        other.client_credentials(secret=corp.secrets[CLIENT])


def test_a_new_key_signs_beside_the_old_one_until_that_is_removed():
    with IdentityProvider("rotation") as realm:
        (old,) = realm.key_ids()
        new = realm.rotate_keys()
        assert realm.key_ids() == {old, new}
        assert realm.client_credentials().header["kid"] == new
        realm.remove_old_keys()
        assert realm.key_ids() == {new}
        assert realm.client_credentials().header["kid"] == new


# --- signing in ------------------------------------------------------------------------------------------------------


def test_adbc_signs_in_with_a_token(own, corp):
    assert signed_in(own, corp.client_credentials()) == [(25,)]
    assert signed_in(own, corp.password_grant()) == [(25,)]


def test_pyarrow_signs_in_with_a_token(own, corp, other):
    def count(token):
        options = own.headers(token.bearer)
        info = client.get_flight_info(command(proto.statement_query("SELECT count(*) AS n FROM region")), options)
        return everything(client.do_get(info.endpoints[0].ticket, options)).to_pydict()

    with own.flight() as client:
        assert count(corp.client_credentials()) == {"n": [5]}
        with pytest.raises(flight.FlightUnauthenticatedError):
            count(other.client_credentials())


def test_adbc_gets_its_token_itself(own, corp):
    with own.adbc(authorization="", database=oauth(own, corp)) as connection:
        assert ask(connection) == [(25,)]
        assert ask(connection, "SELECT 1") == [(1,)]


def test_adbc_asks_once_for_a_token_and_gives_up_on_it_ten_seconds_before_its_end(own, corp):
    """The driver has no way to a second one: after that it sends nothing, and says so itself."""
    with own.adbc(authorization="", database=oauth(own, corp, f"{CLIENT}-brief")) as connection:
        with pytest.raises(adbc.ProgrammingError) as caught:
            ask(connection)
    assert "token expired" in str(caught.value)


def test_adbc_is_told_when_its_token_is_for_somebody_else(own, corp, received):
    with own.adbc(authorization="", database=oauth(own, corp, f"{CLIENT}-elsewhere")) as connection:
        refusal_of(received, "another audience by OAuth", lambda: ask(connection))


def test_adbc_connects_to_no_provider_that_its_roots_do_not_vouch_for(own, corp):
    with own.adbc(authorization="", database=oauth(own, corp)) as connection:
        assert ask(connection, "SELECT 1") == [(1,)]
    alone = oauth(own, corp) | {Options.TLS_ROOT_CERTS.value: own.ca}
    with pytest.raises(adbc.Error) as caught:
        own.adbc(authorization="", database=alone)
    assert "certificate" in str(caught.value)


def oauth(own, realm, client=CLIENT):
    """The driver's own flow. What it trusts at the gate it trusts at the token endpoint: both CAs in one text."""
    return {
        Options.TLS_ROOT_CERTS.value: own.ca + realm.ca.read_text(),
        Options.OAUTH_FLOW.value: "client_credentials",
        Options.OAUTH_TOKEN_URI.value: realm.token_url,
        Options.OAUTH_CLIENT_ID.value: client,
        Options.OAUTH_CLIENT_SECRET.value: realm.secrets[client],
    }


# --- whose token it is -----------------------------------------------------------------------------------------------


def test_tokens_of_one_subject_are_one_identity_and_of_another_are_not(own, corp, turning, received, name):
    one, again = corp.password_grant(), corp.password_grant()
    assert one.claims["jti"] != again.claims["jti"]
    signed_in(own, one, f"CREATE VIEW {name} AS SELECT 7 AS a")
    assert signed_in(own, again, f"SELECT a FROM {name}") == [(7,)]
    # Another subject of the issuer, and the same name from another one.
    for stranger in (corp.client_credentials(), turning.password_grant()):
        assert signed_in(own, stranger, "SELECT 1") == [(1,)]
        with pytest.raises(adbc.Error) as caught:
            signed_in(own, stranger, f"SELECT a FROM {name}")
        received.keep_error("another identity", caught.value)


def test_the_same_name_from_an_issuer_that_is_not_trusted_is_refused(own, corp, other, received):
    assert signed_in(own, corp.client_credentials()) == [(25,)]
    stranger = other.client_credentials()
    text = refusal_of(received, "another issuer", lambda: signed_in(own, stranger))
    assert stranger.text not in text and other.issuer not in text


def test_a_token_for_somebody_else_is_refused(own, corp, received):
    assert signed_in(own, corp.client_credentials()) == [(25,)]
    token = corp.client_credentials(f"{CLIENT}-elsewhere")
    refusal_of(received, "another audience", lambda: signed_in(own, token))


def test_keys_from_a_file_are_as_good_as_those_that_are_fetched(gate, other, received):
    file = gate.folder / f"jwks-{other.name}.json"
    try:
        file.write_text(json.dumps(other.jwks()))
        with own_gate(gate, trusting(other, "other", f'jwks = {{ file = "{file.name}" }}')) as own:
            assert signed_in(own, other.client_credentials()) == [(25,)]
            other_key = other.rotate_keys()
            token = other.client_credentials()
            assert token.header["kid"] == other_key
            refusal_of(received, "a key that is not in the file", lambda: signed_in(own, token))
    finally:
        file.unlink(missing_ok=True)


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_token_is_refused_once_it_has_expired_on_an_open_connection_too(own, corp, received):
    assert signed_in(own, corp.client_credentials()) == [(25,)]
    token = corp.client_credentials(f"{CLIENT}-brief")
    with own.adbc(authorization=token.bearer) as connection:
        assert ask(connection) == [(25,)]
        refused_at = until_refused(received, lambda: ask(connection), BRIEF + SECONDS)
        assert refused_at >= token.expires
    refusal_of(received, "expired", lambda: signed_in(own, token))
    assert signed_in(own, corp.client_credentials(f"{CLIENT}-brief")) == [(25,)]


def until_refused(received, call, seconds):
    """When the first refusal came."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            call()
        except adbc.ProgrammingError as error:
            assert received.keep_error("refused", error).status_code == AdbcStatusCode.UNAUTHENTICATED
            return datetime.datetime.now(datetime.UTC)
        time.sleep(0.5)
    pytest.fail(f"was not refused within {seconds} s")


# --- keys that turn --------------------------------------------------------------------------------------------------


def test_keys_turn_while_clients_are_connected(own, turning, received):
    old = turning.client_credentials()
    with own.adbc(authorization=old.bearer) as connection:
        assert ask(connection) == [(25,)]

        assert turning.rotate_keys() != old.header["kid"]
        new = turning.client_credentials()
        assert new.header["kid"] != old.header["kid"]
        assert answers_soon(own, new) == [(25,)]
        # The old key is still in the set.
        assert ask(connection) == [(25,)]
        assert signed_in(own, old) == [(25,)]

        with own.adbc(authorization=new.bearer) as successor:
            assert ask(successor) == [(25,)]
            # A token of the third key makes the gate fetch the set, in which neither of the others is any more.
            newest_key = turning.rotate_keys()
            turning.remove_old_keys()
            newest = turning.client_credentials()
            assert newest.header["kid"] == newest_key
            assert answers_soon(own, newest) == [(25,)]
            for where, open_one in (("the first key", connection), ("the second key", successor)):
                refusal_of(received, where, lambda: ask(open_one))
    for where, token in (("the first key again", old), ("the second key again", new)):
        refusal_of(received, where, lambda: signed_in(own, token))
    assert signed_in(own, newest) == [(25,)]


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_no_token_and_no_secret_reaches_the_output_of_the_gate(own, corp, other):
    good, bad = corp.client_credentials(), other.client_credentials()
    assert signed_in(own, good) == [(25,)]
    with pytest.raises(adbc.ProgrammingError):
        signed_in(own, bad)
    log = own.log()
    assert "listening" in log
    for token in (good, bad):
        for part in (token.text, *token.text.split(".")[1:]):
            assert part not in log
    assert not [secret for realm in (corp, other) for secret in realm.secrets.values() if secret in log]
