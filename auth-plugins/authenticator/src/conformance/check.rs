//! The rules of the contract, each checked with the samples and with damage done to them.
//!
//! A violation names the rule and the sample by its number, never by what it holds.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use super::sample::{Part, Sample, Samples};
use crate::attempt::{Attempt, Credential};
use crate::principal::Principal;
use crate::verdict::{Authenticator, RejectKind, Rejection, Standing, Verdict};

/// Checks a scheme against the contract of [`Authenticator`].
///
/// # Errors
///
/// Every violation that was found.
pub async fn conforms(authenticator: &dyn Authenticator, samples: &Samples<'_>) -> Result<(), Vec<Violation>> {
    let mut suite = Suite { authenticator, samples, violations: Vec::new() };

    suite.samples_are_complete();
    suite.is_named();
    // ORDER: the good case first; if it fails, the refusals below would prove nothing.
    suite.admits_good().await;
    suite.abstains().await;
    suite.rejects_bad().await;
    suite.never_admits_garbage().await;
    suite.is_cancel_safe().await;
    suite.hides_secrets("the scheme", &shown(authenticator));

    if suite.violations.is_empty() { Ok(()) } else { Err(suite.violations) }
}

/// A rule of the contract that a scheme broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Which sample, by part and number.
    pub sample: String,
    /// What happened.
    pub outcome: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} {}", self.rule, self.sample, self.outcome)
    }
}

/// The lines of the contract, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// No credential: abstain.
    AbstainsWithoutCredential,
    /// A credential of another form: abstain.
    AbstainsOnForeign,
    /// A good credential: admit.
    AdmitsGood,
    /// A good credential always admits the same identity.
    SameIdentity,
    /// Unknown, wrong, expired, malformed: reject, as invalid or malformed.
    RejectsBad,
    /// An unknown identity and a wrong secret look alike.
    UnknownLooksWrong,
    /// Damaged and doubled credentials and noise are not admitted.
    NeverAdmitsGarbage,
    /// No input makes the scheme panic.
    NeverPanics,
    /// A dropped future leaves nothing behind.
    CancelSafe,
    /// Whoever was just admitted is in good standing.
    StandingAfterAdmit,
    /// No secret in `Debug` or in a reason.
    NoSecretShows,
    /// No reason quotes a name or a credential that was presented.
    NothingPresentedShows,
    /// The scheme and its name are not empty.
    IsNamed,
    /// There is a sample of every part, or a reason why not.
    SamplesAreComplete,
}

struct Suite<'a> {
    authenticator: &'a dyn Authenticator,
    samples: &'a Samples<'a>,
    violations: Vec<Violation>,
}

