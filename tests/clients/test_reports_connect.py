"""Public reports of servers that clients could not connect to, each as a test: group "connect, authentication, TLS".

A docstring names the report; what is asserted is the behaviour that the reporters missed. Reports about a password
scheme are proven in Rust with an embedder's scheme, since none that takes a password can be configured yet: AU-04 by
`handshake::the_token_is_told_in_initial_headers_of_a_basic_handshake_only`, AU-10 by `session::at_the_cap_of_*` and
`session::closing_a_session_ends_its_token_and_its_results`. Must not leave anything in the shared session.
"""

import base64
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import adbc_driver_manager as adbc
import pyarrow.flight as flight
import pyarrow.parquet as parquet
import pytest

import flightsql_proto as proto
from conftest import Received, within
from wire import EMPTY_SCHEMA, Http2, Wire, descriptor, flight_data, own_gate

Options = adbc_driver_flightsql.DatabaseOptions


def located(folder):
    """A rule that lets everybody read files of a folder."""
    return f'[[location]]\nprefix = "{folder.resolve()}/"\nto = ["*"]\nallow = ["read"]\n'


@pytest.fixture
def files(tmp_path, gate, received):
    """A folder with `region.parquet`, five rows."""
    with Wire(gate, received) as wire:
        parquet.write_table(wire.sql("SELECT * FROM region"), tmp_path / "region.parquet")
    return tmp_path


def test_au_01_a_table_that_one_call_registers_is_found_by_the_next_and_by_nobody_else(gate, files, name):
    """AU-01 (datafusion-ballista#112, #269): a client could not name its session from one call to the next."""
    table = f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{files.resolve()}/region.parquet'"
    count = f"SELECT count(*) AS n FROM {name}"
    with own_gate(gate, located(files), principals=["other"]) as own, contextlib.ExitStack() as stack:
        # A gate of its own has paths of its own in its errors.
        owner = stack.enter_context(Wire(own, Received()))
        stranger = stack.enter_context(Wire(own, Received(), authorization=""))
        other = stack.enter_context(Wire(own, Received(), authorization=f"Bearer {own.tokens['other']}"))
        owner.sql(table)
        assert owner.sql(count).to_pylist() == [{"n": 5}]
        with Wire(own, Received()) as again:
            assert again.sql(count).to_pylist() == [{"n": 5}]
        stranger.call("GetFlightInfo", descriptor(proto.statement_query(count))).refused("UNAUTHENTICATED")
        assert other.sql("SELECT count(*) AS n FROM region").to_pylist() == [{"n": 5}]
        missing = other.call("GetFlightInfo", descriptor(proto.statement_query(count)))
        assert name in missing.refused("INVALID_ARGUMENT", "NOT_FOUND").text


@pytest.mark.parametrize("word", ["bearer", "BEARER", "Bearer", "bEaReR"])
def test_au_03_the_scheme_word_may_be_in_any_case(word, gate, received):
    """AU-03 (datafusion-ballista#1228)."""
    with Wire(gate, received, authorization=f"{word} {gate.token}") as wire:
        assert wire.sql("SELECT 1 AS x").to_pylist() == [{"x": 1}]


def test_au_03_a_header_that_cannot_be_read_is_unauthenticated_and_told_nowhere(gate, received):
    """AU-03 (datafusion-ballista#1228): a colon in a password, another scheme or no header were INTERNAL."""
    with Wire(gate, received) as wire:
        wire.still_answers()
    # `bob` with the password `a:b:secretOfAu03:c`, padded; and what is no header of a known form.
    bad = [
        "",
        "Basic Ym9iOmE6YjpzZWNyZXRPZkF1MDM6Yw==",
        "basic Ym9iOmE6YjpzZWNyZXRPZkF1MDM6Yw",
        "Basic secretOfAu03",
        "Basic",
        "Digest secretOfAu03",
        "Bearer",
        "secretOfAu03",
    ]
    texts = set()
    for authorization in bad:
        with Wire(gate, received, authorization=authorization) as wire:
            for answer in (wire.handshake(b""), wire.call("GetFlightInfo", descriptor(proto.get_catalogs()))):
                texts.add(answer.refused("UNAUTHENTICATED").text)
                assert "secretOfAu03" not in repr(answer) and "Ym9iOmE6" not in repr(answer)
    assert len(texts) == 1
    log = gate.output.read_text(errors="replace")
    assert "secretOfAu03" not in log and "Ym9iOmE6" not in log


