"""The Go clients: every test of the package in `go/` is a test here, run by the program that it was compiled to.

Also gives that program three TPC-H queries and compares the answers. Must not test anything in Python that Go can say.
"""

import os
import pathlib
import re
import subprocess

import pyarrow as pa
import pytest

from conftest import DEADLINE
from test_tpch import compare, compare_names
from test_tpch import other_engine_with_our_data, tpch  # noqa: F401  (fixtures)

SOURCES = pathlib.Path(__file__).parent / "go"
NAMES = [
    name
    for source in sorted(SOURCES.glob("*_test.go"))
    for name in re.findall(r"^func (Test(?!Main\b)\w+)\(", source.read_text(), re.MULTILINE)
]


def program():
    """The compiled tests; `cargo xtask test clients` makes them, and names them in the environment."""
    return os.environ["PORTCULLIS_GO_TESTS"]


def run(*arguments, **how):
    return subprocess.run([program(), *arguments], capture_output=True, timeout=3 * DEADLINE, cwd=SOURCES, **how)


def test_the_compiled_program_holds_the_tests_of_the_sources():
    listed = run("-test.list", ".*", text=True).stdout.split()
    assert len(NAMES) >= 40
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.late) if "Endless" in name else name for name in NAMES]
)
def test_go(name, received):
    ran = run("-test.run", f"^{name}$", "-test.v", text=True)
    received.keep(name, ran.stdout + ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # A name that matches nothing would be green as well.
    assert f"--- PASS: {name} " in ran.stdout


@pytest.mark.parametrize("number", [1, 3, 18])
def test_the_go_client_and_the_other_engine_agree_on_query(number, tpch):  # noqa: F811
    sql, names, expected = tpch[number]
    ran = run(input=sql.encode(), env={**os.environ, "PORTCULLIS_GO_TASK": "answer"})
    assert ran.returncode == 0, ran.stderr.decode()
    table = pa.ipc.open_stream(ran.stdout).read_all()
    compare_names(names, table.schema.names)
    compare(number, expected, list(zip(*(column.to_pylist() for column in table.columns))))
