//! The targets inside the gate: their names, and the two who call.
#![expect(clippy::unwrap_used, reason = "a failed step is a finding")]

use std::sync::LazyLock;

use portcullis::fuzzing::{self, Gate};
use portcullis_auth::{Assertion, Expiry, Principal};

use crate::Target;

pub(crate) const TARGETS: [Target; 11] = [
    ("action", fuzzing::action),
    ("command", fuzzing::command),
    ("cookie", |data| GATE.cookie(data)),
    ("handle", |data| GATE.handle(data)),
    ("pattern", fuzzing::pattern),
    ("proxy_header", fuzzing::proxy_header),
    ("sealed_box", |data| GATE.sealed_box(data)),
    ("session_options", fuzzing::session_options),
    ("session_token", |data| GATE.session_token(data)),
    ("sql_caps", fuzzing::sql_caps),
    ("substrait", fuzzing::substrait),
];

static GATE: LazyLock<Gate> = LazyLock::new(|| Gate::new(principal("alice", "here"), principal("alice", "elsewhere")));

/// Namesakes of two authorities are two identities.
fn principal(name: &str, authority: &str) -> Principal {
    Principal::assertion(Assertion {
        name: name.to_owned(),
        scheme: "fuzz",
        authority: authority.to_owned(),
        subject: name.to_owned(),
        roles: ["reader".to_owned()].into(),
        attributes: [("team".to_owned(), "blue".to_owned())].into(),
        expires: Expiry::Never,
        credential_id: "c-1".to_owned(),
    })
    .unwrap()
}