impl Suite<'_> {
    fn samples_are_complete(&mut self) {
        for part in Part::ALL.into_iter().filter(|part| self.samples.is_missing(*part)) {
            self.violated(Rule::SamplesAreComplete, &format!("{part:?}"), "has neither a sample nor a reason");
        }
    }

    fn is_named(&mut self) {
        if self.authenticator.scheme().is_empty() || self.authenticator.name().is_empty() {
            self.violated(Rule::IsNamed, "the scheme", "has no name");
        }
    }

    async fn admits_good(&mut self) {
        for (label, sample) in self.samples.of(Part::Good) {
            let Some(first) = self.admitted(Rule::AdmitsGood, &label, sample).await else { continue };
            let Some(second) = self.admitted(Rule::AdmitsGood, &label, sample).await else { continue };
            if first.key() != second.key() {
                self.violated(Rule::SameIdentity, &label, "was two identities in two attempts");
            }
            let standing = catch_unwind(AssertUnwindSafe(|| self.authenticator.standing(&first, self.samples.now())));
            match standing {
                Ok(Standing::Good) => (),
                Ok(Standing::Revoked) => self.violated(Rule::StandingAfterAdmit, &label, "was admitted and is revoked"),
                Err(_) => self.violated(Rule::NeverPanics, &label, "made `standing` panic"),
            }
        }
    }

    async fn abstains(&mut self) {
        let nothing = Sample::none();
        let foreign = self.samples.of(Part::Foreign).map(|(label, sample)| (Rule::AbstainsOnForeign, label, sample));
        let none = (Rule::AbstainsWithoutCredential, "no credential".to_owned(), &nothing);
        for (rule, label, sample) in foreign.chain([none]).collect::<Vec<_>>() {
            match self.verdict(&label, sample).await {
                Some(Verdict::Abstain) | None => (),
                Some(Verdict::Admit(_)) => self.violated(rule, &label, "was admitted"),
                Some(Verdict::Reject(_)) => self.violated(rule, &label, "was rejected"),
            }
        }
    }

    async fn rejects_bad(&mut self) {
        let mut wrong = None;
        for part in [Part::Wrong, Part::Unknown, Part::Malformed, Part::Expired] {
            for (label, sample) in self.samples.of(part) {
                let kind = match self.verdict(&label, sample).await {
                    None => continue,
                    Some(Verdict::Reject(rejection)) => rejection.kind(),
                    Some(Verdict::Abstain) => {
                        self.violated(Rule::RejectsBad, &label, "was abstained on");
                        continue;
                    }
                    Some(Verdict::Admit(_)) => {
                        self.violated(Rule::RejectsBad, &label, "was admitted");
                        continue;
                    }
                };
                if matches!(kind, RejectKind::Unavailable { .. }) {
                    self.violated(Rule::RejectsBad, &label, "was rejected as if the scheme were unavailable");
                }
                if matches!(part, Part::Wrong | Part::Unknown) && *wrong.get_or_insert(kind) != kind {
                    self.violated(Rule::UnknownLooksWrong, &label, "was rejected as another kind");
                }
            }
        }
    }

    async fn never_admits_garbage(&mut self) {
        let damaged = self
            .samples
            .of(Part::Good)
            .flat_map(|(label, sample)| damage(sample).into_iter().map(move |bad| (format!("{label}, damaged"), bad)));
        let garbage = noise().into_iter().map(|bad| ("noise".to_owned(), bad)).chain(damaged);
        for ((label, sample), number) in garbage.zip(1_usize..) {
            let label = format!("{label} ({number})");
            match self.verdict(&label, &sample).await {
                Some(Verdict::Abstain | Verdict::Reject(_)) | None => (),
                Some(Verdict::Admit(_)) => self.violated(Rule::NeverAdmitsGarbage, &label, "was admitted"),
            }
        }
    }

    async fn is_cancel_safe(&mut self) {
        for part in [Part::Good, Part::Wrong] {
            for (label, sample) in self.samples.of(part) {
                let attempt = sample.attempt(self.samples.now());
                // Dropped before its first step, and after it.
                let unstarted = catch_unwind(AssertUnwindSafe(|| drop(self.authenticator.authenticate(&attempt))));
                let started = poll_fn(|context| {
                    Poll::Ready(catch_unwind(AssertUnwindSafe(|| {
                        let mut future = self.authenticator.authenticate(&attempt);
                        drop(future.as_mut().poll(context));
                    })))
                })
                .await;
                if unstarted.is_err() || started.is_err() {
                    self.violated(Rule::NeverPanics, &label, "panicked when it was dropped");
                }
            }
        }
        for (label, sample) in self.samples.of(Part::Good) {
            self.admitted(Rule::CancelSafe, &label, sample).await;
        }
    }

    async fn admitted(&mut self, rule: Rule, label: &str, sample: &Sample) -> Option<Principal> {
        match self.verdict(label, sample).await? {
            Verdict::Admit(principal) => Some(principal),
            Verdict::Abstain => {
                self.violated(rule, label, "was abstained on");
                None
            }
            Verdict::Reject(_) => {
                self.violated(rule, label, "was rejected");
                None
            }
        }
    }

    /// The verdict, searched for secrets; none if the scheme panicked.
    async fn verdict(&mut self, label: &str, sample: &Sample) -> Option<Verdict> {
        let attempt = sample.attempt(self.samples.now());
        if catch_unwind(AssertUnwindSafe(|| self.authenticator.cost(&attempt))).is_err() {
            self.violated(Rule::NeverPanics, label, "made `cost` panic");
        }
        let Ok(mut future) = catch_unwind(AssertUnwindSafe(|| self.authenticator.authenticate(&attempt))) else {
            self.violated(Rule::NeverPanics, label, "made the scheme panic");
            return None;
        };
        let outcome = poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        })
        .await;
        let Some(verdict) = outcome else {
            self.violated(Rule::NeverPanics, label, "made the scheme panic");
            return None;
        };
        self.hides_secrets(label, &shown(&verdict));
        match &verdict {
            Verdict::Abstain => (),
            // Attribute values do not show in `Debug`, yet they travel: they are searched as well.
            Verdict::Admit(principal) => {
                let texts = [principal.name(), principal.credential_id(), principal.key().subject()];
                let texts = texts.into_iter().chain(principal.attributes().values().map(String::as_str));
                self.hides_secrets(label, &texts.collect::<Vec<_>>().join("\n"));
            }
            Verdict::Reject(rejection) => {
                self.hides_secrets(label, rejection.reason());
                self.quotes_nothing(label, &attempt, rejection);
            }
        }
        Some(verdict)
    }

    /// People type passwords where names belong, and the audit log keeps a reason as it is.
    fn quotes_nothing(&mut self, label: &str, attempt: &Attempt<'_>, rejection: &Rejection) {
        let mut presented: Vec<&str> = self.samples.names().to_vec();
        presented.extend(attempt.headers.values().filter_map(|value| value.to_str().ok()));
        let credential = attempt.credential();
        match &credential {
            Credential::Basic(basic) => {
                presented.push(basic.user());
                presented.extend(std::str::from_utf8(basic.password().expose()).ok());
            }
            Credential::Bearer(token) => presented.push(token.expose()),
            Credential::Absent | Credential::Malformed(_) | Credential::Unknown => (),
        }
        if presented.iter().any(|text| text.len() >= SHORTEST_QUOTE && rejection.reason().contains(text)) {
            self.violated(Rule::NothingPresentedShows, label, "is quoted in the reason");
        }
    }

    fn hides_secrets(&mut self, label: &str, text: &str) {
        let found = self.samples.secrets().iter().any(|secret| {
            // A secret also shows as the list of its bytes, which is how `Vec<u8>` is printed.
            let bytes = format!("{secret:?}");
            let bytes = bytes.trim_matches(['[', ']']);
            let verbatim = std::str::from_utf8(secret).is_ok_and(|secret| text.contains(secret));
            !secret.is_empty() && (verbatim || text.contains(bytes))
        });
        if found {
            self.violated(Rule::NoSecretShows, label, "shows a secret");
        }
    }

    fn violated(&mut self, rule: Rule, sample: &str, outcome: &'static str) {
        self.violations.push(Violation { rule, sample: sample.to_owned(), outcome });
    }
}

