//! The jars of the Java suites, fetched from their registry and checked against pinned sums.
//!
//! The work is that of `tests/clients/java/jars.py`, in the Python environment of the suites; Java itself is found by
//! `jvm.py` beside it. Must not know what the jars are.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Places;
use crate::run::{Trouble, say};

/// A set of jars that one process has on its class path.
pub(crate) struct Jars {
    /// What the list calls it, such as `jdbc-18.3.0`.
    pub(crate) name: String,
    /// As Java takes it.
    pub(crate) class_path: String,
}

/// Every set of the list, complete on this machine.
pub(crate) fn prepare(places: &Places, python: &Path) -> Result<Vec<Jars>, Trouble> {
    let folder = places.target.join("clients-jars");
    say(&format!("\njars of the Java suites: {}", folder.display()));
    let output = Command::new(python)
        .current_dir(places.root.join("tests/clients/java"))
        .arg("jars.py")
        .arg(&folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Trouble::new(format!("cannot run `jars.py`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let jars: Vec<Jars> = text.lines().filter_map(set).collect();
    if output.status.success() && !jars.is_empty() {
        Ok(jars)
    } else {
        Err(Trouble::new(format!("`jars.py` could not fetch the jars of the Java suites ({})", output.status)))
    }
}

/// `jdbc-18.3.0<TAB>/folder/a.jar:/folder/b.jar`.
fn set(line: &str) -> Option<Jars> {
    let (name, class_path) = line.split_once('\t')?;
    Some(Jars { name: name.to_owned(), class_path: class_path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_name_and_its_class_path() {
        let jars = set("jdbc-18.3.0\t/x/a.jar:/x/b.jar").map(|jars| (jars.name, jars.class_path));
        assert_eq!(jars, Some(("jdbc-18.3.0".to_owned(), "/x/a.jar:/x/b.jar".to_owned())));
        assert!(set("fetching something").is_none());
    }
}
