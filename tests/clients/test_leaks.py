"""Comes last: everything that the clients of this run received is searched for what belongs to the cluster.

Hosts, ports, paths, job ids, names of crates and source files. The gate's own address is known to a client and is no
find. Must not ask the gate anything new except to provoke more text.
"""

import os
import pathlib
import re

import pytest

import flightsql_proto as proto
from test_pyarrow import command, prepare

OWN_END = re.compile(rb"tcp [0-9.]+:[0-9]+->")
ADDRESS = re.compile(rb"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1?\])(?::|%3A)(\d+)")
FORBIDDEN = {
    "a crate of the engine": re.compile(rb"ballista", re.IGNORECASE),
    "a job": re.compile(rb"job[_ ]?id|stage[_ ]?id|executor[_ ]?id|shuffle", re.IGNORECASE),
    "a path": re.compile(rb"(?:^|[^\w.'\"/])/(?:tmp|root|home|var|usr|opt|proc)/|file://(?!/etc/)"),
    "a shuffle file": re.compile(rb"data(?:-\d+)?\.arrow|\.parquet"),
    "a source file": re.compile(rb"\w\.rs:\d+|panicked at|RUST_BACKTRACE"),
}


@pytest.mark.last
def test_nothing_that_was_received_names_a_part_of_the_cluster(gate, client, received):
    for sql in ("SELECT * FROM lineitem", "SELECT n_name FROM nation"):
        info = received.keep_info(sql, client.get_flight_info(command(proto.statement_query(sql)), gate.headers()))
        received.keep("ticket body", proto.unpack_any(info.endpoints[0].ticket.ticket)[1])
        received.keep("handle", prepare(gate, client, sql).handle)
    # Proof that there was something to search.
    assert len(received.items) > 50
    gates = received.gates | {gate.port}
    finds = [find for where, data in received.items for find in leaks(gate, where, data, gates)]
    assert not finds, "\n".join(sorted(set(finds))[:50])


@pytest.mark.last
def test_the_search_finds_what_it_looks_for(gate):
    gates = {gate.port, gate.port + 2}
    for good in (
        f"Error received from peer ipv4:127.0.0.1:{gate.port}",
        f"write tcp 127.0.0.1:{gate.port + 1}->127.0.0.1:{gate.port}: write: broken pipe",
        f"write tcp 127.0.0.1:{gate.port + 1}->127.0.0.1:{gate.port + 2}: write: broken pipe",
    ):
        assert not list(leaks(gate, "good", good.encode(), gates)), good
    for bad in (
        f"grpc://127.0.0.1:{gate.port + 1}",
        f"read tcp 127.0.0.1:{gate.port}->127.0.0.1:{gate.port + 1}: connection reset",
        f"localhost:{gate.port + 1}",
        "open /tmp/x: no such file",
        f"scan of {gate.folder}/nation",
        f"file_groups={{1 group: [[{str(gate.folder).lstrip('/')}/nation]]}}",
        "BallistaError",
        "Job_ID: abcdefg",
        "file:///var/lib/x",
        "src/main.rs:17",
        "data-0.arrow",
    ):
        assert list(leaks(gate, "bad", bad.encode(), gates)), bad


def leaks(gate, where, data, gates):
    """`gates` are the ports that the clients of this run were told to dial."""
    # Go's words for a broken connection name the client's own end of it, which no server told it.
    for port in ADDRESS.findall(OWN_END.sub(b"tcp client->", data)):
        if int(port) not in gates:
            yield f"{where}: another address, port {int(port)}: {around(data, port)}"
    for port in other_ports(gate):
        if re.search(rb"\b%d\b" % port, data):
            yield f"{where}: port {port} of the gate's process or of its cluster: {around(data, b'%d' % port)}"
    for what, pattern in FORBIDDEN.items():
        if found := pattern.search(data):
            yield f"{where}: {what}: {around(data, found.group())}"
    # With and without the leading slash: object stores print paths without it.
    for path in (str(gate.folder).strip("/"), str(pathlib.Path.home()).strip("/") + "/", "clients-run"):
        if path.encode() in data:
            yield f"{where}: the path `{path}`: {around(data, path.encode())}"


def around(data, needle):
    at = data.index(needle)
    return data[max(0, at - 60) : at + 90]


def other_ports(gate, known={}):
    """The TCP ports of a remote cluster, and those on which the gate's process listens, where the system tells."""
    process = os.environ.get("PORTCULLIS_PID", "")
    if process not in known:
        cluster = {int(port) for port in os.environ.get("PORTCULLIS_CLUSTER_PORTS", "").split(",") if port}
        known[process] = sorted((listening(process) | cluster) - {gate.port})
    return known[process]


def listening(process):
    try:
        links = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{process}/fd").iterdir()]
        tables = [pathlib.Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return set()
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A" and row[9] in sockets}
