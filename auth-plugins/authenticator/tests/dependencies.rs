//! Holds everything the contract crate compiles to `dependencies.txt`, for whoever writes a scheme compiles it too.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_contract_compiles_only_what_is_listed() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "portcullis-auth", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let tree = String::from_utf8(output.stdout).unwrap();
    let compiled: BTreeSet<_> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let listed: BTreeSet<_> = include_str!("dependencies.txt").lines().collect();
    assert_eq!(compiled, listed, "a new dependency of the contract needs a reason and a line in `dependencies.txt`");
}
