//! Who somebody is, as evidence that a scheme has admitted them.
//!
//! [`Principal`] has private fields and one constructor, [`Principal::assertion`]: searching for that name lists every
//! place where an identity is born. Must not say what a principal may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// An identity that a scheme has verified. Cheap to clone.
///
/// Two principals are never compared as a whole: ownership is by [`Principal::key`].
#[derive(Clone)]
pub struct Principal(Arc<Facts>);

impl Principal {
    /// States that the holder of a verified credential is who `assertion` says. Only an
    /// [`Authenticator`](crate::Authenticator) should have a reason to call this.
    ///
    /// # Errors
    ///
    /// If a name is empty, too long, or holds characters that would hide or reorder text in a log; if there are too
    /// many roles or attributes; if the display name is one that grants use for something else.
    pub fn assertion(assertion: Assertion) -> Result<Self, InvalidAssertion> {
        let Assertion { name, scheme, authority, subject, roles, attributes, expires, credential_id } = assertion;

        check_name("name", &name, MAX_NAME)?;
        // Grants are written to a name, to `role:` and a role, or to everybody. A name that reads like either of the
        // other two must not exist, whoever matches grants and however they do it.
        if name == "*" || name.starts_with("role:") {
            return Err(InvalidAssertion { field: "name", problem: "is reserved" });
        }
        check_name("scheme", scheme, MAX_NAME)?;
        // An issuer or a subject may be a URI or a distinguished name, longer than a name for people.
        check_name("authority", &authority, MAX_URI)?;
        check_name("subject", &subject, MAX_URI)?;
        check_name("credential id", &credential_id, MAX_NAME)?;

        if roles.len() > MAX_ENTRIES || total(&roles) > MAX_TOTAL {
            return Err(InvalidAssertion { field: "roles", problem: "are too many" });
        }
        for role in &roles {
            check_name("role", role, MAX_NAME)?;
        }

        if attributes.len() > MAX_ENTRIES
            || total(attributes.keys()).saturating_add(total(attributes.values())) > MAX_TOTAL
        {
            return Err(InvalidAssertion { field: "attributes", problem: "are too many" });
        }
        for (attribute, value) in &attributes {
            check_name("attribute name", attribute, MAX_NAME)?;
            check_characters("attribute value", value)?;
        }

        let key = IdentityKey { scheme, authority, subject };
        Ok(Self(Arc::new(Facts { name, key, roles, attributes, expires, credential_id })))
    }

    /// The name for people, logs and grants. Not unique: ownership is by [`Principal::key`].
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The kind of scheme that admitted this principal.
    pub fn scheme(&self) -> &'static str {
        self.0.key.scheme
    }

    /// The roles the credential brings along.
    pub fn roles(&self) -> &BTreeSet<String> {
        &self.0.roles
    }

    /// Facts an embedder may use to build a session; no secret is among them.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.0.attributes
    }

    /// When the credential ends.
    pub fn expires(&self) -> Expiry {
        self.0.expires
    }

    /// What a revocation would name: a key id, a token id, a serial number.
    pub fn credential_id(&self) -> &str {
        &self.0.credential_id
    }

    /// What owns sessions, handles, tickets and queries.
    pub fn key(&self) -> &IdentityKey {
        &self.0.key
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { name, key, roles, attributes, expires, credential_id } = &*self.0;
        f.debug_struct("Principal")
            .field("name", name)
            .field("key", key)
            .field("roles", roles)
            // Values may be personal: they are for the session builder, not for a log.
            .field("attributes", &attributes.keys())
            .field("expires", expires)
            .field("credential_id", credential_id)
            .finish()
    }
}

/// What a scheme says about the holder of a credential it has verified.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// The name for people, logs and grants.
    pub name: String,
    /// The kind of scheme, as [`Authenticator::scheme`](crate::Authenticator::scheme) says it.
    pub scheme: &'static str,
    /// Who vouches: the issuer, the CA, or the configured name of the authenticator.
    pub authority: String,
    /// The identity as the authority knows it.
    pub subject: String,
    /// Roles the credential brings along.
    pub roles: BTreeSet<String>,
    /// Facts for an embedder's session builder; never a secret.
    pub attributes: BTreeMap<String, String>,
    /// When the credential ends.
    pub expires: Expiry,
    /// What a revocation names: key id, `jti`, serial number.
    pub credential_id: String,
}

/// Who an identity is, free of display names: the same subject of another authority is somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentityKey {
    scheme: &'static str,
    authority: String,
    subject: String,
}

impl IdentityKey {
    /// The kind of scheme.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The issuer, the CA, or the configured name of the authenticator.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The identity as the authority knows it.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

/// When something ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It is over at this time, and from then on.
    At(SystemTime),
    /// It does not end by itself.
    Never,
}

impl Expiry {
    /// Whether it is over at `now`.
    pub fn passed(self, now: SystemTime) -> bool {
        match self {
            Self::At(end) => end <= now,
            Self::Never => false,
        }
    }

    /// Whichever of the two ends first.
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.min(b)),
            (end @ Self::At(_), Self::Never) | (Self::Never, end) => end,
        }
    }
}

/// An assertion that is not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAssertion {
    field: &'static str,
    problem: &'static str,
}

impl InvalidAssertion {
    /// Which part of the assertion is wrong.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for InvalidAssertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value itself may come from a stranger, so it is not repeated.
        write!(f, "{} {}", self.field, self.problem)
    }
}

impl std::error::Error for InvalidAssertion {}

struct Facts {
    name: String,
    key: IdentityKey,
    roles: BTreeSet<String>,
    attributes: BTreeMap<String, String>,
    expires: Expiry,
    credential_id: String,
}

fn check_name(field: &'static str, name: &str, max: usize) -> Result<(), InvalidAssertion> {
    if name.is_empty() {
        return Err(InvalidAssertion { field, problem: "is empty" });
    }
    if name.len() > max {
        return Err(InvalidAssertion { field, problem: "is too long" });
    }
    check_characters(field, name)
}

fn check_characters(field: &'static str, text: &str) -> Result<(), InvalidAssertion> {
    if text.chars().any(is_misleading) {
        return Err(InvalidAssertion { field, problem: "holds a control or bidirectional character" });
    }
    Ok(())
}

/// Characters that end a line, hide text or reorder it, so that what an operator reads is not what was compared.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn total<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().fold(0, |sum, text| sum.saturating_add(text.len()))
}

const MAX_NAME: usize = 256;
const MAX_URI: usize = 2048;
const MAX_ENTRIES: usize = 200;
const MAX_TOTAL: usize = 16 * 1024;

#[cfg(test)]
mod tests;