fn shown(value: &(impl fmt::Debug + ?Sized)) -> String {
    format!("{value:?}")
}

/// Values that belong to nobody.
fn noise() -> Vec<Sample> {
    let long = format!("Bearer {}", "x".repeat(32 * 1024 + 1));
    let values: [&[u8]; 26] = [
        b"",
        b" ",
        b"Bearer",
        b"Bearer ",
        b"Bearer  ",
        b"Bearer =",
        b"Bearer .",
        b"Bearer ..",
        b"Bearer ...",
        b"Bearer a,b",
        b"Bearer None",
        b"Bearer null",
        b"Bearer\tx",
        b"bearer \xff\xfe",
        b"\xc3\xa9\xc3\xa9\xc3\xa9",
        b"Basic",
        b"Basic ",
        b"Basic ====",
        b"Basic Og==",
        b"Basic Og",
        b"Basic YTpi",
        b"Basic !",
        // A name and a password that stand in no reason by chance.
        b"Basic bmFtZS1vZi1ub2JvZHk6d29yZC1vZi1ub2JvZHk=",
        b"Bearer token-of-nobody",
        b"Negotiate",
        long.as_bytes(),
    ];
    let mut noise: Vec<_> = values.into_iter().map(Sample::authorization).collect();
    noise.push(Sample::authorization("Bearer a").with_authorization("Bearer a"));
    noise
}

/// A good credential, damaged in every way that must make it another one.
fn damage(good: &Sample) -> Vec<Sample> {
    let Some(value) = good.authorization_value() else { return Vec::new() };
    let mut damaged = Vec::new();

    // Doubled, joined, and with something around it.
    let other: &[u8] = b"Bearer garbage";
    damaged.push(Sample::authorization(value).with_authorization(value));
    damaged.push(Sample::authorization(value).with_authorization(other));
    damaged.push(Sample::authorization(other).with_authorization(value));
    damaged.push(Sample::authorization([value, b", ", value].concat()));
    damaged.push(Sample::authorization([value, b","].concat()));
    damaged.push(Sample::authorization([value, b" "].concat()));
    damaged.push(Sample::authorization([b" ", value].concat()));
    damaged.push(Sample::authorization([value, b"\xff"].concat()));

    let space = value.iter().position(|b| *b == b' ').map_or(0, |at| at.saturating_add(1));
    let (word, token) = value.split_at_checked(space).unwrap_or((&[], value));
    damaged.push(Sample::authorization([word, b" ", token].concat()));
    damaged.push(Sample::authorization([word.trim_ascii(), b"\t", token].concat()));

    // Padding is left alone: without it a Basic credential is the same credential.
    let end = token.iter().rposition(|b| *b != b'=').map_or(0, |at| at.saturating_add(1));
    let (body, padding) = token.split_at_checked(end).unwrap_or((token, &[]));
    damaged.push(Sample::authorization([word, body, b"A", padding].concat()));
    damaged.push(Sample::authorization([word, b"A", body, padding].concat()));
    if let Some((_, shorter)) = body.split_last() {
        damaged.push(Sample::authorization([word, shorter].concat()));
    }
    if let Some((_, shorter)) = body.split_first() {
        damaged.push(Sample::authorization([word, shorter, padding].concat()));
    }
    // A slow password hash is paid for each of these, so a long token is not tried byte by byte.
    let step = body.len().checked_div(MAX_FLIPS).unwrap_or_default().saturating_add(1);
    for at in (0..body.len()).step_by(step) {
        let flipped = |(i, b): (usize, &u8)| {
            if i != at {
                *b
            } else if b.eq_ignore_ascii_case(&b'A') {
                b'B'
            } else {
                b'A'
            }
        };
        let body: Vec<u8> = body.iter().enumerate().map(flipped).collect();
        damaged.push(Sample::authorization([word, &body, padding].concat()));
    }
    damaged
}

const MAX_FLIPS: usize = 16;
/// What is shorter may stand in a reason without having been presented.
const SHORTEST_QUOTE: usize = 5;
