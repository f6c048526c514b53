//! How files are opened.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;

use super::*;

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_only_and_an_old_one_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = TestFolder::new("mode");
    let path = folder.0.join("audit.jsonl");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    Target::file(path.clone()).unwrap().write_all(b"{}\n").unwrap();
    assert_eq!(mode(), 0o600);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    Target::file(path.clone()).unwrap().write_all(b"{}\n").unwrap();
    assert_eq!(mode(), 0o640);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n{}\n", "appended");
}

#[test]
fn a_line_that_was_cut_does_not_swallow_the_next() {
    let folder = TestFolder::new("cut");
    let path = folder.0.join("audit.jsonl");
    fs::write(&path, "{}\n{\"v\":1,\"ti").unwrap();
    Target::file(path.clone()).unwrap().write_all(b"{}\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n{\"v\":1,\"ti\n{}\n");
    drop(Target::file(path.clone()).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n{\"v\":1,\"ti\n{}\n", "a whole line needs no end");
}

#[test]
fn who_else_appends_to_the_file_is_not_written_over() {
    let folder = TestFolder::new("append");
    let path = folder.0.join("audit.jsonl");
    let (mut one, mut other) = (Target::file(path.clone()).unwrap(), Target::file(path.clone()).unwrap());
    one.write_all(b"1\n").unwrap();
    other.write_all(b"2\n").unwrap();
    one.write_all(b"3\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_without_waiting_for_its_reader() {
    let folder = TestFolder::new("pipe");
    let path = folder.0.join("audit.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(Target::file(path).err().unwrap().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    let folder = TestFolder::new("error");
    assert!(Target::file(folder.0.join("audit.jsonl")).is_ok());
    assert!(Target::file(folder.0.clone()).is_err(), "a folder");
    let missing = Target::file(folder.0.join("missing/audit.jsonl")).err().unwrap();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

/// A folder that goes with its test.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("portcullis-audit-target-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}
