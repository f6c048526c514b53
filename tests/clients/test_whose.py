"""Who may see what, by ADBC: the worked examples of docs/access.md as they stand there, and a hunt for what they hide.

The page is the source: its files, rules, statements and answers are read from it, so that page and gate cannot part.
Must not know how a policy gets into a plan.
"""

import contextlib
import pathlib
import re
import shutil
import uuid

import adbc_driver_manager
import pytest

from conftest import refused
from wire import own_gate

PAGE = pathlib.Path(__file__).parents[2] / "docs/access.md"
SECTION = "## A bank, step by step\n"
WRITTEN = "/srv/bank"
"""Where the files are on the page."""

PEOPLE = [("ada", "analyst"), ("rita", "manager"), ("iris", "auditor"), ("billing",), ("pat", "platform"), ("sam",)]

PLANTED = "planted-3c1f77"
"""Stands in rows of the files that the page does not have and that its rules show to nobody but the platform."""

CUSTOMERS = "bank.core.customers"
ABSENT = "bank.core.no_such_table"

MONEY = "7777777777"
"""A planted balance."""

ACCOUNTS = ["accounts", "balance", "manager", "rita", MONEY]
CLIENTS = ["email", "region", "Ines Duarte", "example.com"]
PAYMENTS = ["payments", "amount"]

HIDDEN = {
    "ada": ["Ruth Hale", "Mei Tan", "example.com", *ACCOUNTS, *PAYMENTS],
    "rita": ["olav", MONEY, *CLIENTS, *PAYMENTS],
    "iris": [*CLIENTS, *PAYMENTS],
    "billing": [*CLIENTS, *ACCOUNTS],
    "sam": [*CLIENTS, *ACCOUNTS, *PAYMENTS],
}
"""What these may not have received: values, and names of tables and columns that they have not named themselves."""


