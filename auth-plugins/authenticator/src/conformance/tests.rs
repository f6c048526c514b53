//! The suite itself: a scheme that follows the contract passes, and each way to break it is found.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use super::{Part, Rule, Sample, Samples, TestClock, block_on, conforms};
use crate::{
    Assertion, Attempt, Authenticator, BoxFuture, Clock, Credential, Expiry, Principal, Rejection, Standing, Verdict,
};

#[test]
fn a_scheme_that_follows_the_contract_passes() {
    check(Fault::None, &[]);
}

#[test]
fn every_way_to_break_the_contract_is_found() {
    check(Fault::AdmitsAnybody, &[Rule::AbstainsWithoutCredential, Rule::AbstainsOnForeign, Rule::RejectsBad]);
    check(Fault::AbstainsOnWrong, &[Rule::RejectsBad]);
    check(Fault::RejectsForeign, &[Rule::AbstainsOnForeign]);
    check(Fault::RejectsAbsent, &[Rule::AbstainsWithoutCredential]);
    check(Fault::RejectsGood, &[Rule::AdmitsGood]);
    check(Fault::ChangesIdentity, &[Rule::SameIdentity]);
    check(Fault::TellsUnknownFromWrong, &[Rule::UnknownLooksWrong]);
    check(Fault::UnavailableWhenWrong, &[Rule::RejectsBad]);
    check(Fault::IgnoresTheEnd, &[Rule::NeverAdmitsGarbage]);
    check(Fault::TakesTheFirstOfTwo, &[Rule::NeverAdmitsGarbage]);
    check(Fault::PanicsOnOddBytes, &[Rule::NeverPanics]);
    check(Fault::PanicsLate, &[Rule::NeverPanics]);
    check(Fault::BreaksWhenDropped, &[Rule::CancelSafe]);
    check(Fault::RevokesAtOnce, &[Rule::StandingAfterAdmit]);
    check(Fault::SecretInDebug, &[Rule::NoSecretShows]);
    check(Fault::SecretBytesInDebug, &[Rule::NoSecretShows]);
    check(Fault::SecretInReason, &[Rule::NoSecretShows]);
    check(Fault::SecretInAttribute, &[Rule::NoSecretShows]);
    check(Fault::NameInReason, &[Rule::NothingPresentedShows]);
    check(Fault::TokenInReason, &[Rule::NothingPresentedShows]);
    check(Fault::Nameless, &[Rule::IsNamed]);
}

#[test]
fn a_suite_without_samples_does_not_pass() {
    let toy = Toy::new(Fault::None);
    let found = rules(&toy, &Samples::new(NOW));
    assert_eq!(found.iter().filter(|rule| **rule == Rule::SamplesAreComplete).count(), Part::ALL.len());

    let excused = Part::ALL.into_iter().fold(Samples::new(NOW), |samples, part| samples.lacks(part, "no time"));
    assert_eq!(rules(&toy, &excused), [Rule::SamplesAreComplete], "nothing excuses the absence of a good sample");
}

#[test]
fn samples_do_not_show_in_debug() {
    let shown = format!("{:?}", samples());
    assert!(shown.contains("Good") && !shown.contains("sesame") && !shown.contains("115, 101"), "{shown}");
}

#[test]
fn a_test_clock_moves_only_when_told() {
    let clock = TestClock::new(NOW);
    assert_eq!(clock.now(), NOW);
    clock.advance(Duration::from_secs(5));
    assert_eq!(clock.now().duration_since(NOW).ok(), Some(Duration::from_secs(5)));
    clock.set(NOW);
    assert_eq!(clock.now(), NOW);
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), NOW);
}

fn check(fault: Fault, expected: &[Rule]) {
    let found = rules(&Toy::new(fault), &samples());
    for rule in expected {
        assert!(found.contains(rule), "{fault:?}: {rule:?} is not among {found:?}");
    }
    assert_eq!(found.is_empty(), expected.is_empty(), "{fault:?}: {found:?}");
}

fn rules(toy: &Toy, samples: &Samples<'_>) -> Vec<Rule> {
    match block_on(conforms(toy, samples)) {
        Ok(()) => Vec::new(),
        Err(violations) => violations.into_iter().map(|violation| violation.rule).collect(),
    }
}

fn samples() -> Samples<'static> {
    Samples::new(NOW)
        .with(Part::Good, Sample::authorization("Bearer toy.a.sesame"))
        .with(Part::Wrong, Sample::authorization("Bearer toy.a.simsim"))
        .with(Part::Unknown, Sample::authorization("Bearer toy.b.sesame"))
        .with(Part::Unknown, Sample::authorization("Bearer toy.nobody.sesame"))
        .with(Part::Malformed, Sample::authorization("Bearer toy."))
        .with(Part::Foreign, Sample::authorization("Bearer other.a.b"))
        .with(Part::Foreign, Sample::authorization("Basic YTpi"))
        .lacks(Part::Expired, "a toy lasts for ever")
        .secret("sesame")
        .name("nobody")
}

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    AbstainsOnWrong,
    AdmitsAnybody,
    BreaksWhenDropped,
    ChangesIdentity,
    IgnoresTheEnd,
    NameInReason,
    Nameless,
    PanicsLate,
    PanicsOnOddBytes,
    RejectsAbsent,
    RejectsForeign,
    RejectsGood,
    RevokesAtOnce,
    SecretBytesInDebug,
    SecretInAttribute,
    SecretInDebug,
    SecretInReason,
    TakesTheFirstOfTwo,
    TellsUnknownFromWrong,
    TokenInReason,
    UnavailableWhenWrong,
}

