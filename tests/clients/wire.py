"""A raw Flight client over grpcio, raw HTTP/2 below it, a gate of a test's own, and one door in front of a gate.

Every message goes out and comes back as the bytes that it is, with any metadata, so that a driver's calls can be
repeated without the driver. Must not know better than the test that uses it: it sends what it is told to.
"""

import base64
import contextlib
import dataclasses
import os
import queue
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse
import uuid

import grpc
import hpack
import pyarrow as pa
import pytest

import flightsql_proto as proto
from conftest import DEADLINE, RECEIVED, Gate

SERVICE = "/arrow.flight.protocol.FlightService/"
RPCS = [
    "DoAction",
    "DoExchange",
    "DoGet",
    "DoPut",
    "GetFlightInfo",
    "GetSchema",
    "Handshake",
    "ListActions",
    "ListFlights",
    "PollFlightInfo",
]


@dataclasses.dataclass
class Answer:
    """All that came back for one call; a refusal is an answer too."""

    rpc: str
    messages: list
    headers: list
    trailers: list
    code: str
    text: str

    def good(self):
        assert self.code == "OK", f"{self.rpc}: {self.code}: {self.text}"
        return self

    def refused(self, *codes):
        assert self.code in codes, f"{self.rpc}: {self.code}: {self.text!r}, expected {codes}"
        assert self.text, f"{self.rpc}: {self.code} without a sentence"
        return self

    def header(self, name):
        return [value for key, value in self.headers + self.trailers if key == name]

    def header_size(self):
        """As HTTP/2 counts a header list, once for the headers and once for the trailers; the larger one."""
        return max(
            sum(len(key) + len(encoded(value)) + 32 for key, value in part) + len("grpc-message") + message
            for part, message in ((self.headers, 0), (self.trailers, len(encoded(self.text)) + 64))
        )


def encoded(value):
    """A header value as it travels; gRPC percent-encodes its message and base64-encodes bytes."""
    return (
        base64.b64encode(value) if isinstance(value, bytes) else urllib.parse.quote(value, safe=" !\"#$&'()*+,/:;<=>?@")
    )


