"""A program for `test_reports_endpoints.py`: clients in a network from which the gate's port is the only way out.

Takes a network namespace of its own, in which nothing but loopback exists, and reaches the gate through one Unix socket
that the test holds. Where the system gives no namespace it says so, and the list of its connections is the proof. Reads
a request from standard input and prints what it read and every TCP socket that it had, as JSON.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import socket
import struct
import sys
import threading

NEW_USER, NEW_NET = 0x1000_0000, 0x4000_0000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
DOOR = "127.0.0.9"
"""Another loopback address than any that a gate, a scheduler or an executor listens on."""


def take_a_network_of_its_own():
    """Whether there is one now: by right, or in a user namespace of one's own."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(NEW_NET) and system.unshare(NEW_USER | NEW_NET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
    return True


def open_door(to):
    """Listens at the one address and forwards to the Unix socket; gives the port."""
    listener = socket.create_server((DOOR, 0))

    def pump(source, target):
        try:
            while data := source.recv(65_536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(to)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def sockets():
    """Both ends of every TCP socket that this process holds, as `address:port` and `address:port`."""
    held = set()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            held.add(os.readlink(entry))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            row = line.split()
            if f"socket:[{row[9]}]" in held:
                found.add((readable(row[1]), readable(row[2])))
    return found


def readable(end):
    address, port = end.split(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    packed = packed.removeprefix(bytes(10) + b"\xff\xff")
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, packed)}:{int(port, 16)}"


def main():
    asked = json.load(sys.stdin)
    alone = take_a_network_of_its_own()
    # Proof: what listens outside cannot be reached from here.
    with socket.socket() as probe:
        probe.settimeout(5)
        reachable = probe.connect_ex(("127.0.0.1", asked["port"])) == 0
    port = open_door(asked["socket"])
    # Only now: a process that has threads cannot take a user namespace.
    from adbc_driver_flightsql import DatabaseOptions as Options
    from adbc_driver_flightsql import dbapi
    import pyarrow.flight as flight

    import flightsql_proto as proto

    seen, answers = set(), {}
    options = {
        Options.TLS_ROOT_CERTS.value: asked["ca"],
        Options.TLS_OVERRIDE_HOSTNAME.value: "localhost",
        Options.AUTHORIZATION_HEADER.value: f"Bearer {asked['token']}",
        Options.TIMEOUT_QUERY.value: "60",
        Options.TIMEOUT_FETCH.value: "60",
    }
    with dbapi.connect(f"grpc+tls://{DOOR}:{port}", db_kwargs=options, autocommit=True) as connection:
        for sql in asked["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                answers[f"adbc {sql}"] = [[str(value) for value in row] for row in cursor.fetchall()]
            seen |= sockets()
    call = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {asked['token']}".encode())], timeout=60)
    client = flight.FlightClient(f"grpc+tls://{DOOR}:{port}", tls_root_certs=asked["ca"], override_hostname="localhost")
    with client:
        for sql in asked["sql"]:
            info = client.get_flight_info(flight.FlightDescriptor.for_command(proto.statement_query(sql)), call)
            rows = [row for end in info.endpoints for row in client.do_get(end.ticket, call).read_all().to_pylist()]
            answers[f"pyarrow {sql}"] = [[str(value) for value in row.values()] for row in rows]
            seen |= sockets()
    told = {"alone": alone, "reachable": reachable, "door": f"{DOOR}:{port}", "seen": sorted(seen), "answers": answers}
    json.dump(told, sys.stdout)


main()
