"""A gate whose chain takes users and passwords: the `basic_gate` example, started with the run's tables and certificate.

It stands for any scheme of an embedder that takes Basic. Must not know a client.
"""

import contextlib
import os
import re
import signal
import subprocess
import uuid

import pytest

from wire import EVERYBODY_READS, OwnGate, listening_port, stop

PASSWORDS = {"alice": "open:sesame:1", "bob": "correct-horse", "carol": "battery-stapl", "dave": "päßwörd"}
"""What clients have trouble with: colons, and lengths that need two, one and no `=` of padding."""


@contextlib.contextmanager
def basic_gate(gate):
    """Starts it, gives its address, and stops it as Ctrl-C would."""
    program = os.environ.get("PORTCULLIS_BASIC_GATE")
    if not program:
        pytest.fail("PORTCULLIS_BASIC_GATE is missing: it names the built example, and `cargo xtask test` sets it")
    mark = uuid.uuid4().hex[:12]
    config, pairs, log = (gate.folder / f"basic-{mark}.{kind}" for kind in ("toml", "pairs", "log"))
    text, listens = re.subn(
        r'^listen = "[^"]*"',
        'listen = "127.0.0.1:0"',
        (gate.folder / "portcullis.toml").read_text(),
        flags=re.MULTILINE,
    )
    assert listens, "the configuration of the run has no `listen`"
    try:
        config.write_text(text + EVERYBODY_READS)
        pairs.write_text("".join(f"{user}:{password}\n" for user, password in PASSWORDS.items()))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, str(config), str(pairs)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            yield OwnGate(gate, process, listening_port(process, log), log)
        finally:
            stop(process, signal.SIGINT, log)
    finally:
        for file in (config, pairs, log):
            file.unlink(missing_ok=True)
