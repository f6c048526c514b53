//! Client certificates: whoever holds the key of a certificate is whom the operator's rules say its names are.
//!
//! TLS has verified the chain, the client's signature and the CRLs before this scheme is asked. It decides who the
//! certificate names, and which CA vouches for that.
//!
//! An identity is the name together with the key of the CA that signed the certificate. A new certificate of the same
//! name from the same CA is the same identity; the same name from another CA, or from a CA with a new key, is not.
//!
//! | module | holds |
//! |---|---|
//! | `scheme` | [`ClientCertificates`], the authenticator |
//! | `rules` | [`Rules`] and [`Rule`]: from the names of a certificate to a principal |
//! | `leaf` | [`Leaf`], what a client certificate says about itself |
//! | `names` | the forms a name must have before a rule sees it |
//! | `path` | the key that signed a leaf, which is the authority of an identity |
//!
//! Claims attempts that hold a certificate and nothing else. Must not touch files or the network, must not ask for
//! revocation (TLS does, and the gate again on long connections), and must never name somebody by a part of a
//! certificate that no rule asked for.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use portcullis_auth_mtls::{Eku, Field, Rule, Rules, RulesError};
//!
//! let principals = vec![
//!     Rule::parse(Field::Uri, "spiffe://corp/svc/*", "svc-$1")?,
//!     Rule::parse(Field::Cn, "*", "$1")?,
//! ];
//! let roles = BTreeMap::from([("svc-etl".to_owned(), ["writer".to_owned()].into())]);
//! // The CAs are those that TLS verifies with: here there are none, which is refused.
//! let rules = Rules::new(principals, roles, &[], Eku::Required);
//! assert!(matches!(rules, Err(RulesError::NoAuthority)));
//! # Ok::<(), portcullis_auth_mtls::RuleError>(())
//! ```

mod scheme;

mod leaf;
mod names;
mod path;
mod rules;

#[cfg(test)]
mod testing;

pub use leaf::{Leaf, LeafError};
pub use rules::{Eku, Field, RoleError, Rule, RuleError, RulePart, Rules, RulesError, check_roles};
pub use scheme::ClientCertificates;
