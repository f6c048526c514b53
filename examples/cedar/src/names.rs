//! The gate's names as Cedar's. Must not decide anything.

use std::collections::HashMap;

use cedar_policy::{EntityId, EntityUid, RestrictedExpression};
use portcullis_auth::Action;

use crate::{Undecided, because};

/// Parts joined by dots. A part with a dot of its own is quoted, so that no two names have one id.
pub(crate) fn id<const N: usize>(parts: [&str; N]) -> String {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    parts.map(|part| if part.contains(['.', '"']) { quoted(part) } else { part.to_owned() }).join(".")
}

pub(crate) fn uid(kind: &str, id: &str) -> Result<EntityUid, Undecided> {
    Ok(EntityUid::from_type_name_and_id(kind.parse().map_err(because)?, EntityId::new(id)))
}

pub(crate) fn texts<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> HashMap<String, RestrictedExpression> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

pub(crate) fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

pub(crate) fn word(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Delete => "delete",
        Action::Drop => "drop",
        Action::Insert => "insert",
        Action::Select => "select",
        Action::Update => "update",
    }
}
