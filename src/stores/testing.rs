//! A web server of a few files for tests: ranges, redirects, and a list of what it was asked for.
//!
//! Speaks as little HTTP as a store's client needs. Must not be reachable from elsewhere.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::config::stores::{ExtraCa, ObjectStore, Plaintext, Service};

/// A server that ends with its value.
pub(crate) struct Web {
    pub(crate) url: Url,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// What lies at a path.
#[derive(Clone, Debug)]
pub(crate) enum At {
    File(Vec<u8>),
    /// Another address.
    Moved(String),
    /// An answer of failure, with this text.
    Failure(String),
}

impl Web {
    pub(crate) async fn serve(files: impl IntoIterator<Item = (&'static str, At)>) -> Self {
        let files: Arc<BTreeMap<&str, At>> = Arc::new(files.into_iter().collect());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let asked = Arc::clone(&asked);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream, Arc::clone(&files), Arc::clone(&asked)));
                }
            }
        });
        Self { url, asked, task }
    }

    /// `METHOD /path`, in the order of the requests.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// It as a store that a configuration names.
    pub(crate) fn store(&self) -> ObjectStore {
        ObjectStore {
            url: self.url.clone(),
            service: Service::Web,
            plaintext: Plaintext::Danger,
            ca: ExtraCa::No,
            line: 1,
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request of one connection; a broken one ends it.
async fn answer(mut stream: TcpStream, files: Arc<BTreeMap<&'static str, At>>, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 * 1024 {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    asked.lock().push(format!("{method} {path}"));
    let (status, header, body) = match files.get(path) {
        None => ("404 Not Found", String::new(), Vec::new()),
        Some(At::Moved(to)) => ("302 Found", format!("location: {to}\r\n"), Vec::new()),
        Some(At::Failure(text)) => ("403 Forbidden", String::new(), text.clone().into_bytes()),
        Some(At::File(bytes)) => match range(&head, bytes.len()) {
            Some((first, last)) => {
                let part = bytes.get(first..=last).unwrap_or_default().to_vec();
                ("206 Partial Content", format!("content-range: bytes {first}-{last}/{}\r\n", bytes.len()), part)
            }
            None => ("200 OK", String::new(), bytes.clone()),
        },
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}content-length: {length}\r\nlast-modified: Wed, 02 Dec 2026 10:00:00 GMT\r\n\
         connection: close\r\n\r\n"
    );
    // Whoever asked may have gone.
    drop(stream.write_all(head.as_bytes()).await);
    if method != "HEAD" {
        drop(stream.write_all(&body).await);
    }
    drop(stream.shutdown().await);
}

/// `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`.
fn range(head: &str, length: usize) -> Option<(usize, usize)> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("range: bytes="))?;
    let (first, last) = line.split_once('=')?.1.split_once('-')?;
    let end = length.checked_sub(1)?;
    if first.is_empty() {
        return Some((length.saturating_sub(last.parse().ok()?), end));
    }
    Some((first.parse().ok()?, last.parse().map_or(end, |last: usize| last.min(end))))
}
