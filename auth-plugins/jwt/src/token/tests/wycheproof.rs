//! J40: the signatures and key sets of Project Wycheproof. `tests/vectors/README.md` says where they are from.
//!
//! Their messages are words and no claims, so that [`Jwt`](crate::Jwt) admits none of them whatever its signature is:
//! the step before its claims is looked at as well. Must not decide by the comment of a vector.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::{Header, Unverified, decoded};
use super::*;
use crate::StaticKeys;
use crate::json::{self, Object};
use crate::keys::Found;
use crate::testing::{ISSUER, clock, judge, now};
use crate::{Jwt, KeySource};

/// All that happens to a token, but that its payload is not read: why it was refused, if it was.
fn verified(keys: &StaticKeys, token: &str) -> Result<(), &'static str> {
    let Form::Signed(signed) = Form::of(token) else { return Err("not the form of a signed token") };
    let part = |part: &str| decoded(part).map_err(|_| "not base64url");
    let header = json::object(&part(signed.header)?).ok_or("no header")?;
    part(signed.payload)?;
    let signature = part(signed.signature)?;
    let header = Header::read(&header).map_err(|_| "a header that is not accepted")?;
    let key = match keys.0.find(&header.kid, header.algorithm) {
        Found::Key(key) => key,
        Found::Ambiguous | Found::Unfit | Found::Unknown => return Err(NO_KEY),
    };
    let unverified = Unverified { header, claims: Object::new(), signature, message: signed.message };
    unverified.verify(&key).map(drop).map_err(|_| "another signature")
}

/// What became of the tests of a file.
#[derive(Debug, Default)]
struct Tally {
    accepted: BTreeSet<u64>,
    /// Valid ones that are refused, by the reason.
    refused: BTreeMap<&'static str, BTreeSet<u64>>,
    invalid_refused: BTreeSet<u64>,
    invalid_accepted: BTreeSet<u64>,
}

fn run(vectors: &str) -> Tally {
    let file: Value = serde_json::from_str(vectors).unwrap();
    let mut tally = Tally::default();
    for group in file["groups"].as_array().unwrap() {
        let keys = StaticKeys::parse(&group["set"].to_string());
        let whole = keys.as_ref().ok().map(|keys| {
            let source = KeySource::File(keys.clone());
            let config = IssuerConfig::new(ISSUER, vec!["gate".to_owned()], Algorithm::ALL.to_vec(), source);
            Jwt::new("corp", vec![config], clock()).unwrap()
        });
        for test in group["tests"].as_array().unwrap() {
            let (id, token) = (test["id"].as_u64().unwrap(), test["jws"].as_str().unwrap());
            let outcome = match &keys {
                Ok(keys) => verified(keys, token),
                Err(_) => Err(NO_KEY_IN_SET),
            };
            if let Some(jwt) = &whole {
                assert!(!matches!(judge(jwt, token, now()), Verdict::Admit(_)), "{id} is no token with claims");
            }
            match (test["result"].as_str().unwrap(), outcome) {
                ("valid", Ok(())) => drop(tally.accepted.insert(id)),
                ("valid", Err(why)) => drop(tally.refused.entry(why).or_default().insert(id)),
                (result, outcome) => {
                    assert_eq!(result, "invalid");
                    match outcome {
                        Ok(()) => drop(tally.invalid_accepted.insert(id)),
                        Err(_) => drop(tally.invalid_refused.insert(id)),
                    }
                }
            }
        }
    }
    tally
}

/// Also that the tests are all there: a file that was cut would refuse nothing.
fn expect(tally: &Tally, accepted: usize, refused: &[(&str, &[u64])], invalid: usize) {
    assert_eq!(tally.accepted.len(), accepted, "{tally:#?}");
    let refused: BTreeMap<_, BTreeSet<_>> =
        refused.iter().map(|(why, ids)| (*why, ids.iter().copied().collect())).collect();
    assert_eq!(tally.refused, refused, "valid, and refused");
    assert_eq!(tally.invalid_refused.len(), invalid, "{tally:#?}");
}

#[test]
fn no_signature_of_wycheproof_that_is_invalid_is_accepted() {
    let tally = run(include_str!("../../../tests/vectors/json_web_signature.json"));
    assert_eq!(tally.invalid_accepted, BTreeSet::new());
    let refused: &[(&str, &[u64])] = &[
        // Shared secrets, and P-521 in 347 and 351: there is no such algorithm here.
        (NO_KEY_IN_SET, &[1, 347, 348, 351, 352, 357, 358, 359, 372, 373, 376, 377]),
        // Signed by `PS384` with a key that says it is for `PS256`.
        (NO_KEY, &[346, 350]),
    ];
    expect(&tally, 32, refused, 355);
}

#[test]
fn no_key_set_of_wycheproof_that_is_invalid_is_used_but_for_one_that_only_its_issuer_can_know() {
    let tally = run(include_str!("../../../tests/vectors/json_web_key.json"));
    // A modulus of 2049 bits by a generator that was broken (ROCA). That is not looked for: issuers are chosen.
    assert_eq!(tally.invalid_accepted, BTreeSet::from([7]));
    // Shared secrets.
    expect(&tally, 1, &[(NO_KEY_IN_SET, &[2, 13, 14, 15])], 20);
}

const NO_KEY: &str = "no key for it";
const NO_KEY_IN_SET: &str = "no usable key in its set";
