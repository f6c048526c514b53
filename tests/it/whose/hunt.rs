//! A corpus of hostile statements, and generated ones, by somebody who sees a part: no byte that comes back has a
//! secret in it, and every answer, errors included, is the one over a copy of that part.

use bytes::Bytes;
use futures::StreamExt;
use tonic::{Code, Status};

use super::corpus::{AROUND, over_a_part};
use super::house::House;
use super::secrets::{NUMBERS, TEXTS, found, found_in, guises};
use super::ways::{Answer, read};
use crate::schema::metadata;
use crate::support::client::{Client, prepared, statement};
use crate::support::{Dice, on_runtime};

/// Without this, no other test here says anything.
#[test]
fn the_search_finds_every_secret_in_what_the_owner_receives() {
    on_runtime(async {
        let house = House::open().await;
        let owner = house.client("owner");
        let reader = House::session_on(&owner).await;
        for sql in ["SELECT * FROM orders", "SELECT * FROM zqtable", "SHOW TABLES", "DESCRIBE zqtable"] {
            reader.rows(sql).await.unwrap();
        }
        let seen = found(&reader);
        let shown = |secret: &&&str| seen.iter().any(|found| found.starts_with(*secret));
        let said = ["zqliteral", "zqauditor", "zqpath", "zqview"];
        let missing: Vec<_> = TEXTS.iter().filter(|secret| !said.contains(*secret) && !shown(secret)).collect();
        assert!(missing.is_empty(), "{missing:?} of {seen:?}");
        for number in NUMBERS {
            assert!(shown(&&number.unsigned_abs().to_string().as_str()), "{number} of {seen:?}");
        }

        // In a message, in the details of a status, in a header, in a number and in every guise.
        for secret in TEXTS {
            let client = House::session_on(&owner).await;
            client.rows(&format!("SELECT no_such_column AS {secret} FROM {secret}_x")).await.unwrap_err();
            assert!(!found(&client).is_empty(), "{secret} in a message");
            for guise in guises(secret) {
                let client = House::session_on(&owner).await;
                client.rows(&format!("SELECT 'x{guise}x' AS a")).await.unwrap();
                assert!(!found(&client).is_empty(), "{secret} as {guise}");
            }
            for (before, after) in [("", "x"), ("a", "yy"), ("ab", ""), ("abc", "z")] {
                let details = Bytes::from(format!("{before}{secret}{after}"));
                let status = Status::with_details(Code::Internal, "-", details);
                let mut headers = http::HeaderMap::new();
                status.add_header(&mut headers).unwrap();
                let tape = crate::support::client::Tape { trailers: vec![headers], ..Default::default() };
                assert!(!found_in(&tape).is_empty(), "{secret} behind {before:?} in details");
            }
        }
        for number in NUMBERS {
            for sql in [format!("SELECT {number} AS a"), format!("SELECT CAST({number} AS INT) AS a")] {
                let client = House::session_on(&owner).await;
                client.rows(&sql).await.unwrap();
                assert!(!found(&client).is_empty(), "{sql}");
            }
        }
        let analyst = House::session_on(&house.client("analyst")).await;
        assert_eq!(analyst.text("SELECT count(*) FROM orders").await.unwrap(), ["5"]);
        assert_eq!(found(&analyst), [""; 0]);
    });
}

#[test]
fn hostile_statements_over_a_part_tell_nothing_but_that_part() {
    on_runtime(async {
        let house = House::open().await;
        let statements = over_a_part();
        assert!(statements.len() >= 150, "{}", statements.len());
        let tally = same_over_the_copy(&house, statements, SECONDS_FOR_ONE).await;
        assert!(tally.answered > 100 && tally.failed > 20, "{tally:?}");
        // Over the whole table many of them fail, which is what makes them hostile.
        assert!(tally.otherwise_for_the_owner > 60, "{tally:?}");
    });
}

#[test]
fn generated_statements_over_a_part_answer_as_over_a_copy_of_it() {
    on_runtime(async {
        let house = House::open().await;
        let mut dice = Dice::new(20_261_202);
        let statements = (0..60).map(|_| generated(&mut dice)).collect();
        let tally = same_over_the_copy(&house, statements, SECONDS_FOR_ONE).await;
        assert!(tally.answered > 20 && tally.failed > 3 && tally.otherwise_for_the_owner > 20, "{tally:?}");
    });
}

#[test]
fn statements_around_what_is_hidden_tell_nothing_to_anybody() {
    on_runtime(async {
        let house = House::open().await;
        // Somebody else's session has objects of its own.
        let other = House::session_on(&house.client("owner")).await;
        other.update("CREATE VIEW zqview AS SELECT * FROM zqtable").await.unwrap();
        assert!(other.text("SHOW TABLES").await.unwrap().iter().any(|row| row.contains("zqview")));
        let mut leaks = Vec::new();
        for who in ["analyst", "stranger", "writer"] {
            let client = house.client(who);
            for sql in AROUND {
                let client = House::session_on(&client).await;
                drop(read(&client, statement(sql)).await);
                drop(client.update(sql).await);
                drop(client.schema(statement(sql)).await);
                if let Ok(made) = client.prepare(sql).await {
                    drop(read(&client, prepared(made.prepared_statement_handle)).await);
                }
                leaks.extend(leaked(&client, sql).into_iter().map(|leak| format!("{who}: {leak}")));
            }
            let client = House::session_on(&client).await;
            for command in metadata() {
                read(&client, command).await.unwrap();
            }
            client.action("GetSessionOptions", Bytes::new()).await.unwrap();
            leaks.extend(leaked(&client, "metadata").into_iter().map(|leak| format!("{who}: {leak}")));
            assert!(client.tape().data.len() > 1000, "something was told");
        }
        assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    });
}

