//! Grants, locations and tables are read again while sessions are open, and the next statement is judged by them.
//!
//! What rules mean together is in `src/access/grants/tests.rs`; must not repeat it.

use std::fs;
use std::net::SocketAddr;

use crate::cli::Place;
use crate::support::client::Client;
use crate::support::login::Login;
use crate::support::on_runtime;
use crate::support::process::{Channel, Process};

#[test]
fn a_grant_that_is_taken_away_takes_the_table_from_open_sessions_with_the_next_statement() {
    let place = Place::make("grants");
    let read = |file: &str| fs::read_to_string(place.0.join(file)).unwrap();
    let write = |rules: &str| fs::write(place.0.join("grants.toml"), format!("{CONFIGURATION}\n{rules}")).unwrap();
    fs::write(place.0.join("nation.csv"), "n\n1\n2\n").unwrap();
    write(GRANT);
    let gate = Process::start(&place.0, &["serve", "--config", "grants.toml"]);
    let line = gate.line_with(Channel::Err, "listening address=");
    let address: SocketAddr =
        line.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
    let (login, ca) = (Login::Bearer(read("key")), read("server.pem"));
    // All its calls share one session.
    let client = on_runtime(async move { Client::connect_to(address, &login, &ca) });
    let ask = |sql: &str| {
        let (client, sql) = (client.clone(), sql.to_owned());
        on_runtime(async move { client.text(&sql).await }).map_err(|status| status.message().to_owned())
    };
    let rows = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let reload = |mark: &str| {
        let before = gate.text(Channel::Err).matches(mark).count();
        gate.signal("HUP");
        gate.lines_with(Channel::Err, mark, before + 1);
    };
    assert_eq!(ask(SELECT), rows(&["1", "2"]));
    assert_eq!(ask(LISTED), rows(&["nation"]));

    // A rule that is half written, together with one that would take the table away.
    write(&GRANT.replace("c.s.nation", "c.s"));
    reload("nothing was reloaded");
    let said = gate.line_with(Channel::Err, "nothing was reloaded");
    assert!(said.contains("grants.toml") && said.contains("grant[0].on"), "{said}");
    assert_eq!(ask(SELECT), rows(&["1", "2"]), "what was there before stays");

    // By the change of the file alone.
    let before = gate.text(Channel::Err).matches(RELOADED).count();
    write("");
    gate.lines_with(Channel::Err, RELOADED, before + 1);
    let absent = ask(&SELECT.replace("nation", "notion")).unwrap_err();
    assert_eq!(ask(SELECT), Err(absent.replace("notion", "nation")), "as if it had never been");
    assert_eq!(ask(LISTED), rows(&[]));

    write(&format!("{GRANT}rows = \"n > 1\"\n"));
    reload(RELOADED);
    assert_eq!(ask(SELECT), rows(&["2"]), "given back, a part of it");
    assert_eq!(ask(LISTED), rows(&["nation"]));

    // A table that is new is there, under a grant that is; one that is gone is not.
    write(&format!("{NEW_TABLE}{GRANT}{}", GRANT.replace("c.s.nation", "c.s.later")));
    reload(RELOADED);
    assert_eq!(ask("SELECT count(*) FROM c.s.later"), rows(&["2"]));
    assert_eq!(ask(LISTED), rows(&["later", "nation"]));
    write(&format!("{GRANT}{}", GRANT.replace("c.s.nation", "c.s.later")));
    reload(RELOADED);
    assert!(ask("SELECT count(*) FROM c.s.later").unwrap_err().contains("not found"));
    assert_eq!(ask(SELECT), rows(&["1", "2"]));

    // Locations come and go in the same way.
    let folder = place.0.display();
    let external = format!("CREATE EXTERNAL TABLE own STORED AS CSV LOCATION '{folder}/nation.csv'");
    assert!(ask(&external).is_err());
    write(&format!("[[location]]\nprefix = \"{folder}\"\nto = \"user:etl\"\nallow = [\"read\"]\n"));
    reload(RELOADED);
    assert!(ask(&external).is_ok(), "{:?}", ask(&external));
}

const CONFIGURATION: &str = r#"
[server]
listen = "127.0.0.1:0"

[server.tls]
cert = "server.pem"
key = "server.key"

[cluster]
mode = "embedded"
vcores = 1
work_dir = "work"

[[auth]]
scheme = "api-key"
keys = "keys.toml"

[catalog.c.s.nation]
location = "nation.csv"
format = "csv"
"#;
const NEW_TABLE: &str = "[catalog.c.s.later]\nlocation = \"nation.csv\"\nformat = \"csv\"\n";
const GRANT: &str = "[[grant]]\nto = \"user:etl\"\non = \"c.s.nation\"\nallow = [\"select\"]\n";
const SELECT: &str = "SELECT n FROM c.s.nation ORDER BY n";
const LISTED: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema = 's' ORDER BY 1";
const RELOADED: &str = "were read again";