/// Admits `toy.a.sesame`, with one fault.
struct Toy {
    fault: Fault,
    attempts: AtomicUsize,
    running: AtomicUsize,
}

impl Toy {
    fn new(fault: Fault) -> Self {
        Self { fault, attempts: AtomicUsize::new(0), running: AtomicUsize::new(0) }
    }

    #[expect(clippy::panic, reason = "a scheme that panics must be found")]
    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let is = |fault| self.fault == fault;
        if is(Fault::AdmitsAnybody) {
            return self.admit();
        }
        let first = attempt.headers.get("authorization").map(|value| value.as_bytes());
        if is(Fault::PanicsOnOddBytes) && first.is_some_and(|value| !value.is_ascii()) {
            panic!("odd bytes");
        }
        if is(Fault::TakesTheFirstOfTwo) && first == Some(b"Bearer toy.a.sesame") {
            return self.admit();
        }
        let token = match attempt.credential() {
            Credential::Bearer(token) => token,
            Credential::Absent if is(Fault::RejectsAbsent) => return Verdict::Reject(Rejection::invalid("nothing")),
            Credential::Absent | Credential::Basic(_) | Credential::Malformed(_) | Credential::Unknown => {
                return Verdict::Abstain;
            }
        };
        let Some(rest) = token.expose().strip_prefix("toy.") else {
            return if is(Fault::RejectsForeign) {
                Verdict::Reject(Rejection::invalid("not mine"))
            } else {
                Verdict::Abstain
            };
        };
        match rest.split_once('.') {
            Some(("a", "sesame")) if is(Fault::RejectsGood) => Verdict::Reject(Rejection::invalid("no")),
            Some(("a", "sesame")) => self.admit(),
            Some(("a", other)) if is(Fault::IgnoresTheEnd) && other.starts_with("sesame") => self.admit(),
            _ if is(Fault::AbstainsOnWrong) => Verdict::Abstain,
            _ if is(Fault::SecretInReason) => Verdict::Reject(Rejection::invalid("it is not sesame")),
            _ if is(Fault::UnavailableWhenWrong) => Verdict::Reject(Rejection::unavailable("busy", Duration::ZERO)),
            Some((name, _)) if is(Fault::NameInReason) => {
                Verdict::Reject(Rejection::invalid(format!("who is {name}?")))
            }
            _ if is(Fault::TokenInReason) => Verdict::Reject(Rejection::invalid(format!("not `{}`", token.expose()))),
            Some(("a", _)) | None => Verdict::Reject(Rejection::invalid("wrong")),
            Some(_) if is(Fault::TellsUnknownFromWrong) => Verdict::Reject(Rejection::malformed("unknown")),
            Some(_) => Verdict::Reject(Rejection::invalid("wrong")),
        }
    }

    fn admit(&self) -> Verdict {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let subject = if self.fault == Fault::ChangesIdentity { format!("a{number}") } else { "a".to_owned() };
        let note = if self.fault == Fault::SecretInAttribute { "sesame" } else { "" };
        let assertion = Assertion {
            name: "a".to_owned(),
            scheme: "toy",
            authority: "toy".to_owned(),
            subject,
            roles: Default::default(),
            attributes: [("note".to_owned(), note.to_owned())].into(),
            expires: Expiry::Never,
            credential_id: "a".to_owned(),
        };
        match Principal::assertion(assertion) {
            Ok(principal) => Verdict::Admit(principal),
            Err(invalid) => Verdict::Reject(Rejection::invalid(invalid.to_string())),
        }
    }
}

impl std::fmt::Debug for Toy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toy ")?;
        if self.fault == Fault::SecretInDebug {
            f.write_str("sesame")?;
        }
        if self.fault == Fault::SecretBytesInDebug { write!(f, "{:?}", b"sesame") } else { Ok(()) }
    }
}

impl Authenticator for Toy {
    fn scheme(&self) -> &'static str {
        "toy"
    }

    fn name(&self) -> &str {
        if self.fault == Fault::Nameless { "" } else { "toy" }
    }

    #[expect(clippy::panic, reason = "a scheme that panics must be found")]
    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let others = self.running.fetch_add(1, Ordering::Relaxed);
            if self.fault == Fault::BreaksWhenDropped && others > 0 {
                return Verdict::Reject(Rejection::invalid("busy"));
            }
            // One step in which the future can be dropped.
            let mut waited = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut waited, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            if self.fault == Fault::PanicsLate && !attempt.headers.is_empty() {
                panic!("late");
            }
            let verdict = self.judge(attempt);
            self.running.fetch_sub(1, Ordering::Relaxed);
            verdict
        })
    }

    fn standing(&self, _: &Principal, _: SystemTime) -> Standing {
        if self.fault == Fault::RevokesAtOnce { Standing::Revoked } else { Standing::Good }
    }
}
