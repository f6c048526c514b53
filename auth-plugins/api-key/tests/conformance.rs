//! API keys against the contract of every scheme.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use portcullis_auth::conformance::{Part, Sample, Samples, block_on, conforms};
use portcullis_auth::{Expiry, Secret};
use portcullis_auth_api_key::{ApiKeys, KeyFile, generate};

#[test]
fn api_keys_follow_the_contract() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let alice = generate("alice", &["analyst"], Expiry::At(now + Duration::from_secs(1))).unwrap();
    let bob = generate("bob", &[], Expiry::Never).unwrap();
    let expired = generate("alice", &["analyst"], Expiry::At(now)).unwrap();
    let unknown = generate("alice", &["analyst"], Expiry::Never).unwrap();
    let file = [alice.record.as_str(), &bob.record, &expired.record].join("\n");
    let keys = ApiKeys::new("keys", KeyFile::parse(&file).unwrap());

    let [id_of_alice, secret_of_alice] = parts(&alice.key);
    let [_, secret_of_bob] = parts(&bob.key);
    let [_, secret_expired] = parts(&expired.key);
    let [_, secret_unknown] = parts(&unknown.key);
    let bearer = |key: &Secret| Sample::authorization([b"Bearer ", key.expose()].concat());

    let samples = Samples::new(now)
        .with(Part::Good, bearer(&alice.key))
        .with(Part::Good, bearer(&bob.key))
        .with(Part::Good, Sample::authorization([b"bEARER ", bob.key.expose()].concat()))
        .with(Part::Unknown, bearer(&unknown.key))
        .with(Part::Wrong, Sample::authorization(format!("Bearer pk1.{id_of_alice}.{secret_of_bob}")))
        .with(Part::Expired, bearer(&expired.key))
        .with(Part::Malformed, Sample::authorization("Bearer pk1."))
        .with(Part::Malformed, Sample::authorization("Bearer pk1.AAAA.AAAA"))
        .with(Part::Malformed, Sample::authorization(format!("Bearer pk1.{id_of_alice}.{secret_of_alice}=")))
        .with(Part::Foreign, Sample::authorization("Bearer ps1.AAAAAAAAAAAA"))
        .with(Part::Foreign, Sample::authorization("Bearer eyJhbGciOiJFUzI1NiJ9.e30.AAAA"))
        .with(Part::Foreign, Sample::authorization("Bearer PK1.AAAAAAAAAAAA.AAAA"))
        .with(Part::Foreign, Sample::authorization("Basic cGsxLkFBQUE6cGsxLkFBQUE="))
        .with(Part::Foreign, Sample::authorization("Negotiate pk1.AAAA"))
        .with(Part::Foreign, Sample::none().with_peer_certs(vec![vec![0x30].into()]))
        .secret(&secret_of_alice)
        .secret(&secret_of_bob)
        .secret(&secret_expired)
        .secret(&secret_unknown);
    block_on(conforms(&keys, &samples)).unwrap();
}

fn parts(key: &Secret) -> [String; 2] {
    let text = std::str::from_utf8(key.expose()).unwrap();
    let (front, secret) = text.rsplit_once('.').unwrap();
    let (_, id) = front.split_once('.').unwrap();
    [id.to_owned(), secret.to_owned()]
}
