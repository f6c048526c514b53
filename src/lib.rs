//! wip
pub mod backend;
pub mod catalog;
pub mod config;
pub mod sql;
pub mod status;
pub mod workspace;
