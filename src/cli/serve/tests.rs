//! What an operator is told of a configuration that is not wrong. What files hold is for `tests/it/cli.rs`.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;

fn told(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(name);
    // One of them takes a secret from the environment, which no test changes.
    let text = std::fs::read_to_string(&file).unwrap().replace("{ env = \"PORTCULLIS_TEST_KEY\" }", "\"a\"");
    notes(&Config::parse(&text, &file).unwrap()).join("\n")
}

#[test]
fn plain_text_on_the_way_to_the_cluster_is_told() {
    let (scheduler, executors) = ("cluster.scheduler is `http`", "cluster.fetch is `executors`");
    let plain = told("cluster-remote.toml");
    assert!(plain.contains(scheduler) && plain.contains(executors), "{plain}");
    let proxied = told("cluster-remote-proxy.toml");
    assert!(!proxied.contains(scheduler) && !proxied.contains(executors), "{proxied}");
    let embedded = told("minimal.toml");
    assert!(embedded.contains("its loopback ports trust every process") && !embedded.contains(scheduler), "{embedded}");
}

#[test]
fn the_words_that_begin_with_danger_are_told() {
    let anonymous = told("auth-anonymous.toml");
    for word in ["danger_plaintext", "danger-anonymous"] {
        assert!(anonymous.contains(word), "{anonymous}");
    }
    assert!(told("auth-jwt-loopback.toml").contains("danger_http"));
    assert!(!told("minimal.toml").contains("danger"));
}

#[test]
fn what_a_cluster_elsewhere_must_do_for_kept_tables_is_told() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cluster-remote.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let told = |text: &str| notes(&Config::parse(text, &file).unwrap()).join("\n");
    let note = "storage.managed: every executor must be able to write there";
    assert!(!told(&text).contains(note));
    let kept = told(&format!("{text}\n[storage]\nmanaged = \"kept\"\n"));
    assert!(kept.contains(note), "{kept}");
}
