//! Whose data: what an identity sees and does by every way that leads to a table or a file.
//!
//! [`house`] has the people and the tables, [`ways`] the ways, [`matrix`] what each of them answers to whom, [`absent`]
//! that what is hidden is not there, [`making`] who reads what somebody made, [`hunt`] the hostile statements, and
//! `substrait` the plans. How several grants add up is in `src/access/grants/tests.rs`; must not repeat it.

mod absent;
mod corpus;
mod house;
mod hunt;
mod lineitem;
mod making;
mod matrix;
mod policy;
mod secrets;
mod statements;
#[cfg(feature = "substrait")]
mod substrait;
pub(crate) mod ways;
