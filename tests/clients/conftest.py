"""What every client suite shares: the gate's address, connections, and the record of all that was received.

The gate is started by `cargo xtask test clients`, which names it in the environment. Must not start or configure one.
"""

import collections
import os
import pathlib
import re
import time
import uuid

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from idp import IdentityProvider
from queries import REMOTE

Options = adbc_driver_flightsql.DatabaseOptions

DEADLINE = 60
"""Seconds; no call of these suites may take longer on the slowest machine that still is one."""


class Gate:
    """Where the gate is and what it takes to come in."""

    def __init__(self):
        self.url = os.environ["PORTCULLIS_URL"]
        self.token = pathlib.Path(os.environ["PORTCULLIS_TOKEN_FILE"]).read_text().strip()
        self.folder = pathlib.Path(os.environ["PORTCULLIS_TOKEN_FILE"]).parent
        self.ca = pathlib.Path(os.environ["PORTCULLIS_CA"]).read_text()
        self.output = pathlib.Path(os.environ["PORTCULLIS_OUTPUT"])
        self.host, port = re.fullmatch(r"grpc\+tls://([^:/]+):(\d+)/?", self.url).groups()
        self.port = int(port)

    def adbc(self, *, authorization=None, uri=None, database=None, connection=None, autocommit=True):
        """An ADBC connection; `authorization` replaces the good header, and `""` sends none."""
        options = {Options.TLS_ROOT_CERTS.value: self.ca}
        # A deadline on every call: a server that hangs fails its test instead of the whole run.
        for timeout in (Options.TIMEOUT_FETCH, Options.TIMEOUT_QUERY, Options.TIMEOUT_UPDATE):
            options[timeout.value] = str(float(DEADLINE))
        authorization = f"Bearer {self.token}" if authorization is None else authorization
        if authorization:
            options[Options.AUTHORIZATION_HEADER.value] = authorization
        options.update(database or {})
        return adbc_driver_flightsql.dbapi.connect(
            uri or self.url, db_kwargs=options, conn_kwargs=connection, autocommit=autocommit
        )

    def processor_seconds(self):
        """What the gate's process has used so far; the embedded cluster is part of it."""
        fields = pathlib.Path(f"/proc/{os.environ['PORTCULLIS_PID']}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def flight(self, **options):
        return flight.FlightClient(self.url, tls_root_certs=self.ca, **options)

    def headers(self, authorization=None, *more):
        """The call options of pyarrow with the good credential, or with another."""
        authorization = f"Bearer {self.token}" if authorization is None else authorization
        headers = [(b"authorization", authorization.encode("latin-1"))] if authorization else []
        return flight.FlightCallOptions(headers=headers + list(more), timeout=DEADLINE)


class Received:
    """Everything that the gate has sent to a client of this run, for the search at the end."""

    def __init__(self):
        self.items = []
        # The ports that clients were told to dial, of gates that tests start for themselves.
        self.gates = set()

    def keep(self, where, what):
        """Keeps text or bytes and gives them back, so that it can stand inside an expression."""
        self.items.append((where, what.encode() if isinstance(what, str) else bytes(what)))
        return what

    def keep_error(self, where, error):
        """An error with all that hangs on it: ADBC puts every header and trailer into `details`."""
        self.keep(where, str(error))
        for key, value in getattr(error, "details", None) or []:
            self.keep(f"{where} detail {key}", value)
        extra = getattr(error, "extra_info", None)
        if extra:
            self.keep(f"{where} extra info", extra)
        return error

    def keep_schema(self, where, schema):
        self.keep(where, schema.serialize().to_pybytes())
        return schema

    def keep_info(self, where, info):
        """A FlightInfo as a whole and its tickets by themselves, base64 or not."""
        self.keep(where, info.serialize())
        for endpoint in info.endpoints:
            self.keep(f"{where} ticket", endpoint.ticket.ticket)
        return info


RECEIVED = Received()


@pytest.fixture(scope="session")
def gate():
    return Gate()


@pytest.fixture(scope="session")
def received():
    return RECEIVED


@pytest.fixture(scope="session")
def corp():
    """A realm of the run's identity provider."""
    with IdentityProvider("corp") as realm:
        yield realm


@pytest.fixture(scope="session")
def other():
    """A second realm: the same names from another issuer."""
    with IdentityProvider("other") as realm:
        yield realm


@pytest.fixture
def connect(gate):
    """Opens ADBC connections and closes them when the test is over."""
    opened = []

    def open_one(**how):
        connection = gate.adbc(**how)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect):
    return connect()


@pytest.fixture
def cursor(connection):
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def client(gate):
    with gate.flight() as client:
        yield client


@pytest.fixture
def name():
    """A name that no other test uses: calls with the same API key share one session, views included."""
    return f"t_{uuid.uuid4().hex[:12]}"


def everything(reader):
    """The whole stream as a table. pyarrow's own `read_all` turns a CANCELLED from the server into a Ctrl-C."""
    return pa.Table.from_batches([chunk.data for chunk in reader], schema=reader.schema)


def refused(received, where, call):
    """Runs something that has to fail, keeps what came back, and returns the error."""
    try:
        call()
    except (adbc_driver_manager.Error, flight.FlightError, pa.ArrowException, KeyError, ValueError) as error:
        return received.keep_error(where, error)
    pytest.fail(f"{where}: was not refused")


@pytest.fixture
def refusal(received, request):
    """`refusal(call)` returns the error with which `call` was refused."""
    return lambda call: refused(received, request.node.name, call)


# --- counting --------------------------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config, items):
    """Queries without an end come late: a gate that cannot stop them would starve all that follows. The search through
    everything received comes last. What is promised of the embedded cluster only is not asked of another."""
    if REMOTE:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("embedded")])
        items[:] = [item for item in items if not item.get_closest_marker("embedded")]
    items.sort(key=lambda item: [item.get_closest_marker(name) is not None for name in ("last", "late")])


def pytest_configure(config):
    config.addinivalue_line("markers", "embedded: a promise of the demo or of its embedded cluster")
    config.addinivalue_line("markers", "late: runs when all ordinary tests have run")
    config.addinivalue_line("markers", "last: runs when all other tests have run")


COUNTS = collections.defaultdict(lambda: [0, 0, 0.0])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A skipped test is a failed one: a suite that skips tests nothing and says so quietly."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped: {report.longrepr}"


def pytest_runtest_logreport(report):
    count = COUNTS[report.nodeid.split("::")[0]]
    count[2] += report.duration
    if report.failed:
        count[1] += 1
    elif report.when == "call":
        count[0] += 1


def pytest_sessionfinish():
    """One line per file for `cargo xtask`: name, passed, failed, seconds. A run with another version of a client says so
    by PORTCULLIS_VARIANT."""
    variant = os.environ.get("PORTCULLIS_VARIANT")
    suffix = f"[{variant}]" if variant else ""
    if path := os.environ.get("PORTCULLIS_COUNTS"):
        lines = [f"{name}{suffix} {passed} {failed} {seconds:.1f}\n" for name, (passed, failed, seconds) in COUNTS.items()]
        pathlib.Path(path).write_text("".join(lines))


def within(seconds, call):
    """Runs `call` and asserts that it did not take longer."""
    started = time.monotonic()
    result = call()
    took = time.monotonic() - started
    assert took < seconds, f"took {took:.1f} s, expected less than {seconds} s"
    return result
