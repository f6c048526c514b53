//! wip
pub mod backend;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod flight;
pub mod gate;
pub mod listen;
pub mod local;
pub mod logging;
pub mod schemes;
pub mod seal;
pub mod server;
pub mod sql;
pub mod stack;
pub mod status;
pub mod tls;
pub mod workspace;
