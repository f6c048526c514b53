//! Who may do what: the policies that the gate brings along.
//!
//! [`Grants`] answers from the `[[grant]]` and `[[location]]` rules of a configuration, [`SharedGrants`] from whichever
//! of them are in force, and [`CatalogDecides`] leaves it to the catalog of an embedder. All of them start from *no*.
//! Pure: must not know a plan, a file or a clock.

pub mod expression;
mod grants;
mod index;
mod shared;

use portcullis_auth::{Access, Action, Authorizer, Decision, Principal, Reach, TableName};

pub use grants::Grants;
pub use shared::SharedGrants;

/// What the session's catalog holds may be read; nothing is written and no location is reached.
///
/// For embedders whose [`SessionBuilder`](crate::catalog::SessionBuilder) gives each principal what it may see.
#[derive(Clone, Copy, Debug)]
pub struct CatalogDecides;

impl Authorizer for CatalogDecides {
    fn table(&self, _principal: &Principal, _table: TableName<'_>) -> Access {
        Access::to([Action::Select])
    }

    fn location(&self, _principal: &Principal, _location: &str, _reach: Reach) -> Decision {
        Decision::Deny
    }
}
