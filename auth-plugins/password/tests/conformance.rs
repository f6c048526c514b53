//! Passwords against the contract of every scheme.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use portcullis_auth::conformance::{Part, Sample, Samples, conforms};
use portcullis_auth_password::{HashingConfig, Passwords, UserFile};

#[tokio::test]
async fn passwords_follow_the_contract() {
    // 2001-09-09T01:46:40Z
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let (alice, bob) = ("correct horse: battery", "hunter2 hunter2");
    let file = format!(
        "[user.alice]\npassword = \"{HASH_OF_ALICE}\"\nroles = [\"analyst\"]\nexpires = 2001-09-09T01:46:41Z\n\
         [user.\"Böb\"]\npassword = \"{HASH_OF_BOB}\"\nattributes = {{ region = \"EU\" }}\n\
         [user.carol]\npassword = \"{HASH_OF_BOB}\"\nexpires = 2001-09-09T01:46:40Z\n"
    );
    // A machine that does much else must not make the suite see a scheme that is too busy.
    let config = HashingConfig { wait: Duration::from_secs(60), ..HashingConfig::default() };
    let passwords = Passwords::new("staff", UserFile::parse(&file).unwrap(), config).unwrap();

    let encoded = |user: &str, password: &str| BASE64_STANDARD.encode(format!("{user}:{password}"));
    let basic = |user: &str, password: &str| Sample::authorization(format!("Basic {}", encoded(user, password)));
    let [salt_of_alice, output_of_alice] = parts(HASH_OF_ALICE);
    let [salt_of_bob, output_of_bob] = parts(HASH_OF_BOB);

    let samples = Samples::new(now)
        .with(Part::Good, basic("alice", alice))
        .with(Part::Good, basic("Böb", bob))
        .with(Part::Good, Sample::authorization(format!("bASIC {}", encoded("Böb", bob).trim_end_matches('='))))
        .with(Part::Unknown, basic("nobody", alice))
        .with(Part::Unknown, basic("Alice", alice))
        .with(Part::Wrong, basic("alice", bob))
        .with(Part::Wrong, basic("Böb", alice))
        .with(Part::Wrong, basic("alice", HASH_OF_ALICE))
        .with(Part::Expired, basic("carol", bob))
        .with(Part::Malformed, basic("alice", ""))
        .with(Part::Foreign, Sample::authorization("Bearer pk1.AAAAAAAAAAAA.AAAA"))
        .with(Part::Foreign, Sample::authorization("Bearer eyJhbGciOiJFUzI1NiJ9.e30.AAAA"))
        .with(Part::Foreign, Sample::authorization(format!("Bearer {}", encoded("alice", alice))))
        .with(Part::Foreign, Sample::authorization(format!("Negotiate {}", encoded("alice", alice))))
        .with(Part::Foreign, Sample::none().with_peer_certs(vec![vec![0x30].into()]))
        .secret(alice)
        .secret(bob)
        .secret(salt_of_alice)
        .secret(output_of_alice)
        .secret(salt_of_bob)
        .secret(output_of_bob);
    conforms(&passwords, &samples).await.unwrap();
}

fn parts(stored: &str) -> [&str; 2] {
    let (front, output) = stored.rsplit_once('$').unwrap();
    let (_, salt) = front.rsplit_once('$').unwrap();
    [salt, output]
}

// The cheapest parameters that a file may have: the suite checks a hundred passwords.
const HASH_OF_ALICE: &str =
    "$argon2id$v=19$m=7168,t=1,p=1$LlyZs1NggL55Z5rdDjIIkA$dkSySODZWbFD9fdR2n0vRX/ntO55Api5Q3xknqQuiqo";
const HASH_OF_BOB: &str =
    "$argon2id$v=19$m=7168,t=1,p=1$ESxYMERJvnrlGUYqQHW0Pw$QtxLNBcbvpBDUnfycAvk7ztRC/v0zZa4DT5wxdFFzcc";
