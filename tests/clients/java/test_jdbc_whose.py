"""Who may see what, by the JDBC driver: the worked examples of docs/access.md, and what `DatabaseMetaData` lists.

test_whose.py has the forms of statements; here is what Java programs see of rows, columns, names and refusals.
"""

import contextlib
import re

import pytest

from test_jdbc import OWN_STATEMENT, DriverManager, SQLException, address, ask, jvm, records
from test_whose import ABSENT, COLUMNS, CUSTOMERS, ERRORS, HIDDEN, PLANTED, SEES, WRITTEN, Bank, bank_gate, external


class Person:
    """Somebody with a connection, all of whose answers are kept under the name."""

    def __init__(self, who, own, received):
        self.label, self.received, self.folder = f"jdbc bank {who}", received, own.bank_folder
        self.connection = DriverManager.getConnection(address(own, token=own.tokens[who]))

    def ask(self, sql):
        with self.connection.createStatement() as statement:
            rows = ask(statement, sql)
        self.received.keep(self.label, repr(rows))
        return rows

    def run(self, sql):
        """A statement of which the rows, if there are any, do not count."""
        with self.connection.createStatement() as statement:
            statement.execute(sql)

    def refusal(self, sql):
        with pytest.raises(SQLException) as caught:
            self.ask(sql)
        # The driver says the statement again, which nobody has received.
        return self.received.keep(self.label, OWN_STATEMENT.sub("", jvm.exception_text(caught.value)))

    def listed(self, result):
        with result:
            found = records(result)
        self.received.keep(self.label, repr(found))
        return found


@pytest.fixture(scope="module")
def people(gate, received):
    more = [("customers.csv", f"5,{PLANTED},{PLANTED},{PLANTED}\n")]
    with bank_gate(gate, Bank(), more) as own, contextlib.ExitStack() as stack:
        everybody = {who: Person(who, own, received) for who in SEES}
        for person in everybody.values():
            stack.enter_context(person.connection)
        yield everybody


def test_queries_of_the_page_have_the_rows_of_the_page(gate, received):
    bank = Bank()
    with bank_gate(gate, bank) as own, contextlib.ExitStack() as stack:
        people = {who: Person(who, own, received) for who in SEES}
        for who, person in people.items():
            # What the page's own answers hold is no find.
            person.label = f"jdbc page {who}"
            stack.enter_context(person.connection)
        for who, sql, expected in bank.steps:
            person, sql = people[who], sql.replace(WRITTEN, str(own.bank_folder))
            if expected.startswith("refused: "):
                assert expected.removeprefix("refused: ") in person.refusal(sql), f"{who}: {sql}"
            elif expected == "done":
                person.run(sql)
            else:
                rows = [" | ".join("NULL" if value is None else str(value) for value in row) for row in person.ask(sql)]
                assert rows == expected.split("\n")[1:], f"{who}: {sql}"


def test_rows_are_filtered_and_columns_masked(people):
    assert len(people["pat"].ask(f"SELECT * FROM {CUSTOMERS}")) == 5
    assert people["ada"].ask(f"SELECT id, email FROM {CUSTOMERS} ORDER BY id") == [(1, "***"), (2, "***")]
    with people["ada"].connection.prepareStatement(f"SELECT count(*) FROM {CUSTOMERS}") as prepared:
        with prepared.executeQuery() as result:
            assert result.next() and int(result.getLong(1)) == 2


@pytest.mark.parametrize("form", ERRORS)
def test_an_error_does_not_tell_of_a_hidden_row(people, form):
    assert people["pat"].refusal(ERRORS[form])
    people["ada"].ask(ERRORS[form])


@pytest.mark.parametrize("who", SEES)
def test_metadata_has_what_somebody_may_see_and_nothing_else(people, who):
    person = people[who]
    metadata = person.connection.getMetaData()
    tables = person.listed(metadata.getTables("bank", None, "%", None))
    assert {row["TABLE_NAME"] for row in tables} == SEES[who]
    columns = person.listed(metadata.getColumns("bank", None, "%", "%"))
    expected = {(table, column) for table in SEES[who] for column in COLUMNS[table]}
    assert {(row["TABLE_NAME"], row["COLUMN_NAME"]) for row in columns} == expected
    catalogs = {row["TABLE_CAT"] for row in person.listed(metadata.getCatalogs())}
    assert ("bank" in catalogs) == bool(SEES[who])
    assert not person.listed(metadata.getTables("tpch", None, "nation", None))


def test_hidden_and_absent_read_alike(people):
    sam = people["sam"]
    for sql in ("SELECT * FROM {}", "SELECT emial FROM {}", "EXPLAIN SELECT * FROM {}", "DESCRIBE {}"):
        texts = set()
        for table in (CUSTOMERS, ABSENT):
            text = sam.refusal(sql.format(table)).replace(table, "T")
            assert "not found" in text, text
            texts.add(re.sub(r"[0-9a-f]{8,}", "N", text))
        assert len(texts) == 1, texts


def test_a_location_is_reached_below_a_prefix_and_nowhere_else(people, name):
    pat = people["pat"]
    pat.run(external(name, f"{pat.folder}/exchange/rates.csv"))
    assert pat.ask(f"SELECT code FROM {name} ORDER BY code") == [("EUR",), ("USD",)]
    pat.run(f"DROP TABLE {name}")
    for location in (f"{pat.folder}/customers.csv", f"{pat.folder}/exchange/../customers.csv", "/etc/passwd"):
        assert "the location is not one that you may read" in pat.refusal(external(name, location))


@pytest.mark.last
def test_nobody_received_what_is_hidden_from_them(received):
    def finds(who, words):
        kept = [data for where, data in received.items if where == f"jdbc bank {who}"]
        assert len(kept) >= 4, f"{who}: nothing to search"
        return [word for word in words if any(re.search(rb"\b%s\b" % word.encode(), data) for data in kept)]

    assert finds("pat", [PLANTED, "Ruth Hale"]) == [PLANTED, "Ruth Hale"]
    for who, words in HIDDEN.items():
        assert not finds(who, [*words, PLANTED]), who
