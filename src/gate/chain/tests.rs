//! One scheme has the last word, and a broken scheme never becomes an abstention.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::time::SystemTime;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use portcullis_auth::RejectKind;

use super::super::fakes::{Badge, Manner};
use super::*;

fn headers(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).collect()
}

async fn judge(chain: &Chain, values: &[&'static str]) -> Judgement {
    let headers = headers(values);
    chain.judge(&Attempt::new(&headers, SystemTime::UNIX_EPOCH)).await
}

fn admitted(judgement: Judgement) -> (String, String) {
    match judgement {
        Judgement::Admitted { by, principal } => (by, principal.name().to_owned()),
        Judgement::Refused { rejection, .. } | Judgement::Unclaimed { rejection } => {
            panic!("refused: {}", rejection.reason())
        }
    }
}

fn refused(judgement: Judgement) -> (String, RejectKind, String) {
    match judgement {
        Judgement::Refused { by, rejection } => (by, rejection.kind(), rejection.reason().to_owned()),
        Judgement::Unclaimed { rejection } => (NO_SCHEME.to_owned(), rejection.kind(), rejection.reason().to_owned()),
        Judgement::Admitted { principal, .. } => panic!("admitted: {principal:?}"),
    }
}

#[tokio::test]
async fn the_scheme_that_claims_a_credential_decides() {
    let (red, blue) = (Badge::new("red", Manner::AdmitsGood), Badge::new("blue", Manner::AdmitsGood));
    let chain = Chain::new(red.clone()).then(blue.clone()).unwrap();
    assert_eq!(admitted(judge(&chain, &["Bearer red.alice"]).await), ("red".into(), "alice".into()));
    assert_eq!(blue.asked(), 0);
    assert_eq!(admitted(judge(&chain, &["bearer blue.bob"]).await), ("blue".into(), "bob".into()));
}

#[tokio::test]
async fn a_rejected_credential_never_reaches_the_next_scheme() {
    let (red, any) = (Badge::new("red", Manner::AdmitsGood), Badge::new("any", Manner::AdmitsAnything));
    let chain = Chain::new(red).then(any.clone()).unwrap();
    assert_eq!(admitted(judge(&chain, &["Bearer other"]).await).0, "any");
    let (by, kind, _) = refused(judge(&chain, &["Bearer red.bad"]).await);
    assert_eq!((by.as_str(), kind, any.asked()), ("red", RejectKind::Invalid, 1));
}

#[tokio::test]
async fn when_all_abstain_the_call_is_refused() {
    let chain = Chain::new(Badge::new("red", Manner::AdmitsGood));
    for values in [&[][..], &["Bearer green.alice"], &["Basic YTpi"], &["Negotiate abc"]] {
        let (by, kind, reason) = refused(judge(&chain, values).await);
        assert_eq!((by.as_str(), kind), ("-", RejectKind::Invalid), "{values:?}");
        assert_eq!(reason, "no scheme claimed the credential");
    }
}

#[tokio::test]
async fn an_unreadable_or_ambiguous_credential_is_refused_before_any_scheme() {
    let any = Badge::new("any", Manner::AdmitsAnything);
    let chain = Chain::new(any.clone());
    assert_eq!(admitted(judge(&chain, &["Bearer x"]).await).0, "any");
    for values in [
        &["Bearer x", "Bearer y"][..],
        &["Bearer x", "Basic YTpi"],
        &["Bearer x, Basic YTpi"],
        &["Bearer  x"],
        &["Bearer "],
        &["Basic !"],
        &[""],
    ] {
        assert_eq!(refused(judge(&chain, values).await).1, RejectKind::Malformed, "{values:?}");
    }
    assert_eq!(any.asked(), 1);
}

#[tokio::test]
async fn a_certificate_and_a_header_together_are_refused() {
    let any = Badge::new("any", Manner::AdmitsAnything);
    let chain = Chain::new(any.clone());
    let certs = [rustls_pki_types::CertificateDer::from(vec![1, 2, 3])];
    let (none, bearer) = (headers(&[]), headers(&["Bearer x"]));
    let alone = Attempt::new(&none, SystemTime::UNIX_EPOCH).with_peer_certs(&certs);
    assert_eq!(admitted(chain.judge(&alone).await).0, "any");
    let both = Attempt::new(&bearer, SystemTime::UNIX_EPOCH).with_peer_certs(&certs);
    assert_eq!(refused(chain.judge(&both).await).1, RejectKind::Malformed);
    assert_eq!(any.asked(), 1);
}

#[tokio::test]
async fn a_scheme_that_panics_or_hangs_or_is_down_is_unavailable_and_final() {
    for manner in [Manner::Panics, Manner::Hangs, Manner::Unavailable] {
        let (red, any) = (Badge::new("red", manner), Badge::new("any", Manner::AdmitsAnything));
        let chain = Chain::new(red).then(any.clone()).unwrap();
        assert_eq!(admitted(judge(&chain, &["Bearer other"]).await).0, "any");
        let (by, kind, _) = refused(judge(&chain, &["Bearer red.alice"]).await);
        assert_eq!(by, "red");
        assert!(matches!(kind, RejectKind::Unavailable { .. }), "{manner:?}: {kind:?}");
        assert_eq!(any.asked(), 1, "{manner:?}");
    }
}

#[tokio::test]
async fn an_admission_that_is_already_over_is_refused() {
    let chain = Chain::new(Badge::new("red", Manner::AdmitsLate));
    assert_eq!(refused(judge(&chain, &["Bearer red.alice"]).await).2, "the credential has expired");
}

#[test]
fn two_schemes_of_one_name_are_no_chain() {
    let chain = Chain::new(Badge::new("red", Manner::AdmitsGood));
    assert!(chain.clone().then(Badge::new("blue", Manner::AdmitsGood)).is_ok());
    let error = chain.clone().then(Badge::new("red", Manner::AdmitsGood)).unwrap_err();
    assert_eq!(error.to_string(), "two authentication schemes are named `red`");
    assert!(chain.preceded_by(Badge::new("red", Manner::AdmitsGood)).is_err());
}
