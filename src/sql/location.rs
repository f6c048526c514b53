//! The places that a statement names: what a text of the client's really points to.
//!
//! What comes back is a URL as an authorizer is asked for it: no `..`, no link, no escape that hides one, nobody's
//! credential. None is a place that nobody may reach. Must not decide who may; looks at the local disk and at nothing
//! else.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use url::Url;

/// Where a statement reads. A local place must be there, since what it really is cannot be told otherwise.
pub(super) fn read_at(location: &str) -> Option<Url> {
    match parsed(location)? {
        Named::InStore(url) => Some(url),
        Named::Local(path) => {
            let real = path.canonicalize().ok()?;
            if real.is_dir() { Url::from_directory_path(real).ok() } else { Url::from_file_path(real).ok() }
        }
    }
}

/// Where a statement writes. A local place need not be there yet: the deepest folder on the way that is there decides
/// what it really is.
pub(super) fn written_at(location: &str) -> Option<Url> {
    match parsed(location)? {
        Named::InStore(url) => Some(url),
        Named::Local(path) => {
            let folder = location.ends_with('/') || path.is_dir();
            let real = real_or_new(&path)?;
            if folder { Url::from_directory_path(real).ok() } else { Url::from_file_path(real).ok() }
        }
    }
}

enum Named {
    /// Somewhere in an object store, which has no links.
    InStore(Url),
    Local(PathBuf),
}

fn parsed(location: &str) -> Option<Named> {
    let path = match Url::parse(location) {
        Ok(url) if url.query().is_some() || url.fragment().is_some() => return None,
        Ok(url) if url.scheme() == "file" => {
            if url.host().is_some() {
                return None;
            }
            url.to_file_path().ok()?
        }
        Ok(url) => return in_store(location, url),
        Err(_) => PathBuf::from(location),
    };
    path.is_absolute().then_some(Named::Local(path))
}

/// Only what is written as it is meant: a text that a parser of URLs changes means one place here and another one
/// elsewhere.
fn in_store(location: &str, url: Url) -> Option<Named> {
    let known = matches!(url.scheme(), "az" | "gs" | "http" | "https" | "s3");
    let plain = url.as_str() == location && url.username().is_empty() && url.password().is_none();
    // A store undoes one escape; an escaped `%` would leave another behind.
    let escapes = location.to_ascii_lowercase().contains("%25");
    (known && plain && url.has_host() && !escapes).then_some(Named::InStore(url))
}

fn real_or_new(path: &Path) -> Option<PathBuf> {
    let mut there = path;
    let mut new: Vec<OsString> = Vec::new();
    loop {
        match there.canonicalize() {
            Ok(real) => {
                let mut whole = real;
                whole.extend(new.into_iter().rev());
                return Some(whole);
            }
            // Something is there that leads nowhere, or that may not be looked at.
            Err(_) if there.symlink_metadata().is_ok() => return None,
            Err(_) => match there.components().next_back()? {
                Component::Normal(name) => {
                    new.push(name.to_owned());
                    there = there.parent()?;
                }
                Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => return None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn url(found: Option<Url>) -> Option<String> {
        found.map(String::from)
    }

    #[test]
    fn a_place_in_a_store_is_taken_as_it_is_written_or_not_at_all() {
        for place in ["s3://lake/scratch/a.csv", "gs://b/x/", "az://c/d%20e", "https://files.example.com:8443/a.json"] {
            assert_eq!(url(read_at(place)).as_deref(), Some(place));
            assert_eq!(url(written_at(place)).as_deref(), Some(place));
        }
        for place in [
            "s3://lake/scratch/../secret/a.csv",
            "s3://lake/scratch/%2e%2e/secret/a.csv",
            "s3://lake/scratch/%252e%252e/secret/a.csv",
            "s3://lake/scratch/./a.csv",
            "s3://key:secret@lake/a.csv",
            "s3://key@lake/a.csv",
            "s3://lake/a.csv?versionId=1",
            "s3://lake/a.csv#x",
            "S3://lake/a.csv",
            " s3://lake/a.csv",
            "s3://lake/a\tb.csv",
            "s3:///a.csv",
            "s3:lake/a.csv",
            "https://files.example.com\\a.json",
            "https://FILES.example.com/a.json",
            "https://files.example.com:443/a.json",
            "ftp://host/a.csv",
            "data:text/csv,a",
            "hdfs://host/a.csv",
            "memory:///a.csv",
        ] {
            assert_eq!(url(read_at(place)), None, "{place}");
            assert_eq!(url(written_at(place)), None, "{place}");
        }
    }

    #[test]
    fn a_local_place_is_what_its_links_lead_to() {
        let scratch =
            std::env::temp_dir().canonicalize().unwrap().join(format!("portcullis-place-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("inside")).unwrap();
        std::fs::create_dir_all(scratch.join("outside")).unwrap();
        std::fs::write(scratch.join("outside/a.csv"), "x").unwrap();
        std::os::unix::fs::symlink(scratch.join("outside"), scratch.join("inside/link")).unwrap();
        std::os::unix::fs::symlink(scratch.join("nowhere"), scratch.join("inside/broken")).unwrap();
        let at = |below: &str| scratch.join(below).to_str().unwrap().to_owned();
        let is = |below: &str| Some(format!("file://{}", at(below)));

        assert_eq!(url(read_at(&at("outside/a.csv"))), is("outside/a.csv"));
        assert_eq!(url(read_at(&at("inside/link/a.csv"))), is("outside/a.csv"));
        assert_eq!(url(read_at(&at("inside/../outside"))), is("outside/"));
        assert_eq!(url(read_at(&at("outside/none.csv"))), None);

        assert_eq!(url(written_at(&at("inside/new.csv"))), is("inside/new.csv"));
        assert_eq!(url(written_at(&at("inside/new/er/"))), is("inside/new/er/"));
        assert_eq!(url(written_at(&at("inside/link/new.csv"))), is("outside/new.csv"));
        assert_eq!(url(written_at(&at("inside"))), is("inside/"));
        assert_eq!(url(written_at(&format!("file://{}", at("inside/new.csv")))), is("inside/new.csv"));
        for place in ["inside/broken", "inside/broken/new.csv", "inside/none/../../outside/new.csv"] {
            assert_eq!(url(written_at(&at(place))), None, "{place}");
        }
        for place in ["new.csv", "inside/new.csv", "", "file://host/tmp/new.csv", "file:///tmp/new.csv?a"] {
            assert_eq!(url(written_at(place)), None, "{place}");
        }
        std::fs::remove_dir_all(scratch).unwrap();
    }
}
