"""A proxy between a real client and the gate that writes down what the client sends.

Speaks TLS to both sides with a certificate of its own, passes every byte on, and keeps of each call its RPC, the name
of the Flight SQL command or action in it, and the names of its request headers. Must not keep a header's value or a
statement's text: what it has recorded is checked in. Must not answer anything itself.

    with Recorder(gate) as proxy:
        use(proxy.url, proxy.ca_file)
    assert proxy.calls == ["GetFlightInfo CommandStatementQuery", "DoGet"]
"""

import concurrent.futures
import pathlib
import tempfile
import threading

import grpc
import trustme

import flightsql_proto as proto

SERVICE = "arrow.flight.protocol.FlightService"

WORKERS = 64
"""Calls at one time; a client with more waits."""

UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Both directions carry headers of the sizes that the gate itself allows.
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.absolute_max_metadata_size", 128 * 1024),
]

NOT_PASSED_ON = {"user-agent", "te", "content-type"}
"""Belongs to one hop; the user agent is passed on by the channel instead."""


class Call:
    """One call: `what` is known when its first message has come, `headers` at once."""

    def __init__(self, rpc, headers):
        self.rpc = rpc
        self.what = ""
        self.headers = headers
        self.messages = 0

    def see(self, message):
        """Looks at one request message; only the first one of a call names something."""
        self.messages += 1
        if self.messages == 1:
            self.what = named(self.rpc, message)

    def __str__(self):
        if self.rpc == "Handshake":
            return f"Handshake of {self.messages} messages"
        return f"{self.rpc} {self.what}".strip()


class Recorder:
    """The running proxy. `calls` says what was called, `lines` also says with which headers."""

    def __init__(self, gate):
        self.gate = gate
        self.recorded = []
        self.lock = threading.Lock()
        self.channels = {}
        self.folder = tempfile.TemporaryDirectory()
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        self.ca_file = pathlib.Path(self.folder.name) / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(WORKERS), options=UNLIMITED)
        self.server.add_generic_rpc_handlers([Everything(self)])
        credentials = grpc.ssl_server_credentials([(certificate.private_key_pem.bytes(), chain)])
        self.host = "127.0.0.1"
        self.port = self.server.add_secure_port(f"{self.host}:0", credentials)
        self.url = f"grpc+tls://{self.host}:{self.port}"

    @property
    def ca(self):
        """The certificate that clients have to trust, as text."""
        return self.ca_file.read_text()

    @property
    def calls(self):
        """`DoAction CreatePreparedStatement` and so on, in the order in which the calls came."""
        return [str(call) for call in self.recorded]

    @property
    def lines(self):
        """The calls with the names of their request headers; of `authorization` also the scheme."""
        return [f"{call} <{', '.join(call.headers)}>" for call in self.recorded]

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(grace=5).wait()
        for channel in self.channels.values():
            channel.close()
        self.folder.cleanup()

    def begin(self, rpc, metadata):
        call = Call(rpc, header_names(metadata))
        with self.lock:
            self.recorded.append(call)
        return call

    def channel(self, user_agent):
        """The gate may treat clients by their names, so each name gets a channel that says it."""
        with self.lock:
            if user_agent not in self.channels:
                self.channels[user_agent] = grpc.secure_channel(
                    f"{self.gate.host}:{self.gate.port}",
                    grpc.ssl_channel_credentials(self.gate.ca.encode()),
                    options=[*UNLIMITED, ("grpc.primary_user_agent", user_agent)],
                )
            return self.channels[user_agent]


class Everything(grpc.GenericRpcHandler):
    """Every method of every service, as bytes; on the wire a unary call is a stream of one message."""

    def __init__(self, recorder):
        self.recorder = recorder

    def service(self, details):
        method = details.method
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: self.forward(method, requests, context))

    def forward(self, method, requests, context):
        metadata = context.invocation_metadata()
        call = self.recorder.begin(rpc_name(method), metadata)

        def seen():
            for request in requests:
                call.see(request)
                yield request

        agent = next((value for key, value in metadata if key == "user-agent"), "")
        upstream = self.recorder.channel(agent).stream_stream(method)(
            seen(),
            timeout=deadline(context),
            metadata=[(key, value) for key, value in metadata if passes(key)],
        )
        # A client that goes away takes the call to the gate with it.
        context.add_callback(upstream.cancel)
        try:
            context.send_initial_metadata([(key, value) for key, value in upstream.initial_metadata() if passes(key)])
            yield from upstream
        except grpc.RpcError:
            # The status is passed on below, whichever it is.
            pass
        trailers = upstream.trailing_metadata() or ()
        context.set_trailing_metadata([(key, value) for key, value in trailers if passes(key)])
        context.set_code(upstream.code())
        context.set_details(upstream.details() or "")


def deadline(context):
    """A call without one is said to have ages left, which is more than a deadline can say."""
    left = context.time_remaining()
    return left if left is not None and left < 1e6 else None


def passes(key):
    return key not in NOT_PASSED_ON and not key.startswith(("grpc-accept-encoding", "grpc-encoding", "grpc-timeout"))


def rpc_name(method):
    """`/arrow.flight.protocol.FlightService/DoGet` is `DoGet`; another service keeps its name."""
    service, _, name = method.strip("/").rpartition("/")
    return name if service == SERVICE else f"{service}/{name}"


def header_names(metadata):
    names = []
    for key, value in metadata:
        if key == "authorization":
            scheme = value.split(" ")[0]
            key = f"authorization: {scheme}" if scheme in ("Basic", "Bearer") else "authorization: other"
        names.append(key)
    return sorted(names)


def named(rpc, message):
    """The name of what a call is about: the action's type, or the type of the Flight SQL command."""
    found = proto.fields(message)
    if rpc == "DoAction":
        return proto.first(found, 1).decode()
    if rpc in ("GetFlightInfo", "GetSchema", "PollFlightInfo"):
        return descriptor_name(found)
    if rpc in ("DoPut", "DoExchange"):
        return descriptor_name(proto.fields(proto.first(found, 1)))
    return ""


def descriptor_name(descriptor):
    """A FlightDescriptor's command is an `Any`; a path or other bytes have no name."""
    command = proto.first(descriptor, 2)
    return proto.unpack_any(command)[0] if command else "without a command"
