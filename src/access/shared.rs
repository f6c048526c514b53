//! Grants that are replaced while the gate serves.
//!
//! Must not mix two policies: each question is answered by one of them as a whole.

use std::sync::Arc;

use parking_lot::RwLock;
use portcullis_auth::{Access, Authorizer, Decision, Principal, Reach, TableName};

use super::Grants;

/// The [`Grants`] in force. Whoever asks after [`SharedGrants::replace`] is answered by the new ones.
#[derive(Debug)]
pub struct SharedGrants(RwLock<Arc<Grants>>);

impl SharedGrants {
    /// Begins with `grants`.
    pub fn new(grants: Grants) -> Self {
        Self(RwLock::new(Arc::new(grants)))
    }

    /// Puts `grants` into force in the place of what was.
    pub fn replace(&self, grants: Grants) {
        let new = Arc::new(grants);
        // What was may be large: it goes away after the lock does.
        let old = std::mem::replace(&mut *self.0.write(), new);
        drop(old);
    }

    /// What is in force at the moment.
    pub fn present(&self) -> Arc<Grants> {
        Arc::clone(&self.0.read())
    }
}

impl Authorizer for SharedGrants {
    fn table(&self, principal: &Principal, table: TableName<'_>) -> Access {
        self.present().table(principal, table)
    }

    fn location(&self, principal: &Principal, location: &str, reach: Reach) -> Decision {
        self.present().location(principal, location, reach)
    }
}