@pytest.mark.parametrize("value", [b"Bearer \xff\xfe", b"Basic \xc3\xa4", b"\xe2\x82\xac", b"Bearer \x80"])
def test_au_03_a_header_with_bytes_beyond_ascii_is_unauthenticated(value, gate, received):
    """AU-03: no client library sends these, so they go out below gRPC."""
    request = descriptor(proto.statement_query("SELECT 1"))
    with Http2(gate) as connection:
        good = connection.call(1, "GetFlightInfo", request, (b"authorization", f"Bearer {gate.token}".encode()))
        assert good["grpc-status"] == "0"
        bad = connection.call(3, "GetFlightInfo", request, (b"authorization", value))
        received.keep("au-03", repr(bad))
        assert bad["grpc-status"] == "16"


def test_au_04_a_password_that_no_scheme_takes_fails_the_connect_at_once(gate, received):
    """AU-04 (arrow-java#116): the Go driver gives up at connect where the handshake tells it no token."""
    with gate.adbc() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]

    def connect():
        with gate.adbc(authorization="", database={"username": "U", "password": "pOfAu04"}):
            pytest.fail("connected")

    with pytest.raises(adbc.ProgrammingError) as caught:
        within(10, connect)
    received.keep_error("au-04", caught.value)
    assert caught.value.status_code == adbc.AdbcStatusCode.UNAUTHENTICATED
    assert "pOfAu04" not in str(caught.value)


def test_au_06_a_handshake_is_answered_from_its_header_and_waits_for_no_message(gate, received):
    """AU-06 (arrow#37722): client and server waited for each other."""
    with Wire(gate, received) as wire:
        within(5, lambda: wire.call("Handshake", timeout=5)).good()
        within(5, lambda: wire.call_held_open("Handshake", timeout=5)).good()
        within(5, lambda: wire.call_held_open("Handshake", proto.message(f2=b""), timeout=5)).good()
    for authorization in ("Basic YWxpY2U6d29uZGVybGFuZA==", "Bearer nothing", ""):
        with Wire(gate, received, authorization=authorization) as wire:
            within(5, lambda: wire.call("Handshake", timeout=5)).refused("UNAUTHENTICATED")
            within(5, lambda: wire.call_held_open("Handshake", timeout=5)).refused("UNAUTHENTICATED")


def test_au_08_a_token_in_the_place_of_a_password_is_not_accepted_by_accident(gate, received):
    """AU-08 (influxdb_iox#7660): Tableau can send a password only. That is for a scheme of an embedder's own."""
    with Wire(gate, received) as wire:
        wire.still_answers()
    for user in ("token", "", gate.token):
        pair = base64.b64encode(f"{user}:{gate.token}".encode()).decode()
        with Wire(gate, received, authorization=f"Basic {pair}") as wire:
            wire.handshake(b"").refused("UNAUTHENTICATED")
            wire.call("GetFlightInfo", descriptor(proto.get_catalogs())).refused("UNAUTHENTICATED")


@contextlib.contextmanager
def good_client_in_a_loop(gate):
    """Asks `SELECT 1` again and again over one connection; gives the list of what it saw."""
    seen, stop = [], threading.Event()

    def loop():
        with Wire(gate, Received()) as wire:
            while not stop.is_set():
                started = time.monotonic()
                answer = wire.call("GetFlightInfo", descriptor(proto.statement_query("SELECT 1")), timeout=20)
                seen.append((answer.code, time.monotonic() - started))

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def undisturbed(seen):
    assert len(seen) > 5
    assert {code for code, _ in seen} == {"OK"}
    assert max(took for _, took in seen) < 5


def test_au_12_a_tls_client_at_a_plaintext_port_fails_fast(gate):
    """AU-12 (arrow#35777): JDBC encrypts by default."""

    def plaintext(text):
        head, tls = text.split("[server.tls]\n")
        # The section ends where the next begins.
        return head.rstrip() + "\ndanger_plaintext = true\n\n" + tls[tls.index("\n[") + 1 :]

    with own_gate(gate, change=plaintext, level="debug") as own:
        options = {Options.AUTHORIZATION_HEADER.value: f"Bearer {own.token}"}
        plain = own.url.replace("grpc+tls://", "grpc://")
        with adbc_driver_flightsql.dbapi.connect(plain, db_kwargs=options, autocommit=True) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                assert cursor.fetchall() == [(1,)]

        def encrypted():
            with own.adbc() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        with pytest.raises(adbc.OperationalError):
            within(30, encrypted)
        with pytest.raises((flight.FlightUnavailableError, flight.FlightTimedOutError)):
            with own.flight() as client:
                within(30, lambda: list(client.list_actions(flight.FlightCallOptions(timeout=20))))
        assert "panicked" not in own.log()


