"""`flight_sql_client`, the command line of the `arrow-flight` crate: one process per question.

It has no option for a CA, so the CA comes as `SSL_CERT_FILE`. Must not read its tables by position: only cells count.
"""

import os
import subprocess

import pytest

from conftest import DEADLINE, within
from queries import TABLES


@pytest.fixture
def ask(gate, received):
    """`ask("catalogs")` is the finished process; `token=None` signs in as nobody."""

    def run(*words, token=gate.token, port=gate.port, ca=os.environ["PORTCULLIS_CA"], before=()):
        command = [os.environ["PORTCULLIS_FLIGHT_SQL_CLIENT"], "--host", gate.host, "--port", str(port), "--tls"]
        credential = ["--token", token] if token else []
        # Without these two the client prints where it was compiled, and where the crate lay.
        env = {**os.environ, "SSL_CERT_FILE": ca, "RUST_BACKTRACE": "0", "RUST_LOG": "warn"}
        done = subprocess.run(
            [*command, *credential, *before, *words], capture_output=True, text=True, timeout=DEADLINE, env=env
        )
        received.keep(" ".join(words), done.stdout + done.stderr)
        return done

    return run


@pytest.fixture
def table(ask):
    """`table("catalogs")` is the printed table, a list of dictionaries."""

    def run(*words, **how):
        done = ask(*words, **how)
        assert done.returncode == 0, done.stderr
        return cells(done.stdout)

    return run


def cells(printed):
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(split[0], row, strict=True)) for row in split[1:]] if split else []


def test_catalogs_are_listed(table):
    assert {"catalog_name": "tpch"} in table("catalogs")


def test_schemas_are_listed_and_filtered(table):
    public = {"catalog_name": "tpch", "db_schema_name": "public"}
    assert public in table("db-schemas", "tpch")
    assert table("db-schemas", "tpch", "-d", "pub%") == [public]
    assert table("db-schemas", "tpch", "-d", "nowhere") == []
    assert table("db-schemas", "nowhere") == []


def test_tables_are_listed(table):
    listed = table("tables", "tpch", "-d", "public")
    assert set(TABLES) <= {row["table_name"] for row in listed}
    assert {row["table_type"] for row in listed if row["table_name"] in TABLES} == {"TABLE"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["-t", "part%"], {"part", "partsupp"}),
        (["-t", "n_tion"], {"nation"}),
        (["-t", "nat"], set()),
        (["-d", "nowhere"], set()),
        (["--table-types", "TABLE"], set(TABLES)),
        (["--table-types", "VIEW"], set()),
        (["--table-types", "NO SUCH TYPE"], set()),
    ],
)
def test_tables_are_filtered(filters, expected, table):
    # Views of other tests may stand in the session that all calls with this token share.
    assert {row["table_name"] for row in table("tables", "tpch", *filters)} & set(TABLES) == expected


def test_table_types_are_listed(table):
    assert {"TABLE", "VIEW"} <= {row["table_type"] for row in table("table-types")}


def test_a_statement_prints_its_rows(table):
    assert table("statement-query", "SELECT 1 AS one") == [{"one": "1"}]
    names = table("statement-query", "SELECT n_name FROM nation ORDER BY n_nationkey LIMIT 2")
    assert names == [{"n_name": "ALGERIA"}, {"n_name": "ARGENTINA"}]


def test_an_empty_result_prints_its_columns(ask):
    done = ask("statement-query", "SELECT n_name FROM nation WHERE n_nationkey < 0")
    assert done.returncode == 0, done.stderr
    assert "n_name" in done.stdout
    assert cells(done.stdout) == []


def test_a_statement_that_needs_the_cluster_prints_what_it_computed(table):
    assert table("statement-query", "SELECT count(*) AS n FROM nation JOIN region ON n_regionkey = r_regionkey") == [
        {"n": "25"}
    ]


def test_a_prepared_statement_prints_its_rows(table):
    assert table("prepared-statement-query", "SELECT count(*) AS n FROM supplier") == [{"n": "100"}]


def test_a_parameter_is_bound_or_refused_but_never_dropped(ask):
    done = ask("prepared-statement-query", "SELECT n_name FROM nation WHERE n_nationkey = $1", "-p", "$1=7")
    if done.returncode == 0:
        assert cells(done.stdout) == [{"n_name": "GERMANY"}]
    else:
        assert "invalid argument" in done.stderr or "not implemented" in done.stderr, done.stderr
        assert "parameter" in done.stderr


@pytest.mark.parametrize("compression", ["gzip", "deflate", "zstd"])
def test_a_client_that_accepts_compressed_answers_is_answered(compression, table):
    assert table("statement-query", "SELECT 1 AS one", before=["--accept-compression", compression]) == [{"one": "1"}]


def test_a_request_that_is_compressed_is_read_or_refused_with_the_reason(ask):
    done = ask("statement-query", "SELECT 1 AS one", before=["--send-compression", "zstd"])
    assert done.returncode == 0 or "compressed" in done.stderr, done.stderr


def test_further_headers_are_ignored(table, gate):
    headers = ["-H", "pasword=mistypedByTheUser", "-H", "x-trace=1"]
    assert table("statement-query", "SELECT 1 AS one", before=headers) == [{"one": "1"}]
    assert "mistypedByTheUser" not in gate.output.read_text(errors="replace")


def test_no_token_and_a_wrong_one_are_refused_with_one_text(ask, table, gate):
    assert table("statement-query", "SELECT 1 AS one") == [{"one": "1"}]
    texts = set()
    for token in (None, "nonsense", gate.token[:-4] + "AAAA"):
        done = ask("statement-query", "SELECT 1 AS one", token=token)
        assert done.returncode != 0
        assert "valid credential" in done.stderr, done.stderr
        assert token is None or token not in done.stderr
        assert not cells(done.stdout)
        texts.add(done.stderr)
    assert len(texts) == 1


def test_a_password_is_refused_where_no_password_scheme_is_configured(ask):
    done = ask("catalogs", token=None, before=["--username", "alice", "--password", "wonderland"])
    assert done.returncode != 0
    assert "authentication" in done.stderr
    assert "wonderland" not in done.stderr


def test_bad_sql_is_refused_in_the_words_of_the_planner(ask):
    for command in ("statement-query", "prepared-statement-query"):
        done = ask(command, "SELECT no_such_column FROM nation")
        assert done.returncode != 0
        assert "no_such_column" in done.stderr


def test_a_client_that_was_not_given_the_ca_does_not_trust_the_gate(ask, tmp_path):
    none = tmp_path / "none.pem"
    none.write_text("")
    done = within(30, lambda: ask("catalogs", ca=str(none)))
    assert done.returncode != 0
    assert "catalog_name" not in done.stdout
