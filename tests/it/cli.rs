//! The program: exit codes, what it says, the files it makes, its signals.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use portcullis_auth::{Attempt, Authenticator, SystemClock, Verdict};
use portcullis_auth_api_key::{ApiKeys, KeyFile};

use tonic::Code;

use crate::pasted::pasted;
use crate::support::client::{self, Client};
use crate::support::login::Login;
use crate::support::process::{Channel, Process, run, run_with};
use crate::support::schemes::{Ca, Signer};
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
    for command in ["demo", "serve", "check", "hash-password", "new-key", "version"] {
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
        // A password never stands on a command line.
        &["hash-password", "correct"],
        &["hash-password", "--password", "correct"],
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
fn check_names_everything_insecure_in_a_chain_of_all_five_schemes() {
    let place = Place::make("check-five");
    place.write_five_schemes();
    let weak =
        format!("[user.old]\npassword = \"$argon2id$v=19$m=7168,t=1,p=1${}${}\"\n", "c2FsdHNhbHQ", "A".repeat(43));
    fs::write(place.0.join("users.toml"), weak).unwrap();
    let output =
        place.check("insecure.toml", &place.five_schemes(0).replace("discovery = false\n", "danger_http = true\n"));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = out(&output);
    for told in [
        "server.key can be read by others than its owner",
        "users.toml can be read by others than its owner",
        "keys.toml can be read by others than its owner",
        "server.tls.crl is absent",
        "danger-anonymous: whoever shows nothing is `anonymous`",
        "danger_http: the keys of `https://id.test` may be fetched without TLS",
        "danger_any_usage",
        "session.revocations is absent",
        "audit is absent",
        "the hash of user `old` is weaker than OWASP asks for",
        "trust every process on this machine",
        "ok: insecure.toml",
    ] {
        assert_eq!(said.matches(told).count(), 1, "{told}: {said}");
    }

    // What is named goes away with its cause.
    place.write_five_schemes();
    let good = place
        .five_schemes(0)
        .replace("client_ca = \"clients.pem\"\n", LISTED)
        .replace("danger_any_usage = true\n", "")
        .replace("\n[[auth]]\nscheme = \"danger-anonymous\"\n", "\n[audit]\nfile = \"audit.jsonl\"\n")
        .replace("[session]\n", "[session]\nrevocations = \"revocations.db\"\n");
    for file in ["server.key", "users.toml", "keys.toml"] {
        fs::set_permissions(place.0.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let output = place.check("secure.toml", &good);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = out(&output);
    let notes: Vec<_> = said.lines().filter(|line| line.starts_with("note: ")).collect();
    assert!(matches!(notes.as_slice(), [only] if only.contains("loopback ports trust every process")), "{notes:?}");
}

#[test]
fn check_names_rules_and_lists_for_certificates_that_do_not_fit_together() {
    let place = Place::make("check-certificates");
    let (ca, _) = place.write_five_schemes();
    let other = Ca::new("other");
    let (cas, of_other) = (format!("{}{}", ca.pem(), other.pem()), other.crl(2090, &[]));
    for (file, content) in
        [("both.pem", &cas), ("other.crl", &of_other), ("forged.crl", &Ca::new("clients").crl(2090, &[]))]
    {
        fs::write(place.0.join(file), content).unwrap();
    }
    let rules = "[[auth]]\nscheme = \"mtls\"\nprincipal = [{ uri = \"spiffe://corp/svc/*\", as = \"$1\" }]\n";
    let asked = |clients: &str| {
        let text = place.configuration(0);
        let (before, _) = text.split_once("[[auth]]").unwrap();
        let keys = format!("[server.tls]\n{clients}\n");
        format!("{}{rules}", before.replace("[server.tls]\n", &keys))
    };
    let required = "client_auth = \"required\"\n";
    let listed = |ca: &str, crls: &str| format!("client_ca = \"{ca}\"\ncrl = [{crls}]\n");
    let good = listed("clients.pem", "\"clients.crl\"");
    let notes = |name: &str, text: &str| {
        let output = place.check(name, text);
        assert_eq!(code(&output), 0, "{name}: {}", err(&output));
        out(&output)
    };

    let said = notes("good.toml", &asked(&format!("{required}{good}")));
    for told in ["client_auth", "clients.crl", "rule"] {
        assert!(!said.contains(told), "{told}: {said}");
    }
    let said = notes("alone.toml", &asked(&good));
    assert!(said.contains("server.tls.client_auth is `optional` and `mtls` the only scheme"), "{said}");
    let with_another = format!("{}\n[[auth]]\nscheme = \"api-key\"\nkeys = \"keys.toml\"\n", asked(&good));
    assert!(!notes("with-another.toml", &with_another).contains("client_auth"));

    // A list for nobody may be one for a CA in between; a CA without its list is nobody's.
    let below = listed("clients.pem", "\"clients.crl\", \"other.crl\"");
    let said = notes("below.toml", &asked(&format!("{required}{below}")));
    assert!(said.contains("other.crl: a CRL of no CA in client_ca"), "{said}");
    for (name, clients, told) in [
        ("unlisted.toml", listed("both.pem", "\"clients.crl\""), "`other` has no CRL while there are others"),
        ("strange.toml", listed("clients.pem", "\"other.crl\""), "`clients` has no CRL while there are others"),
        ("forged.toml", listed("clients.pem", "\"forged.crl\""), "forged.crl"),
    ] {
        let output = place.check(name, &asked(&clients));
        assert_eq!(code(&output), 64, "{name}: {}", out(&output));
        assert!(err(&output).contains(told), "{name}: {}", err(&output));
    }

    let several = rules.replace(
        " }]",
        " }, { uri = \"spiffe://corp/svc/etl\", as = \"loader\" }, { uri = \"spiffe://corp/*/etl\", as = \"x\" }, \
         { email = \"*@*\", as = \"$1\" }]",
    );
    let said = notes("rules.toml", &asked(&format!("{required}{good}")).replace(rules, &several));
    for told in [
        "note: scheme `mtls`: rule 2 (`uri = \"spiffe://corp/svc/etl\"`) is never reached: rule 1",
        "and rule 3 (`uri = \"spiffe://corp/*/etl\"`) fit some of the same names",
        "rule 4 (`email = \"*@*\"`) fits the e-mail address of every certificate of the CAs",
        "rules read `uri`, `email`: a certificate with several of them is who the first rule that fits says",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let wrong = asked(&good).replace("svc/*", "svc/**");
    let output = place.check("pattern.toml", &wrong);
    let line = wrong.lines().position(|line| line.contains("svc/**")).unwrap() + 1;
    let told = format!("pattern.toml:{line}: auth[0].principal[0].uri: `spiffe://corp/svc/**` has two `*`");
    assert!(code(&output) == 64 && err(&output).starts_with(&told), "{}", err(&output));
}

#[test]
fn check_asks_an_issuer_for_its_keys_once() {
    let place = Place::make("check-fetch");
    let issuer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://127.0.0.1:{}", issuer.local_addr().unwrap().port());
    let tokens = format!(
        "\n[[auth]]\nscheme = \"jwt\"\nissuer = \"{url}\"\naudience = [\"portcullis\"]\nalgorithms = [\"ES256\"]\n\
         jwks = \"{url}/keys\"\ndanger_http = true\n"
    );
    // Closes every connection at once, which is an answer without keys, and is told when to stop counting.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let counting = std::thread::spawn({
        let stop = std::sync::Arc::clone(&stop);
        move || {
            let calls = issuer.incoming().take_while(|_| !stop.load(std::sync::atomic::Ordering::SeqCst));
            calls.map(drop).count()
        }
    });
    let output = place.check("fetch.toml", &(place.configuration(0) + &tokens));
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    drop(std::net::TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = out(&output);
    assert_eq!(said.matches("cannot be fetched").count(), 1, "{said}");
    assert!(said.contains(&format!("note: the keys of issuer `{url}` cannot be fetched")), "{said}");
    assert_eq!(counting.join().unwrap(), 1);
}

#[test]
fn what_a_schemes_file_holds_is_judged_with_its_line() {
    let place = Place::make("scheme-files");
    let (ca, _) = place.write_five_schemes();
    let text = place.five_schemes(0).replace("client_ca = \"clients.pem\"\n", LISTED);
    assert_eq!(code(&place.check("good.toml", &text)), 0);
    let past = ca.crl(2021, &[]);
    let plain = "[user.alice]\npassword = \"correct horse\"\n";
    let expensive = "[user.alice]\n\npassword = \"$argon2id$v=19$m=4194304,t=3,p=1$c2FsdHNhbHQ$AAAA\"\n";
    let one = fs::read_to_string(place.0.join("users.toml")).unwrap();
    for (file, content, told) in [
        ("users.toml", plain, "users.toml: line 2"),
        ("users.toml", expensive, "users.toml: line 3"),
        ("users.toml", &format!("{one}{one}"), "users.toml: line"),
        ("users.toml", "[user.alice\n", "users.toml: line 1"),
        ("keys.toml", "[key.x]\nhash = 1\n", "keys.toml"),
        ("jwks.json", "{}", "jwks.json"),
        ("jwks.json", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AAAA\"}]}", "jwks.json"),
        ("clients.pem", "", "clients.pem"),
        ("clients.crl", "nothing", "clients.crl"),
        ("clients.crl", &past, "clients.crl"),
        ("server.key", "nothing", "server.key"),
    ] {
        let kept = fs::read(place.0.join(file)).unwrap();
        fs::write(place.0.join(file), content).unwrap();
        let output = place.check("good.toml", &text);
        assert_eq!(code(&output), 64, "{file}: {content}: {}", out(&output));
        assert!(err(&output).contains(told), "{told}: {}", err(&output));
        assert!(!err(&output).contains("correct horse"), "{}", err(&output));
        fs::write(place.0.join(file), kept).unwrap();
    }
}

#[test]
fn a_hashed_password_signs_in() {
    let place = Place::make("hash-password");
    place.write_five_schemes();
    let gate = place.serve("passwords.toml", &place.five_schemes(0));
    let login = |password: &str| gate.client(&Login::Basic("alice".to_owned(), password.to_owned()));
    for (password, expected) in [(PASSWORD, Code::Ok), ("open", Code::Unauthenticated)] {
        let client = login(password);
        assert_eq!(on_runtime(async move { client::code(&client.text("SELECT 1").await) }), expected, "{password}");
    }
}

#[test]
fn hash_password_takes_one_line_and_refuses_what_no_client_can_send() {
    let hash = |input: &[u8]| run_with(directory(), &["hash-password"], input);
    for input in [&b"open:sesame:1"[..], b"open:sesame:1\n", b"open:sesame:1\r\n", "päßwörd".as_bytes()] {
        let output = hash(input);
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        assert!(out(&output).starts_with("$argon2id$v=19$") && out(&output).ends_with('\n'), "{}", out(&output));
        assert_eq!(out(&output).lines().count(), 1);
    }
    for input in [&b""[..], b"\n", b"one\ntwo\n", b"a\0b", b"\xff\xfe", &[b'a'; 1025]] {
        let output = hash(input);
        assert_eq!((code(&output), out(&output)), (64, String::new()), "{input:?}");
        assert!(!err(&output).is_empty());
    }
}

#[test]
fn a_user_who_is_taken_out_is_refused_on_the_next_call_and_half_a_file_changes_nothing() {
    let place = Place::make("reload-users");
    place.write_five_schemes();
    let (users, audit) = (place.0.join("users.toml"), place.0.join("audit.jsonl"));
    let text = place.five_schemes(0).replace("[session]\n", "[audit]\nfile = \"audit.jsonl\"\n\n[session]\n");
    let gate = place.serve("reload.toml", &text);
    let alice = gate.client(&Login::Basic("alice".to_owned(), PASSWORD.to_owned()));
    let (token, connection) = on_runtime(async move { (alice.handshake().await.unwrap(), alice) });
    let session = connection.with(&Login::Bearer(token));
    let ask = |client: &Client| {
        let client = client.clone();
        on_runtime(async move { client::code(&client.text("SELECT 1").await) })
    };
    assert_eq!(ask(&session), Code::Ok);

    // Half a file, as an editor leaves it for a moment.
    let whole = fs::read_to_string(&users).unwrap();
    fs::write(&users, whole.get(..whole.len() / 2).unwrap()).unwrap();
    gate.process.signal("HUP");
    gate.process.line_with(Channel::Err, "nothing was reloaded");
    assert_eq!(ask(&session), Code::Ok, "what was there before stays");

    // By the change of the file alone.
    fs::write(&users, &whole).unwrap();
    gate.process.lines_with(Channel::Err, RELOADED, 1);
    assert_eq!(ask(&session), Code::Ok, "who is still there keeps the session");
    fs::write(&users, whole.replace("alice", "bob")).unwrap();
    gate.process.lines_with(Channel::Err, RELOADED, 2);
    assert_eq!(ask(&session), Code::Unauthenticated);
    assert_eq!(ask(&connection), Code::Unauthenticated);
    assert_eq!(ask(&gate.client(&Login::Basic("bob".to_owned(), PASSWORD.to_owned()))), Code::Ok);

    // Moved away as logrotate does, and written anew after the signal.
    let moved = place.0.join("audit.jsonl.1");
    fs::rename(&audit, &moved).unwrap();
    gate.process.signal("HUP");
    gate.process.lines_with(Channel::Err, RELOADED, 3);
    assert_eq!(ask(&gate.client(&Login::Nothing)), Code::Ok, "anonymous");
    let ends = tokio::time::Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(&audit).map_or(true, |text| !text.contains("authn.success")) {
        assert!(tokio::time::Instant::now() < ends, "the audit file was not made anew");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let old = fs::read_to_string(&moved).unwrap();
    for event in ["authn.success", "authn.failure"] {
        assert!(old.contains(event), "{event}: {old}");
    }
    assert!(old.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{old}");
}

#[test]
fn a_new_certificate_is_served_after_a_signal_and_a_bad_one_is_not() {
    let place = Place::make("reload-certificate");
    let gate = place.serve("certificate.toml", &place.configuration(0));
    let old_ca = gate.ca.clone();
    let ask = |ca: &str| {
        let client = gate.client_of(&gate.key, ca);
        on_runtime(async move { client::code(&client.text("SELECT 1").await) })
    };
    let connected = gate.client(&gate.key);
    let goes_on = || {
        let client = connected.clone();
        on_runtime(async move { client::code(&client.text("SELECT 1").await) })
    };
    assert_eq!((ask(&old_ca), goes_on()), (Code::Ok, Code::Ok));

    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    // The key alone is not the certificate's: all or nothing.
    fs::write(place.0.join("server.key"), made.signing_key.serialize_pem()).unwrap();
    gate.process.signal("HUP");
    gate.process.line_with(Channel::Err, "nothing was reloaded");
    assert_eq!(ask(&old_ca), Code::Ok);

    fs::write(place.0.join("server.pem"), made.cert.pem()).unwrap();
    gate.process.signal("HUP");
    gate.process.line_with(Channel::Err, RELOADED);
    assert_eq!(ask(&made.cert.pem()), Code::Ok);
    assert_ne!(ask(&old_ca), Code::Ok, "the old certificate is served no more");
    assert_eq!(goes_on(), Code::Ok, "a connection that is open stays");
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
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn make(name: &str) -> Self {
        let folder = directory().join("cli").join(name);
        fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(folder.join("server.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("server.key"), made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.join("nation.csv"), "n\n1\n").unwrap();
        let key = portcullis_auth_api_key::generate("etl", &[], portcullis_auth::Expiry::Never).unwrap();
        fs::write(folder.join("key"), key.key.expose()).unwrap();
        fs::write(folder.join("keys.toml"), key.record).unwrap();
        Self(folder)
    }

    fn configuration(&self, port: u16) -> String {
        format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n\n[server.tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n\n\
             [cluster]\nmode = \"embedded\"\nvcores = 1\nwork_dir = \"work\"\n\n\
             [catalog.c.s.nation]\nlocation = \"nation.csv\"\nformat = \"csv\"\n\n\
             [[grant]]\nto = \"*\"\non = \"c.s.nation\"\nallow = [\"select\"]\n\n\
             [log]\nlevel = \"warn\"\n\n[[auth]]\nscheme = \"api-key\"\nkeys = \"keys.toml\"\n"
        )
    }

    /// With every scheme, and with everything in it that an operator is told of.
    pub(crate) fn five_schemes(&self, port: u16) -> String {
        let tokens = "[[auth]]\nscheme = \"jwt\"\nissuer = \"https://id.test\"\naudience = [\"portcullis\"]\n\
                      algorithms = [\"ES256\"]\njwks = { file = \"jwks.json\" }\ndiscovery = false\n";
        let certificates = "[[auth]]\nscheme = \"mtls\"\nprincipal = [{ uri = \"spiffe://corp/svc/*\", as = \"$1\" }]\n\
                            danger_any_usage = true\n";
        let others = "[[auth]]\nscheme = \"password\"\nusers = \"users.toml\"\n\n\
                      [[auth]]\nscheme = \"danger-anonymous\"\n";
        let asked = self.configuration(port).replace("[server.tls]\n", "[server.tls]\nclient_ca = \"clients.pem\"\n");
        let session = "[session]\ndefault_schema = \"s\"\nkeys = [{ file = \"seal.key\" }]\n";
        format!("{asked}\n{session}\n{tokens}\n{certificates}\n{others}")
    }

    /// The files that they name. The one user is `alice`.
    pub(crate) fn write_five_schemes(&self) -> (Ca, Signer) {
        let (ca, signer) = (Ca::new("clients"), Signer::new("https://id.test", "k1"));
        fs::write(self.0.join("clients.pem"), ca.pem()).unwrap();
        fs::write(self.0.join("clients.crl"), ca.crl(2090, &[])).unwrap();
        fs::write(self.0.join("jwks.json"), serde_json::json!({ "keys": [signer.jwk()] }).to_string()).unwrap();
        let hash = run_with(&self.0, &["hash-password"], format!("{PASSWORD}\n").as_bytes());
        fs::write(self.0.join("users.toml"), format!("[user.alice]\npassword = \"{}\"\n", out(&hash).trim())).unwrap();
        fs::write(self.0.join("seal.key"), run(&self.0, &["new-key"]).stdout).unwrap();
        fs::set_permissions(self.0.join("seal.key"), fs::Permissions::from_mode(0o600)).unwrap();
        (ca, signer)
    }

    fn check(&self, name: &str, text: &str) -> Output {
        fs::write(self.0.join(name), text).unwrap();
        run(Path::new(&self.0), &["check", "--config", name])
    }

    /// Serves this configuration, which logs at `warn`, at `info`.
    fn serve(&self, name: &str, text: &str) -> Serving {
        fs::write(self.0.join(name), text.replace("level = \"warn\"", "level = \"info\"")).unwrap();
        let process = Process::start(&self.0, &["serve", "--config", name]);
        let line = process.line_with(Channel::Err, "listening address=");
        let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
        let read = |file: &str| fs::read_to_string(self.0.join(file)).unwrap();
        Serving { process, address, ca: read("server.pem"), key: Login::Bearer(read("key")) }
    }
}

/// A process that answers.
struct Serving {
    process: Process,
    address: SocketAddr,
    ca: String,
    key: Login,
}

impl Serving {
    fn client(&self, login: &Login) -> Client {
        self.client_of(login, &self.ca)
    }

    fn client_of(&self, login: &Login, ca: &str) -> Client {
        let (address, login, ca) = (self.address, login.clone(), ca.to_owned());
        on_runtime(async move { Client::connect_to(address, &login, &ca) })
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

pub(crate) const PASSWORD: &str = "open:sesame:1234567890";
const LISTED: &str = "client_ca = \"clients.pem\"\ncrl = [\"clients.crl\"]\n";
const RELOADED: &str = "were read again";