class Bank:
    """The page's section in parts."""

    def __init__(self):
        _, found, after = PAGE.read_text().partition(SECTION)
        assert found, f"{PAGE} has no section `{SECTION.strip()}`"
        text = re.split(r"\n## ", after)[0]
        self.files = dict(re.findall(rf"`{WRITTEN}/([\w/.]+)`:\n\n```csv\n(.*?)```", text, re.DOTALL))
        self.rules = "\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
        steps = re.findall(r"```sql\n-- (\w+)\n(.*?)\n```\n\n```text\n(.*?)\n```", text, re.DOTALL)
        assert len(steps) == text.count("```sql") == text.count("```text"), "a statement has no answer or nobody asks"
        assert len(self.files) == text.count("```csv"), "a file has no name"
        self.steps = steps

    @contextlib.contextmanager
    def laid_out(self, gate, more=()):
        """The files in a folder that every process of the run can read; gives it, and the rules that name it.
        `more` are lines that only some file has: `(file, line)`."""
        folder = (gate.folder / f"bank-{uuid.uuid4().hex[:12]}").resolve()
        try:
            for name, text in self.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text + "".join(line for file, line in more if file == name))
            yield folder, self.rules.replace(WRITTEN, str(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def shown(cursor):
    """A result as the page writes it, or `done` for a statement that has none."""
    columns = [column[0] for column in cursor.description or []]
    rows = cursor.fetchall() if columns else []
    if not columns:
        return "done"
    words = [["NULL" if value is None else str(value) for value in row] for row in rows]
    return "\n".join(" | ".join(row) for row in [columns, *words])


@contextlib.contextmanager
def bank_gate(gate, bank, more=()):
    """A gate with the rules of the page and no others; `folder` is where the files lie."""
    with bank.laid_out(gate, more) as (folder, rules), own_gate(gate, rules, principals=PEOPLE, grants="") as own:
        own.bank_folder = folder
        yield own


class Person:
    """Somebody with a connection, all of whose answers are kept under the name."""

    def __init__(self, who, own, received, where="bank"):
        self.label, self.received, self.folder = f"{where} {who}", received, own.bank_folder
        self.connection = own.adbc(authorization=f"Bearer {own.tokens[who]}")

    def keep(self, what):
        self.received.keep(self.label, what)
        return what

    def ask(self, sql, parameters=None):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return self.keep(shown(cursor))

    def refusal(self, sql):
        """The text of the error."""
        with self.connection.cursor() as cursor:
            return str(refused(self.received, self.label, lambda: cursor.execute(sql)))

    def objects(self):
        """All that a driver lists: {(catalog, schema, table): columns}."""
        found = {}
        listed = self.connection.adbc_get_objects(depth="all").read_all().to_pylist()
        self.keep(repr(listed))
        for catalog in listed:
            for schema in catalog["catalog_db_schemas"] or []:
                for table in schema["db_schema_tables"] or []:
                    name = (catalog["catalog_name"], schema["db_schema_name"], table["table_name"])
                    found[name] = [column["column_name"] for column in table["table_columns"] or []]
        return found


@pytest.fixture(scope="module")
def bank():
    return Bank()


@pytest.fixture(scope="module")
def people(gate, bank, received):
    """Everybody of the page, at a gate whose files have more rows than the page shows."""
    more = [
        ("customers.csv", f"5,{PLANTED},{PLANTED},{PLANTED}\n"),
        ("accounts.csv", f"5,{MONEY},nobody\n"),
        ("payments.csv", "5,8888888888\n"),
    ]
    with bank_gate(gate, bank, more) as own, contextlib.ExitStack() as stack:
        everybody = {who: Person(who, own, received) for who, *_ in PEOPLE}
        for person in everybody.values():
            stack.enter_context(person.connection)
        yield everybody


@pytest.fixture
def ada(people):
    return people["ada"]


@pytest.fixture
def pat(people):
    return people["pat"]


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_says_what_the_gate_does(gate, bank, received):
    with bank_gate(gate, bank) as own, contextlib.ExitStack() as stack:
        people = {who: Person(who, own, received, "page") for who, *_ in PEOPLE}
        for person in people.values():
            stack.enter_context(person.connection)
        assert {who for who, _, _ in bank.steps} == people.keys(), "somebody of the page asks nothing"
        for who, sql, expected in bank.steps:
            sql = sql.replace(WRITTEN, str(own.bank_folder))
            if expected.startswith("refused: "):
                text = people[who].refusal(sql)
                assert expected.removeprefix("refused: ") in text, f"{who}: {sql}: {text}"
            else:
                assert people[who].ask(sql) == expected, f"{who}: {sql}"


# --- rows and columns ------------------------------------------------------------------------------------------------

COUNTS = {
    "count": f"SELECT count(*) AS n FROM {CUSTOMERS}",
    "cross_join": f"SELECT count(DISTINCT b.id) AS n FROM {CUSTOMERS} a CROSS JOIN {CUSTOMERS} b",
    "cte": f"WITH c AS (SELECT * FROM {CUSTOMERS}) SELECT count(*) AS n FROM c",
    "exists": f"SELECT count(*) AS n FROM {CUSTOMERS} a WHERE EXISTS (SELECT 1 FROM {CUSTOMERS} b WHERE b.id = a.id)",
    "in_subquery": f"SELECT count(*) AS n FROM {CUSTOMERS} WHERE id IN (SELECT id FROM {CUSTOMERS})",
    "scalar_subquery": f"SELECT (SELECT count(*) FROM {CUSTOMERS}) AS n",
    "union": f"SELECT count(*) AS n FROM (SELECT id FROM {CUSTOMERS} UNION SELECT id FROM {CUSTOMERS}) AS u",
    "window": f"SELECT DISTINCT count(*) OVER () AS n FROM {CUSTOMERS}",
}


@pytest.mark.parametrize("form", COUNTS)
def test_every_form_of_a_query_sees_the_same_rows(people, form):
    assert people["pat"].ask(COUNTS[form]) == "n\n5"
    assert people["ada"].ask(COUNTS[form]) == "n\n2"


def test_a_rule_about_who_asks_gives_each_their_own(people):
    accounts = "SELECT customer, balance, manager FROM bank.core.accounts ORDER BY customer"
    assert people["rita"].ask(accounts) == "customer | balance | manager\n1 | 1200 | rita\n4 | 310 | rita"
    assert people["iris"].ask(accounts).count("\n") == people["pat"].ask(accounts).count("\n") == 5
    payments = people["pat"].ask("SELECT * FROM bank.core.payments ORDER BY account")
    assert payments == "account | amount\n1 | 250\n5 | 8888888888"


def test_a_masked_column_is_its_mask_everywhere(ada, pat):
    assert pat.ask(f"SELECT max(email) AS e FROM {CUSTOMERS} WHERE email LIKE '%@example.com'") == "e\nruth@example.com"
    for expression in ("email", "max(email)", "upper(email)", "coalesce(email, name)", "email || ''"):
        assert ada.ask(f"SELECT {expression} AS e FROM {CUSTOMERS} WHERE id = 1 GROUP BY email, name") == "e\n***"
    assert ada.ask(f"SELECT count(DISTINCT email) AS n FROM {CUSTOMERS}") == "n\n1"
    assert ada.ask(f"SELECT a.id FROM {CUSTOMERS} a JOIN {CUSTOMERS} b ON a.email = b.email ORDER BY 1") == (
        "id\n1\n1\n2\n2"
    )


def test_a_prepared_statement_sees_the_same_rows(ada, people):
    sql = f"SELECT id, email FROM {CUSTOMERS} ORDER BY id"
    with ada.connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(sql).names == ["id", "email"]
        cursor.adbc_prepare(sql)
        cursor.execute(sql)
        assert ada.keep(shown(cursor)) == "id | email\n1 | ***\n2 | ***"
    sam = people["sam"]
    with sam.connection.cursor() as cursor:
        for call in (cursor.adbc_prepare, cursor.adbc_execute_schema):
            assert "not found" in str(refused(sam.received, sam.label, lambda call=call: call(sql)))


# Each fails on a row that is hidden from an analyst, and on none that is not.
ERRORS = {
    "aggregate": f"SELECT sum(1 / (id - 3)) AS x FROM {CUSTOMERS}",
    "case": f"SELECT id FROM {CUSTOMERS} WHERE CASE WHEN id > 0 THEN 1 / (id - 3) ELSE 0 END < 9",
    "cast": f"SELECT id FROM {CUSTOMERS} WHERE CAST(CASE WHEN region = 'US' THEN name ELSE '1' END AS int) = 1",
    "condition": f"SELECT id FROM {CUSTOMERS} WHERE 1 / (id - 3) < 9",
    "cte": f"WITH c AS (SELECT 1 / (id - 3) AS x FROM {CUSTOMERS}) SELECT count(x) AS n FROM c",
    "join": f"SELECT a.id FROM {CUSTOMERS} a JOIN {CUSTOMERS} b ON 1 / (a.id - 3) = 1 / (b.id - 3)",
    "modulo": f"SELECT id FROM {CUSTOMERS} WHERE 1 % (id - 3) < 9",
    "order": f"SELECT id FROM {CUSTOMERS} ORDER BY 1 / (id - 3)",
    "projection": f"SELECT 1 / (id - 3) AS x FROM {CUSTOMERS}",
    "subquery": f"SELECT 1 AS x WHERE EXISTS (SELECT 1 FROM {CUSTOMERS} WHERE 1 / (id - 3) < 9)",
}


@pytest.mark.parametrize("form", ERRORS)
def test_an_error_does_not_tell_of_a_hidden_row(ada, pat, form):
    assert pat.refusal(ERRORS[form])
    ada.ask(ERRORS[form])


def test_what_a_client_sets_does_not_change_a_policy(ada):
    for setting in (
        "datafusion.execution.time_zone = '+14:00'",
        "datafusion.sql_parser.enable_ident_normalization = false",
        "datafusion.sql_parser.parse_float_as_decimal = true",
        "datafusion.execution.batch_size = 64",
    ):
        option = setting.split(" = ")[0]
        ada.ask(f"SET {setting}")
        assert ada.ask(f"SELECT id, email FROM {CUSTOMERS} ORDER BY id") == "id | email\n1 | ***\n2 | ***", setting
        ada.ask(f"RESET {option}")


def test_a_view_is_the_policy_of_its_maker_and_of_nobody_else(ada, people, name):
    ada.ask(f"CREATE VIEW {name} AS SELECT id, email FROM {CUSTOMERS}")
    assert ada.ask(f"SELECT * FROM {name} ORDER BY id") == "id | email\n1 | ***\n2 | ***"
    for other in ("sam", "pat"):
        assert "not found" in people[other].refusal(f"SELECT * FROM {name}")
    ada.ask(f"DROP VIEW {name}")


# --- what does not exist ---------------------------------------------------------------------------------------------

SEES = {
    "ada": {"customers"},
    "rita": {"accounts"},
    "iris": {"accounts"},
    "billing": {"payments"},
    "pat": {"customers", "accounts", "payments"},
    "sam": set(),
}
COLUMNS = {
    "customers": ["id", "name", "email", "region"],
    "accounts": ["customer", "balance", "manager"],
    "payments": ["account", "amount"],
}


@pytest.mark.parametrize("who", SEES)
def test_drivers_list_what_somebody_may_see_and_nothing_else(people, who):
    objects = people[who].objects()
    assert {name for name in objects if name[0] == "bank"} == {("bank", "core", table) for table in SEES[who]}
    for table in SEES[who]:
        assert objects["bank", "core", table] == COLUMNS[table]
    assert not [name for name in objects if name[0] == "tpch"], "the run's own tables are for its own user"


@pytest.mark.parametrize("who", SEES)
def test_the_information_schema_has_what_somebody_may_see_and_nothing_else(people, who):
    person = people[who]
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'core' ORDER BY 1"
    assert person.ask(tables) == "\n".join(["table_name", *sorted(SEES[who])])
    columns = "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'core' ORDER BY 1"
    assert person.ask(columns) == "\n".join(["table_name", *sorted(SEES[who])])
    schemata = "SELECT count(*) AS n FROM information_schema.schemata WHERE catalog_name = 'bank'"
    assert person.ask(schemata) == ("n\n0" if who == "sam" else "n\n1")
    listed = person.ask("SHOW TABLES")
    assert all((f"core | {table} " in listed) == (table in SEES[who]) for table in COLUMNS)


# {table} is one that is hidden or one that does not exist.
ASKED = {
    "column": "SELECT email FROM {table}",
    "create_view": "CREATE VIEW never AS SELECT * FROM {table}",
    "describe": "DESCRIBE {table}",
    "drop": "DROP TABLE {table}",
    "explain": "EXPLAIN SELECT * FROM {table}",
    "explain_verbose": "EXPLAIN VERBOSE SELECT * FROM {table}",
    "insert": "INSERT INTO {table} VALUES (1)",
    "join": "SELECT 1 FROM {table} a JOIN (SELECT 1 AS id) b ON a.id = b.id",
    "misspelt_column": "SELECT emial FROM {table}",
    "select": "SELECT * FROM {table}",
    "show_columns": "SHOW COLUMNS FROM {table}",
    "show_create": "SHOW CREATE TABLE {table}",
    "subquery": "SELECT (SELECT count(*) FROM {table})",
}


@pytest.mark.parametrize("form", ASKED)
def test_hidden_and_absent_read_alike(people, form):
    sam, texts = people["sam"], set()
    for table in (CUSTOMERS, ABSENT):
        text = sam.refusal(ASKED[form].format(table=table))
        assert "not found" in text or "doesn't exist" in text, text
        # All but the name and the number of the request.
        texts.add(re.sub(r"[0-9a-f]{8,}", "N", text.replace(table, "T")))
    assert len(texts) == 1, texts


def test_the_schema_of_a_hidden_table_is_that_of_an_absent_one(people):
    def schema(person, table):
        found = person.connection.adbc_get_table_schema(table, catalog_filter="bank", db_schema_filter="core")
        return person.received.keep_schema(person.label, found)

    assert schema(people["ada"], "customers").names == COLUMNS["customers"]
    sam, texts = people["sam"], set()
    for table in ("customers", "no_such_table"):
        error = refused(sam.received, sam.label, lambda table=table: schema(sam, table))
        texts.add(str(error).replace(table, "T"))
    assert len(texts) == 1, texts


def test_a_plan_does_not_show_the_policy(ada):
    plan = ada.ask(f"EXPLAIN SELECT name FROM {CUSTOMERS} WHERE id = 1")
    assert "customers" in plan
    assert not [word for word in ("'EU'", 'Utf8("EU")', "***", "region =", "/bank-") if word in plan], plan
    assert "PERMISSION_DENIED" in code_of(ada.refusal(f"EXPLAIN VERBOSE SELECT name FROM {CUSTOMERS}"))


def code_of(text):
    """The status in ADBC's words, which has two for this one."""
    return text.replace("UNAUTHORIZED", "PERMISSION_DENIED").replace("PermissionDenied", "PERMISSION_DENIED")


# --- locations -------------------------------------------------------------------------------------------------------


def external(name, location):
    return f"CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION '{location}' OPTIONS ('format.has_header' 'true')"


def test_a_location_is_reached_below_a_prefix_and_nowhere_else(pat, ada, name):
    folder = pat.folder
    pat.ask(external(name, f"{folder}/exchange/rates.csv"))
    assert pat.ask(f"SELECT code FROM {name} ORDER BY code") == "code\nEUR\nUSD"
    assert "not found" in ada.refusal(f"SELECT * FROM {name}")
    pat.ask(f"DROP TABLE {name}")
    link = folder / "exchange" / "link.csv"
    link.symlink_to(folder / "customers.csv")
    elsewhere = [
        f"{folder}/customers.csv",
        f"{folder}/exchange/../customers.csv",
        f"{folder}/exchange/%2e%2e/customers.csv",
        f"file://{folder}/exchange/%2e%2e/customers.csv",
        f"{folder}/exchange/link.csv",
        f"{folder}/exchange/absent.csv",
        "/etc/passwd",
        "s3://bucket/x.csv",
    ]
    texts = {"".join(pat.refusal(external(name, location)).split("(request")[0]) for location in elsewhere}
    texts |= {"".join(ada.refusal(external(name, f"{folder}/exchange/rates.csv")).split("(request")[0])}
    assert len(texts) == 1 and "the location is not one that you may read" in texts.pop()


# --- the hunt --------------------------------------------------------------------------------------------------------

HOSTILE = [
    f"SELECT * FROM {CUSTOMERS} WHERE region <> 'EU'",
    f"SELECT * FROM {CUSTOMERS}",
    f"SELECT * FROM {CUSTOMERS} WHERE true OR region = 'US'",
    f"SELECT min(name), max(name), min(region), max(region) FROM {CUSTOMERS}",
    f"SELECT array_agg(name), array_agg(email) FROM {CUSTOMERS}",
    f"SELECT CAST(email AS int) FROM {CUSTOMERS}",
    f"SELECT regexp_replace(name, '(', '') FROM {CUSTOMERS}",
    f"SELECT first_value(name) OVER (ORDER BY id DESC) FROM {CUSTOMERS}",
    f"SELECT name FROM {CUSTOMERS} ORDER BY id DESC LIMIT 1",
    f"SELECT region, count(*) FROM {CUSTOMERS} GROUP BY ROLLUP (region)",
    f"SELECT * FROM {CUSTOMERS} a FULL JOIN (VALUES (3), (4), (5)) AS b(id) ON a.id = b.id",
    f"SELECT emial FROM {CUSTOMERS}",
    f"EXPLAIN SELECT * FROM {CUSTOMERS}",
    f"EXPLAIN VERBOSE SELECT * FROM {CUSTOMERS}",
    f"EXPLAIN ANALYZE SELECT * FROM {CUSTOMERS}",
    f"DESCRIBE {CUSTOMERS}",
    f"SHOW CREATE TABLE {CUSTOMERS}",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM information_schema.views",
    "SELECT * FROM information_schema.df_settings",
    "SHOW ALL",
    "SELECT * FROM bank.core.account",
    "SELECT * FROM bank.core.paymnets",
]


@pytest.mark.parametrize("who", [*HIDDEN, "pat"])
def test_hostile_statements_are_answered_or_refused(people, who):
    person, answered, refusals = people[who], 0, 0
    for sql in HOSTILE:
        with person.connection.cursor() as cursor:
            try:
                cursor.execute(sql)
                person.keep(shown(cursor))
                answered += 1
            except adbc_driver_manager.Error as error:
                person.received.keep_error(person.label, error)
                refusals += 1
    assert answered and refusals


@pytest.mark.last
def test_nobody_received_what_is_hidden_from_them(received):
    planted = [PLANTED, "8888888888"]

    def finds(who, words):
        kept = [data for where, data in received.items if where.split(" detail")[0] == f"bank {who}"]
        assert len(kept) > len(HOSTILE), f"{who}: nothing to search"
        # As whole words: four letters are in some ticket by chance.
        return [word for word in words if any(re.search(rb"\b%s\b" % word.encode(), data) for data in kept)]

    # The platform sees everything and has asked for it, so that the search would find it.
    everything = {word for words in HIDDEN.values() for word in words} | set(planted)
    assert everything - set(finds("pat", everything)) == set()
    for who, words in HIDDEN.items():
        assert not finds(who, [*words, *planted]), who
