//! `check`: a configuration and everything it names, without serving anybody.
//!
//! Goes as far as `serve` does: files are read, the cluster starts, tables are opened, and all of it is stopped again.
//! Prints findings; the exit code says whether `serve` would start.

use std::net::SocketAddr;
use std::path::Path;

use super::serve::{notes, start};
use super::{Ended, on_runtime, say};
use crate::config::Config;

pub(super) fn run(file: &Path) -> Result<(), Ended> {
    let mut config = Config::load(file).map_err(|errors| Ended::Configuration(errors.to_string()))?;
    for note in notes(&config) {
        say(format_args!("note: {note}"))?;
    }
    let listen = config.server.listen;
    // The configured port may be in use by the very server whose next configuration this is.
    config.server.listen = SocketAddr::new(listen.ip(), 0);
    let tables = config.tables.len();
    on_runtime(async move {
        let (gate, cluster) = start(file, config).await?;
        gate.drain(std::time::Duration::from_secs(1)).await;
        cluster.stop().await;
        Ok(())
    })?;
    say(format_args!("ok: {} would listen on {listen} with {tables} tables", file.display()))
}