class Wire:
    """Calls to one gate over one connection. `headers` go with every call, after the credential."""

    def __init__(self, gate, received, authorization=None, headers=(), agent=""):
        self.gate, self.received = gate, received
        authorization = f"Bearer {gate.token}" if authorization is None else authorization
        self.metadata = ([("authorization", authorization)] if authorization else []) + list(headers)
        options = {
            "grpc.max_receive_message_length": 64 * 1024 * 1024,
            "grpc.primary_user_agent": agent,
            "grpc.enable_http_proxy": 0,
            # A channel of its own: grpcio would share the connection of another test.
            "grpc.use_local_subchannel_pool": 1,
        }
        credentials = grpc.ssl_channel_credentials(gate.ca.encode())
        self.channel = grpc.secure_channel(f"{gate.host}:{gate.port}", credentials, options=list(options.items()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def start(self, rpc, requests, timeout=DEADLINE, metadata=None):
        """The call as grpcio has it: an iterator of messages that can be cancelled."""
        method = self.channel.stream_stream(SERVICE + rpc, bytes, bytes)
        return method(iter(requests), timeout=timeout, metadata=self.metadata if metadata is None else metadata)

    def call(self, rpc, *messages, timeout=DEADLINE, metadata=None):
        """Sends the messages, closes its half, and reads to the end."""
        return self.finish(rpc, self.start(rpc, messages, timeout, metadata))

    def call_held_open(self, rpc, *messages, timeout=5, metadata=None):
        """Sends the messages and does not close its half before the first answer or refusal, or never."""
        answered = threading.Event()

        def requests():
            yield from messages
            answered.wait(2 * timeout)

        call = self.start(rpc, requests(), timeout, metadata)
        first = []
        try:
            first.append(next(call))
        except (StopIteration, grpc.RpcError):
            pass
        answered.set()
        return self.finish(rpc, call, first)

    def finish(self, rpc, call, messages=()):
        messages = list(messages)
        try:
            messages += call
        except grpc.RpcError:
            pass
        # Both ask the library, which has the end of the call by now.
        headers = [(key, value) for key, value in call.initial_metadata() or []]
        trailers = [(key, value) for key, value in call.trailing_metadata() or []]
        answer = Answer(rpc, messages, headers, trailers, call.code().name, call.details() or "")
        self.keep(answer)
        return answer

    def keep(self, answer):
        for message in answer.messages:
            self.received.keep(f"{answer.rpc} message", message)
        for key, value in answer.headers + answer.trailers:
            self.received.keep(f"{answer.rpc} header {key}", value)
        # What grpcio says by itself names the peer, which is the gate.
        self.received.keep(f"{answer.rpc} text", answer.text)

    # --- what drivers do with the calls --------------------------------------------------------------------------

    def handshake(self, *payloads, **how):
        """One HandshakeRequest for each payload."""
        return self.call("Handshake", *(proto.message(f2=payload) for payload in payloads), **how)

    def act(self, kind, body=b"", **how):
        """The bodies of an action's results."""
        answer = self.call("DoAction", proto.message(kind, body), **how).good()
        return [proto.first(proto.fields(message), 1) for message in answer.messages]

    def info(self, command, **how):
        """A FlightInfo, read."""
        (message,) = self.call("GetFlightInfo", descriptor(command), **how).good().messages
        return Info(message)

    def schema(self, command, **how):
        (message,) = self.call("GetSchema", descriptor(command), **how).good().messages
        return schema_of(proto.first(proto.fields(message), 1))

    def get(self, ticket, **how):
        """The rows behind a ticket."""
        return table_of(self.call("DoGet", proto.message(ticket), **how).good().messages)

    def query(self, command, **how):
        """GetFlightInfo and DoGet of its one endpoint."""
        info = self.info(command, **how)
        assert len(info.tickets) == 1
        return self.get(info.tickets[0], **how)

    def sql(self, text, **how):
        return self.query(proto.statement_query(text), **how)

    def prepare(self, text, **how):
        (body,) = self.act("CreatePreparedStatement", proto.create_prepared(text), **how)
        return proto.Prepared(body)

    def close(self, handle, **how):
        return self.act("ClosePreparedStatement", proto.close_prepared(handle), **how)

    def still_answers(self):
        assert self.sql("SELECT count(*) AS n FROM nation").to_pylist() == [{"n": 25}]


class Info:
    """A FlightInfo."""

    def __init__(self, message):
        found = proto.fields(message)
        self.schema_bytes = proto.first(found, 1)
        self.endpoints = [proto.fields(endpoint) for endpoint in found.get(3, [])]
        self.tickets = [proto.first(proto.fields(proto.first(endpoint, 1)), 1) for endpoint in self.endpoints]
        self.locations = [location for endpoint in self.endpoints for location in endpoint.get(2, [])]

    @property
    def schema(self):
        return schema_of(self.schema_bytes)


def descriptor(command):
    """A FlightDescriptor with a command."""
    return proto.message(2, command)


def path(*words):
    """A FlightDescriptor with a path."""
    return proto.message(1, None, list(words))


def flight_data(command=None, header=None, body=None):
    """A FlightData: the first of a DoPut holds the descriptor."""
    return proto.message(None if command is None else descriptor(command), header, f1000=body)


EMPTY_SCHEMA = pa.schema([]).serialize().to_pybytes()[8:]
"""The bare message without the length in front of it, which is how a FlightData carries it."""


def schema_of(encapsulated):
    return pa.ipc.read_schema(pa.py_buffer(encapsulated))


def message_kinds(messages):
    """The kinds of the IPC messages of a stream, in order."""
    kinds = []
    for message in messages:
        found = proto.fields(message)
        whole = encapsulate(proto.first(found, 2)) + proto.first(found, 1000)
        kinds.append(pa.ipc.read_message(whole).type)
    return kinds


def table_of(messages):
    """The rows of a DoGet: its messages are put together to the stream that they are."""
    stream = bytearray()
    for message in messages:
        found = proto.fields(message)
        stream += encapsulate(proto.first(found, 2)) + proto.first(found, 1000)
    return pa.ipc.open_stream(bytes(stream) + struct.pack("<iI", -1, 0)).read_all()


def encapsulate(header):
    padded = header + bytes(-len(header) % 8)
    return struct.pack("<iI", -1, len(padded)) + padded


def session_options(**options):
    """A SetSessionOptionsRequest of texts, or of SessionOptionValues that are bytes already."""
    values = {name: value if isinstance(value, bytes) else proto.message(value) for name, value in options.items()}
    # A map entry has its value even where that is empty: an empty one takes the option back.
    entries = [proto.field(1, name) + proto.field(2, value) for name, value in values.items()]
    return b"".join(proto.field(1, entry) for entry in entries)


def option_errors(body):
    """The errors of a SetSessionOptionsResult: {name: 1 for INVALID_NAME, 2 for INVALID_VALUE, 3 for ERROR}."""
    errors = {}
    for entry in proto.fields(body).get(1, []):
        found = proto.fields(entry)
        errors[proto.first(found, 1).decode()] = proto.first(proto.fields(proto.first(found, 2)), 1, 0)
    return errors


def closed_as(body):
    """The status of a CloseSessionResult: 1 closed, 2 closing, 3 not closeable."""
    return proto.first(proto.fields(body), 1, 0)


# --- below gRPC ------------------------------------------------------------------------------------------------------


class Http2:
    """One HTTP/2 connection over TLS on which any header bytes can be sent; gRPC libraries refuse to send some."""

    DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
    END_STREAM, END_HEADERS, ACK = 1, 4, 1

    def __init__(self, gate):
        context = ssl.create_default_context(cadata=gate.ca)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((gate.host, gate.port), timeout=DEADLINE)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.frame(self.SETTINGS, 0, 0, b"")
        self.decoder = hpack.Decoder(max_header_list_size=1024 * 1024)
        self.unread = b""
        self.answers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def frame(self, kind, flags, stream, payload):
        self.socket.sendall(
            struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
        )

    def call(self, stream, rpc, message, *headers):
        """One unary request; the answer's headers and trailers, or `{"reset": code}` or `{"goaway": code}`."""
        block = b""
        for name, value in [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", (SERVICE + rpc).encode()),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *headers,
        ]:
            # A literal that is neither indexed nor compressed.
            block += b"\x00" + length(name) + name + length(value) + value
        parts = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        for at, part in enumerate(parts):
            flags = self.END_HEADERS if at == len(parts) - 1 else 0
            self.frame(self.CONTINUATION if at else self.HEADERS, flags, stream, part)
        self.frame(self.DATA, self.END_STREAM, stream, b"\x00" + struct.pack(">I", len(message)) + message)
        return self.answer(stream)

    def answer(self, wanted):
        found, block = {}, b""
        while True:
            size = self.read(9)
            kind, flags, stream = size[3], size[4], struct.unpack(">I", size[5:])[0]
            payload = self.read(int.from_bytes(size[:3], "big"))
            if kind == self.SETTINGS and not flags & self.ACK:
                self.frame(self.SETTINGS, self.ACK, 0, b"")
            elif kind == self.PING and not flags & self.ACK:
                self.frame(self.PING, self.ACK, 0, payload)
            elif kind == self.GOAWAY:
                return found | {"goaway": struct.unpack(">I", payload[4:8])[0]}
            elif kind == self.RST_STREAM and stream == wanted:
                return found | {"reset": struct.unpack(">I", payload)[0]}
            elif kind in (self.HEADERS, self.CONTINUATION):
                block += payload
                if flags & self.END_HEADERS:
                    headers, block = dict(self.decoder.decode(block, raw=True)), b""
                    if stream == wanted:
                        found |= {key.decode(): value.decode("latin-1") for key, value in headers.items()}
            if stream == wanted and kind in (self.DATA, self.HEADERS) and flags & self.END_STREAM:
                return found

    def read(self, size):
        while len(self.unread) < size:
            more = self.socket.recv(65_536)
            if not more:
                raise ConnectionError("the gate closed the connection")
            self.unread += more
        taken, self.unread = self.unread[:size], self.unread[size:]
        return taken


def length(data):
    """The length of an HPACK string that is not Huffman-coded: seven bits, then groups of seven."""
    size = len(data)
    if size < 127:
        return bytes([size])
    return b"\x7f" + proto.varint(size - 127)


# --- another gate ----------------------------------------------------------------------------------------------------

START = 120
"""Seconds: a gate opens its tables and its cluster before it listens, on a machine that may be busy."""


EVERYBODY_READS = """
[[grant]]
to = "*"
on = "*"
allow = ["select"]
"""
"""The run's own configuration lets its own user read, and no other."""


class OwnGate(Gate):
    """A second gate with the same tables, keys and certificate as the one of the run."""

    def __init__(self, gate, process, port, log, token=None):
        self.url, self.host, self.port = f"grpc+tls://127.0.0.1:{port}", "127.0.0.1", port
        self.token, self.ca, self.folder = token or gate.token, gate.ca, gate.folder
        self.process, self.output = process, log
        self.tokens = {}

    def log(self):
        return self.output.read_text(errors="replace")


def binary():
    """The program that is tested, for the few tests that start one of their own."""
    if "PORTCULLIS_BINARY" not in os.environ:
        pytest.fail("PORTCULLIS_BINARY is missing: it names the built `portcullis`, and `cargo xtask test` sets it")
    return os.environ["PORTCULLIS_BINARY"]


@contextlib.contextmanager
def own_gate(
    gate, more="", level="info", principals=(), change=lambda text: text, environment=None, grants=EVERYBODY_READS
):
    """Starts `serve` with the run's own configuration on another port and stops it with SIGTERM.

    `more` and then `grants` are put behind the configuration, `change` gets its text; `tokens` has a fresh API key for
    each of `principals`, who are names or `(name, role, …)`. The files lie beside the originals, whose relative paths
    they keep.
    """
    mark = uuid.uuid4().hex[:12]
    names = [f"own-{mark}.{kind}" for kind in ("toml", "keys.toml", "log")]
    config, keys, log = (gate.folder / name for name in names)
    tokens, records = {}, (gate.folder / "keys.toml").read_text()
    for principal, *roles in (entry if isinstance(entry, tuple) else (entry,) for entry in principals):
        words = [word for role in roles for word in ("--role", role)]
        made = run("new-key", "--api-key", "--principal", principal, *words)
        tokens[principal] = re.search(r"pk1\.[\w-]+\.[\w-]+", made).group()
        records += made[made.index("[key.") :]
    text = (gate.folder / "portcullis.toml").read_text()
    text, listens = re.subn(r'^listen = "[^"]*"', 'listen = "127.0.0.1:0"', text, flags=re.MULTILINE)
    text, levels = re.subn(r'^level = "\w+"', f'level = "{level}"', text, flags=re.MULTILINE)
    assert listens and levels, "the configuration of the run has no `listen` or no `level`"
    text = text.replace('keys = "keys.toml"', f'keys = "{keys.name}"')
    assert keys.name in text, "the configuration of the run has no `keys`"
    try:
        keys.touch(mode=0o600)
        keys.write_text(records)
        config.write_text("\n".join([change(text), more, grants]))
        with log.open("wb") as output:
            command = [binary(), "serve", "--config", str(config)]
            inherited = os.environ | (environment or {})
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=inherited)
        try:
            own = OwnGate(gate, process, listening_port(process, log), log)
            own.tokens = tokens
            RECEIVED.gates.add(own.port)
            yield own
        finally:
            stop(process, signal.SIGTERM, log)
    finally:
        for file in (config, keys, log):
            file.unlink(missing_ok=True)


def stop(process, how, log):
    """Ends a gate by a signal, and demands that it ends well and in time."""
    process.send_signal(how)
    try:
        ended = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"the gate did not end 60 s after {how.name}:\n{log.read_text(errors='replace')[-3000:]}")
    assert ended == 0, f"exit code {ended}:\n{log.read_text(errors='replace')[-3000:]}"


