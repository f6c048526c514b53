//! The promises of the gate, kept by the real thing: TLS, real clients, a real Ballista cluster in this process.
//!
//! One binary, so that the engine is linked once, and one cluster for most tests. Must not look inside the gate: what
//! is asserted here a client or an operator can see.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed step fails the test"
)]

mod support;

mod cli;
mod credentials;
mod examples;
mod gate;
mod grants;
mod handles;
mod handshake;
mod http2;
mod jwt;
mod kept;
mod leak;
mod lifecycle;
mod limits;
mod matrix;
mod messages;
mod metadata;
mod passwords;
mod redaction;
mod reload;
mod remote;
mod reports;
mod schema;
mod session;
mod sessions;
mod slow;
mod sql;
mod ssrf;
mod tls;
mod whose;

mod pasted;
