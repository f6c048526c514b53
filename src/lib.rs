//! Portcullis: the guarded gate in front of an Apache DataFusion Ballista cluster, for Arrow Flight SQL clients.
//!
//! # The way of a call
//!
//! 1. [`listen`] takes the connection, [`tls`] secures it, and both bound what a stranger may take.
//! 2. [`stack`] lists every layer once. Nothing but health lies outside the gate.
//! 3. [`gate`] asks the chain of authenticators; the first that claims the credential decides. What passes has a
//!    [`gate::caller::Caller`], made nowhere else.
//! 4. [`flight`] turns Flight messages into typed commands. It knows identities by `Caller` and never reads a header.
//! 5. [`sql`] caps, plans and authorizes a statement in its session's [`workspace`], whose tables come from a
//!    [`catalog::SessionBuilder`].
//! 6. [`backend`] runs what needs a cluster, [`local`] what does not; rows go back through the gate alone. Tables that
//!    SQL makes are kept in [`storage`].
//!
//! [`server::Server`] puts these together; [`cli`] and [`config`] are the process around it, and [`schemes`] the place
//! where configured schemes become authenticators.
//!
//! # Invariants
//!
//! 1. There is no way to build a gate without an authenticator, and an error of one is a refusal.
//! 2. No byte of a client chooses an address that is dialled: [`backend::ResultPart`]s come out of job results only.
//! 3. Tickets and handles are sealed for one identity ([`seal`]), and what they stand for is looked up for it alone.
//! 4. [`status`] is the only writer of what a client reads about a failure; causes stay in the log.
//! 5. Every plan passes `sql::access::authorize`, in whatever form it came.
//! 6. `backend` alone names Ballista, `backend::ballista::embedded` alone its scheduler and executor.
//! 7. Nothing a client sends is decoded as Arrow IPC in this version.
//!
//! `tests/tidy.rs` holds those of them that a search can see.

pub mod access;
pub mod audit;
pub mod backend;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod flight;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gate;
mod growth;
pub mod limits;
pub mod listen;
pub mod local;
pub mod logging;
pub mod schemes;
pub mod seal;
pub mod server;
mod slots;
pub mod sql;
pub mod stack;
pub mod status;
pub mod storage;
pub mod stores;
pub mod tls;
pub mod workspace;