def run(*arguments):
    ran = subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=DEADLINE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def listening_port(process, log):
    """Waits for the line that names the address."""
    ends = time.monotonic() + START
    while time.monotonic() < ends:
        if found := re.search(r"listening address=[\d.]+:(\d+)", log.read_text(errors="replace")):
            return int(found.group(1))
        if process.poll() is not None:
            pytest.fail(f"the gate ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)
    pytest.fail(f"the gate did not listen within {START} s:\n{log.read_text(errors='replace')[-3000:]}")


# --- one door --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def relay(listener, dial):
    """Forwards each connection of `listener` to a new one that `dial` makes. Gives the list of what was dialled."""
    made, open_sockets = [], queue.SimpleQueue()

    def pump(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = dial()
                made.append(far)
                for end in (near, far):
                    open_sockets.put(end)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield made
    finally:
        # `close` alone leaves a blocked `accept` where it is.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        while not open_sockets.empty():
            open_sockets.get().close()


# --- fixtures for the suites that replay a driver --------------------------------------------------------------------


def wire_fixture(**how):
    """A fixture `wire` with the good credential and what the replayed driver adds to each call."""

    @pytest.fixture(name="wire")
    def fixture(gate, received):
        with Wire(gate, received, **how) as wire:
            yield wire

    return fixture


# --- what the specification says -------------------------------------------------------------------------------------


def required(name, data_type):
    return pa.field(name, data_type, nullable=False)


UTF8, INT32, BOOL = pa.string(), pa.int32(), pa.bool_()
TABLES_FIELDS = [
    pa.field("catalog_name", UTF8),
    pa.field("db_schema_name", UTF8),
    required("table_name", UTF8),
    required("table_type", UTF8),
]
REFERENCE_FIELDS = [
    pa.field("pk_catalog_name", UTF8),
    pa.field("pk_db_schema_name", UTF8),
    required("pk_table_name", UTF8),
    required("pk_column_name", UTF8),
    pa.field("fk_catalog_name", UTF8),
    pa.field("fk_db_schema_name", UTF8),
    required("fk_table_name", UTF8),
    required("fk_column_name", UTF8),
    required("key_sequence", INT32),
    pa.field("fk_key_name", UTF8),
    pa.field("pk_key_name", UTF8),
    required("update_rule", pa.uint8()),
    required("delete_rule", pa.uint8()),
]
XDBC_FIELDS = [
    required("type_name", UTF8),
    required("data_type", INT32),
    pa.field("column_size", INT32),
    pa.field("literal_prefix", UTF8),
    pa.field("literal_suffix", UTF8),
    pa.field("create_params", pa.list_(required("item", UTF8))),
    required("nullable", INT32),
    required("case_sensitive", BOOL),
    required("searchable", INT32),
    pa.field("unsigned_attribute", BOOL),
    required("fixed_prec_scale", BOOL),
    pa.field("auto_increment", BOOL),
    pa.field("local_type_name", UTF8),
    pa.field("minimum_scale", INT32),
    pa.field("maximum_scale", INT32),
    required("sql_data_type", INT32),
    pa.field("datetime_subcode", INT32),
    pa.field("num_prec_radix", INT32),
    pa.field("interval_precision", INT32),
]


def keys_command(name):
    """A key command about one table; CrossReference is about two."""
    table = ("tpch", "public", "nation")
    other = ("tpch", "public", "customer")
    return proto.any_message(name, proto.message(*table, *(other if name == "CommandGetCrossReference" else ())))


# command: its fields
METADATA = {
    "catalogs": (proto.get_catalogs(), [required("catalog_name", UTF8)]),
    "cross_reference": (keys_command("CommandGetCrossReference"), REFERENCE_FIELDS),
    "exported_keys": (keys_command("CommandGetExportedKeys"), REFERENCE_FIELDS),
    "imported_keys": (keys_command("CommandGetImportedKeys"), REFERENCE_FIELDS),
    "primary_keys": (
        keys_command("CommandGetPrimaryKeys"),
        [
            pa.field("catalog_name", UTF8),
            pa.field("db_schema_name", UTF8),
            required("table_name", UTF8),
            required("column_name", UTF8),
            required("key_sequence", INT32),
            pa.field("key_name", UTF8),
        ],
    ),
    "schemas": (proto.get_db_schemas(), [pa.field("catalog_name", UTF8), required("db_schema_name", UTF8)]),
    "table_types": (proto.get_table_types(), [required("table_type", UTF8)]),
    "tables": (proto.get_tables(), TABLES_FIELDS),
    "tables_with_schema": (
        proto.get_tables(include_schema=True),
        [*TABLES_FIELDS, required("table_schema", pa.binary())],
    ),
    "xdbc_type_info": (proto.any_message("CommandGetXdbcTypeInfo"), XDBC_FIELDS),
}
KEYS = ["cross_reference", "exported_keys", "imported_keys", "primary_keys"]

# The members of the union of GetSqlInfo in their order, which is what a driver goes by.
STRING, BOOLEAN, BIGINT, BITMASK, LIST, MAP = range(6)
SQL_INFO = {
    STRING: [0, 1, 2, 504, 513, 514, 529, 530, 531],
    BOOLEAN: [
        *(3, 4, 5, 500, 501, 502, 506, 515, 516, 518, 519, 520, 521, 523, 524, 527, 532, 536, 537, 539, 556, 563, 565),
        *(566, 572, 573, 574, 575, 576),
    ],
    BIGINT: [*range(541, 556), *range(557, 563)],
    BITMASK: [8, 503, 505, 507, 522, 525, 526, 528, 533, 534, 535, 538, 540, 564, 567, 568, 569, 570, 571],
    LIST: [508, 509, 510, 511, 512],
    MAP: [517],
}
"""What every server tells, by the member that the drivers read it from."""
SQL_INFO_OF_SOME = {STRING: [6, 7], BOOLEAN: [9, 10, 11], BITMASK: [100, 101]}
"""What belongs to features that a server need not have."""


def member_of(code):
    """The union member of a code, or None for one that no driver knows."""
    return next((kind for told in (SQL_INFO, SQL_INFO_OF_SOME) for kind, codes in told.items() if code in codes), None)