def test_au_12_a_plaintext_client_at_a_tls_port_fails_fast_and_is_one_line_in_the_log(gate):
    """AU-12 (dbeaver#40516)."""
    with own_gate(gate, level="debug") as own, good_client_in_a_loop(own) as seen:
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(flight.FlightClient(f"grpc+tcp://127.0.0.1:{own.port}"))
            with pytest.raises((flight.FlightUnavailableError, flight.FlightTimedOutError)):
                within(30, lambda: list(plain.list_actions(flight.FlightCallOptions(timeout=20))))
        with socket.create_connection(("127.0.0.1", own.port), timeout=10) as speaks_plainly:
            # By its own address: the client above may have come more than once.
            about = f"connection closed before any request peer=127.0.0.1:{speaks_plainly.getsockname()[1]} "
            speaks_plainly.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert within(10, lambda: read_to_the_end(speaks_plainly)) is not None
        wait_until(lambda: about in own.log())
        assert own.log().count(about) == 1
        wait_until(lambda: len(seen) > 5)
    undisturbed(seen)


def test_au_12_two_hundred_silent_connections_disturb_nobody_and_are_dropped(gate):
    """AU-12: sockets that send nothing end with the handshake timeout, which is 2 s here."""

    def short(text):
        return text + '\n[limits]\nhandshake_timeout = "2s"\n' if "[limits]" not in text else text

    with own_gate(gate, change=short) as own, good_client_in_a_loop(own) as seen:
        wait_until(lambda: seen)
        silent = [socket.create_connection(("127.0.0.1", own.port), timeout=20) for _ in range(200)]
        try:
            ends = [within(20, lambda: read_to_the_end(one)) for one in silent]
            assert ends == [b""] * 200
            wait_until(lambda: len(seen) > 5)
        finally:
            for one in silent:
                one.close()
        with Wire(own, Received()) as wire:
            wire.still_answers()
    undisturbed(seen)


def read_to_the_end(connection):
    """What a peer sends until it closes; a reset is an end too."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            data += more
    return data


def wait_until(holds, seconds=30):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"still not after {seconds} s"
        time.sleep(0.02)


@pytest.mark.parametrize("authorization", ["", "Foo bar", "Basic", "Bearer None"])
def test_au_14_a_bad_login_is_unauthenticated_on_the_first_call_whichever_it_is(authorization, gate, received):
    """AU-14 (dbeaver#40508): it showed as UNKNOWN, and only when a folder was opened."""

    def calls(wire):
        tables = proto.get_tables(include_schema=True)
        return [
            wire.call("GetFlightInfo", descriptor(tables)),
            wire.call("DoGet", proto.message(tables)),
            wire.call("DoAction", proto.message("CreatePreparedStatement", proto.create_prepared("SELECT 1"))),
            wire.call_held_open("DoPut", flight_data(proto.statement_update("RESET nothing"), EMPTY_SCHEMA)),
        ]

    with Wire(gate, received) as wire:
        answers = calls(wire)
        assert (answers[0].code, answers[2].code) == ("OK", "OK")
        assert "UNAUTHENTICATED" not in {answer.code for answer in answers}
    with Wire(gate, received, authorization=authorization) as wire:
        texts = {answer.refused("UNAUTHENTICATED").text for answer in calls(wire)}
        assert len(texts) == 1
        assert "credential" in texts.pop()


def test_au_14_the_drivers_tell_a_bad_login_when_the_connection_is_used_first(gate):
    """AU-14: the exception by which a tool can ask for the password again, from an interpreter of its own."""
    program = (
        "import sys, pathlib, adbc_driver_manager, adbc_driver_flightsql.dbapi as dbapi\n"
        "url, ca, authorization = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), sys.argv[3]\n"
        "options = {'adbc.flight.sql.client_option.tls_root_certs': ca}\n"
        "if authorization: options['adbc.flight.sql.authorization_header'] = authorization\n"
        "with dbapi.connect(url, db_kwargs=options, autocommit=True) as connection:\n"
        "    try:\n"
        "        connection.adbc_get_objects(depth='tables').read_all()\n"
        "        print('in')\n"
        "    except adbc_driver_manager.ProgrammingError as error:\n"
        "        print(error.status_code.name)\n"
    )

    def say(authorization):
        command = [sys.executable, "-c", program, gate.url, os.environ["PORTCULLIS_CA"], authorization]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    assert say(f"Bearer {gate.token}") == "in"
    assert say("") == "UNAUTHENTICATED"
    assert say("Foo bar") == "UNAUTHENTICATED"