#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    failed: usize,
    otherwise_for_the_owner: usize,
}

/// Asks each statement over the part and over the copy, and searches what comes back.
async fn same_over_the_copy(house: &House, statements: Vec<String>, within: u64) -> Tally {
    let (analyst, owner) = (house.client("analyst"), house.client("owner"));
    let within = std::time::Duration::from_secs(within);
    let answers: Vec<_> = futures::stream::iter(statements)
        .map(|sql| {
            let (part, copy) =
                (analyst.with(&super::house::login("analyst")), analyst.with(&super::house::login("analyst")));
            let owner = owner.clone();
            async move {
                let over = async |client: &Client, table: &str| {
                    let asked = read(client, statement(&sql.replace("{t}", table)));
                    let answer = tokio::time::timeout(within, asked).await;
                    plain(answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the test waited"))), table)
                };
                let (seen, expected) = (over(&part, "orders").await, over(&copy, "seen").await);
                let whole = over(&owner, "orders").await;
                let leaks = leaked(&part, &sql);
                (sql, seen, expected, whole, leaks)
            }
        })
        .buffered(4)
        .collect()
        .await;
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for (sql, seen, expected, whole, leaks) in answers {
        wrong.extend(leaks);
        if seen != expected {
            wrong.push(format!("{sql}:\n  part {seen:?}\n  copy {expected:?}"));
        }
        match seen {
            Ok(_) => tally.answered += 1,
            Err(_) => tally.failed += 1,
        }
        tally.otherwise_for_the_owner += usize::from(whole != seen);
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    tally
}

/// With one name for both tables.
fn plain(answer: Result<Answer, Status>, table: &str) -> Result<String, String> {
    match answer {
        Ok(answer) => Ok(format!("{answer:?}").replace(table, "TABLE")),
        Err(status) => Err(format!("{:?} {}", status.code(), status.message()).replace(table, "TABLE")),
    }
}

fn leaked(client: &Client, sql: &str) -> Vec<String> {
    found(client).into_iter().map(|secret| format!("{sql}: tells {secret}")).collect()
}

/// Like those of `src/sql/policy/tests/generated.rs`, through the cluster.
fn generated(dice: &mut Dice) -> String {
    let (a, b) = (number(dice, 2), condition(dice, 2));
    match dice.below(9) {
        0 => format!("SELECT id, {a} AS x FROM {{t}} WHERE {b}"),
        1 => format!("SELECT region, count(*), sum({a}) AS s, min(note) FROM {{t}} WHERE {b} GROUP BY region"),
        2 => format!("SELECT {a} AS x, count(*) FROM {{t}} GROUP BY {a}"),
        3 => format!("SELECT q.x FROM (SELECT {a} AS x, region FROM {{t}}) q WHERE q.region = 'EU' AND q.x % 7 < 5"),
        4 => {
            format!("SELECT k FROM (VALUES (1), (2), (3)) o(k) WHERE EXISTS (SELECT 1 FROM {{t}} WHERE id = k AND {b})")
        }
        5 => format!("SELECT k FROM (VALUES (1), (2), (0)) o(k) WHERE k IN (SELECT {a} FROM {{t}} WHERE {b})"),
        6 => format!("SELECT id, {a} AS x FROM {{t}} WHERE {b} ORDER BY x, id LIMIT 3"),
        7 => format!("SELECT {a} AS x FROM {{t}} UNION ALL SELECT id FROM {{t}} WHERE {b}"),
        _ => format!("SELECT id, sum({a}) OVER (PARTITION BY region ORDER BY id) AS x FROM {{t}} WHERE {b}"),
    }
}

fn number(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        return ["id", "v", "amount", "2", "length(note)"][dice.below(5)].to_owned();
    }
    let (a, b) = (number(dice, depth - 1), number(dice, depth - 1));
    match dice.below(7) {
        0 => format!("({a} + {b})"),
        1 => format!("({a} * {b})"),
        2 => format!("({a} / {b})"),
        3 => format!("({a} % ({b} - 2))"),
        4 => "CAST(note AS BIGINT)".to_owned(),
        5 => format!("CASE WHEN {} THEN {a} ELSE {b} END", condition(dice, depth - 1)),
        _ => format!("coalesce({a}, {b})"),
    }
}

fn condition(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        return ["v IS NULL", "note LIKE '%3%'", "region = 'US'", "id > 2", "amount < 45"][dice.below(5)].to_owned();
    }
    let (a, b) = (condition(dice, depth - 1), condition(dice, depth - 1));
    match dice.below(5) {
        0 => format!("({a} AND {b})"),
        1 => format!("({a} OR {b})"),
        2 => format!("NOT ({a})"),
        3 => format!("{} > {}", number(dice, depth - 1), number(dice, depth - 1)),
        _ => format!("{} IN (0, 1, {})", number(dice, depth - 1), number(dice, depth - 1)),
    }
}

/// Some are heavy over what they were meant for.
const SECONDS_FOR_ONE: u64 = 60;
