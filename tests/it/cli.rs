//! The program: exit codes, what it says, the files it makes, its signals.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use portcullis_auth::{Attempt, Authenticator, SystemClock, Verdict};
use portcullis_auth_api_key::{ApiKeys, KeyFile};

use crate::pasted::pasted;
use crate::support::process::{Channel, Process, run};
use crate::support::{directory, on_runtime};

#[test]
fn version_names_what_is_inside() {
    let output = run(directory(), &["version"]);
    assert_eq!(code(&output), 0);
    let lines: Vec<_> = out(&output).lines().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(lines, ["portcullis", "ballista", "datafusion"]);
    assert!(out(&output).contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(err(&output), "");
}

#[test]
fn wrong_usage_is_64_and_help_is_not() {
    let help = run(directory(), &["--help"]);
    assert_eq!(code(&help), 0);
    for command in ["demo", "serve", "check", "new-key", "version"] {
        assert!(out(&help).contains(command), "{command}");
    }
    for arguments in [
        &["nothing"][..],
        &["serve"],
        &["check"],
        &["serve", "--config"],
        &["version", "--nothing"],
        &["demo", "--listen", "nowhere"],
        &["demo", "--scale", "much"],
        &["demo", "--scale", "0"],
        &["demo", "--scale", "-1"],
        &["new-key", "--role", "writer"],
    ] {
        let output = run(directory(), arguments);
        assert_eq!(code(&output), 64, "{arguments:?}: {}", err(&output));
        assert_eq!(out(&output), "", "{arguments:?}");
        assert!(!err(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn new_key_prints_a_sealing_key_of_32_bytes() {
    use base64::Engine as _;
    let (one, other) = (run(directory(), &["new-key"]), run(directory(), &["new-key"]));
    assert_eq!((code(&one), err(&one)), (0, String::new()));
    let key = base64::engine::general_purpose::STANDARD.decode(out(&one).trim()).unwrap();
    assert_eq!(key.len(), 32);
    assert_ne!(out(&one), out(&other));
}

#[test]
fn new_key_prints_an_api_key_and_a_record_that_lets_it_in() {
    let output =
        run(directory(), &["new-key", "--api-key", "--principal", "etl", "--role", "writer", "--role", "reader"]);
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    let text = out(&output);
    let key = text.lines().find(|line| line.starts_with("pk1.")).unwrap().to_owned();
    // The whole output may go into the file: everything but the record is to be left out by hand, and only the key is.
    let record: Vec<_> = text.lines().filter(|line| *line != key).collect();
    let keys = ApiKeys::new("keys", KeyFile::parse(&record.join("\n")).unwrap());
    let judge = |key: &str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        let attempt = Attempt::new(&headers, portcullis_auth::Clock::now(&SystemClock));
        futures::executor::block_on(keys.authenticate(&attempt))
    };
    let Verdict::Admit(principal) = judge(&key) else { panic!("the key is not admitted") };
    assert_eq!(principal.name(), "etl");
    assert_eq!(principal.roles().iter().collect::<Vec<_>>(), ["reader", "writer"]);
    assert!(matches!(judge(&key.replace("pk1.", "pk1.A")), Verdict::Reject(_)));
    let (_, secret) = key.rsplit_once('.').unwrap();
    assert!(!record.join("\n").contains(secret), "the record holds a hash only");
}

#[test]
fn a_configuration_that_is_not_good_is_64_with_file_key_and_line() {
    let place = Place::make("bad-configurations");
    assert_eq!(code(&place.check("good.toml", &place.configuration(0))), 0);
    let good = place.configuration(0);
    for (name, text, told) in [
        ("unknown.toml", good.replace("[log]", "[log]\ncolour = \"red\""), "colour"),
        ("no-chain.toml", good.split("[[auth]]").next().unwrap().to_owned(), "auth"),
        ("plaintext.toml", good.replace("[server.tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n", ""), "tls"),
        ("no-key.toml", good.replace("server.key", "absent.key"), "absent.key"),
        ("no-table.toml", good.replace("nation.csv", "absent.csv"), "absent.csv"),
        ("level.toml", good.replace("level = \"warn\"", "level = \"loud\""), "loud"),
        ("not-toml.toml", good.replace("[log]", "[log"), ""),
    ] {
        let output = place.check(name, &text);
        assert_eq!(code(&output), 64, "{name}: {}", err(&output));
        let said = err(&output);
        assert!(said.contains(name) && said.contains(told), "{name}: {said}");
        assert!(said.contains(&format!("{name}:")), "a line in {name}: {said}");
        let served = run(&place.0, &["serve", "--config", name]);
        assert_eq!((code(&served), err(&served)), (64, said), "serve says the same of {name}");
    }
    let absent = run(&place.0, &["serve", "--config", "absent.toml"]);
    assert_eq!(code(&absent), 64);
    assert!(err(&absent).contains("absent.toml"), "{}", err(&absent));

    // Found when they are opened: still the configuration's fault, and named.
    for (name, file, content) in
        [("bad-cert.toml", "server.pem", "nothing"), ("bad-keys.toml", "keys.toml", "[key.x]\nhash = 1\n")]
    {
        let kept = fs::read(place.0.join(file)).unwrap();
        fs::write(place.0.join(file), content).unwrap();
        let output = place.check(name, &good);
        assert_eq!(code(&output), 64, "{name}: {}", err(&output));
        assert!(err(&output).contains(file), "{name}: {}", err(&output));
        fs::write(place.0.join(file), kept).unwrap();
    }
}

#[test]
fn check_says_what_an_operator_should_know() {
    let place = Place::make("check");
    let output = place.check("good.toml", &place.configuration(0));
    assert_eq!(code(&output), 0, "{}", err(&output));
    for told in ["session.keys is absent", "trust every process on this machine", "ok: good.toml"] {
        assert!(out(&output).contains(told), "{told}: {}", out(&output));
    }
    assert!(
        !place.0.join("work").exists() || fs::read_dir(place.0.join("work")).unwrap().next().is_none(),
        "nothing is left"
    );
}

#[test]
fn a_port_that_is_taken_is_69_for_serve_and_no_matter_for_check() {
    let place = Place::make("port");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(code(&place.check("taken.toml", &place.configuration(port))), 0);
    let output = run(&place.0, &["serve", "--config", "taken.toml"]);
    assert_eq!(code(&output), 69, "{}", err(&output));
    assert!(err(&output).contains(&port.to_string()), "{}", err(&output));
}

#[test]
fn the_demo_makes_its_files_prints_lines_that_work_and_drains() {
    let dir = directory().join("demo");
    let mut demo =
        Process::start(directory(), &["demo", "--listen", "127.0.0.1:0", "--dir", &dir.display().to_string()]);
    demo.line_with(Channel::Out, "Stop with Ctrl-C");
    let printed = demo.text(Channel::Out);

    for (file, mode) in [
        ("", 0o700),
        ("token", 0o600),
        ("keys.toml", 0o600),
        ("server.key", 0o600),
        ("portcullis.toml", 0o600),
        ("ca.pem", 0o644),
        ("server.pem", 0o644),
    ] {
        let found = fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file}: {found:o}");
    }
    let token = fs::read_to_string(dir.join("token")).unwrap().trim().to_owned();
    assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)), "{token}");
    assert_eq!(printed.matches(&token).count(), 1, "the token is printed once");

    let (ca, token_file) = (dir.join("ca.pem").display().to_string(), dir.join("token").display().to_string());
    let endpoint = printed.lines().next().unwrap().rsplit_once("grpc+tls://").unwrap().1;
    let endpoint: &'static str = Box::leak(format!("https://{endpoint}").into_boxed_str());
    let (_, rust) = printed.split_once("Rust, in an async function").unwrap();
    let mut rust: String = rust.lines().skip(2).take_while(|line| !line.is_empty()).collect();
    for (printed, variable) in [(&ca, "ca"), (&token_file, "token"), (&endpoint.to_owned(), "endpoint")] {
        assert!(rust.contains(&format!("\"{printed}\"")), "{variable}: {rust}");
        rust = rust.replace(&format!("\"{printed}\""), variable);
    }
    let (_, compiled) = include_str!("pasted.rs").split_once("{\n").unwrap();
    let (compiled, _) = compiled.split_once("    Ok(())").unwrap();
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    let (lines, compiled) = (dense(&rust), dense(compiled));
    assert_eq!(lines, compiled, "pasted.rs is what the demo prints");
    let pasted_token = token_file.clone();
    on_runtime(async move { pasted(&ca, &pasted_token, endpoint).await.map_err(|error| error.to_string()) }).unwrap();
    assert!(printed.contains("adbc_driver_flightsql"));

    demo.signal("TERM");
    assert_eq!(demo.exit_code(), 0, "{}", demo.text(Channel::Err));
    assert!(!demo.text(Channel::Err).contains(&token));

    // The same setup again, with `serve` and the configuration that the demo wrote.
    let config = dir.join("portcullis.toml");
    let loud = fs::read_to_string(&config).unwrap().replace("level = \"warn\"", "level = \"info\"");
    fs::write(&config, loud).unwrap();
    let mut served = Process::start(&dir, &["serve", "--config", "portcullis.toml"]);
    let line = served.line_with(Channel::Err, "listening address=");
    let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap();
    let endpoint: &'static str = Box::leak(format!("https://{address}").into_boxed_str());
    let ca = dir.join("ca.pem").display().to_string();
    on_runtime(async move { pasted(&ca, &token_file, endpoint).await.map_err(|error| error.to_string()) }).unwrap();
    assert!(served.text(Channel::Err).contains("trust every process on this machine"), "start says so too");
    served.signal("INT");
    assert_eq!(served.exit_code(), 130);
    assert_eq!(served.text(Channel::Out), "\u{4}", "serve prints nothing");
    let left: Vec<_> = fs::read_dir(dir.join("work")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_signal_during_the_start_ends_it() {
    let place = Place::make("early");
    fs::write(place.0.join("early.toml"), place.configuration(0).replace("level = \"warn\"", "level = \"info\""))
        .unwrap();
    for (signal, expected) in [("TERM", 0), ("INT", 130)] {
        let mut served = Process::start(&place.0, &["serve", "--config", "early.toml"]);
        served.line_with(Channel::Err, "session.keys is absent");
        served.signal(signal);
        assert_eq!(served.exit_code(), expected, "{signal}");
    }
}

/// A folder with everything that a small configuration names.
struct Place(PathBuf);

impl Place {
    fn make(name: &str) -> Self {
        let folder = directory().join("cli").join(name);
        fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(folder.join("server.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("server.key"), made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.join("nation.csv"), "n\n1\n").unwrap();
        let key = portcullis_auth_api_key::generate("etl", &[], portcullis_auth::Expiry::Never).unwrap();
        fs::write(folder.join("keys.toml"), key.record).unwrap();
        Self(folder)
    }

    fn configuration(&self, port: u16) -> String {
        format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n\n[server.tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n\n\
             [cluster]\nmode = \"embedded\"\nvcores = 1\nwork_dir = \"work\"\n\n[catalog.c.s.nation]\nlocation = \"nation.csv\"\n\
             format = \"csv\"\n\n[log]\nlevel = \"warn\"\n\n[[auth]]\nscheme = \"api-key\"\nkeys = \"keys.toml\"\n"
        )
    }

    fn check(&self, name: &str, text: &str) -> Output {
        fs::write(self.0.join(name), text).unwrap();
        run(Path::new(&self.0), &["check", "--config", name])
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
