//! Boxes open for whom they were made, and for nobody and nothing else.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use super::*;

const ALICE: &[u8] = b"api-key/keys/alice";

fn key(seed: u8) -> Secret {
    Secret::new((0..32_u8).map(|at| at ^ seed).collect::<Vec<_>>())
}

#[test]
fn a_box_opens_for_its_purpose_and_owner_and_for_no_other() {
    let sealer = Sealer::random().unwrap();
    for purpose in [Purpose::Poll, Purpose::Prepared, Purpose::Session, Purpose::Ticket] {
        let sealed = sealer.seal(purpose, ALICE, b"query 7").unwrap();
        assert_eq!(sealer.open(purpose, ALICE, &sealed).unwrap(), b"query 7");
        assert_eq!(sealer.open(purpose, b"api-key/keys/bob", &sealed), Err(NotOpened));
        assert_eq!(sealer.open(purpose, b"", &sealed), Err(NotOpened));
        for other in [Purpose::Poll, Purpose::Prepared, Purpose::Session, Purpose::Ticket] {
            assert_eq!(sealer.open(other, ALICE, &sealed).is_ok(), other == purpose);
        }
    }
}

#[test]
fn an_empty_value_and_an_empty_owner_are_sealed_too() {
    let sealer = Sealer::random().unwrap();
    let sealed = sealer.seal(Purpose::Ticket, b"", b"").unwrap();
    assert_eq!(sealer.open(Purpose::Ticket, b"", &sealed).unwrap(), b"");
}

#[test]
fn any_flipped_bit_and_any_truncation_closes_the_box() {
    let sealer = Sealer::random().unwrap();
    let sealed = sealer.seal(Purpose::Ticket, ALICE, b"a secret worth guarding").unwrap();
    assert!(sealer.open(Purpose::Ticket, ALICE, &sealed).is_ok());
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut forged = sealed.clone();
            forged[at] ^= 1 << bit;
            assert_eq!(sealer.open(Purpose::Ticket, ALICE, &forged), Err(NotOpened), "byte {at} bit {bit}");
        }
        assert_eq!(sealer.open(Purpose::Ticket, ALICE, &sealed[..at]), Err(NotOpened), "cut at {at}");
    }
    let mut longer = sealed;
    longer.push(0);
    assert_eq!(sealer.open(Purpose::Ticket, ALICE, &longer), Err(NotOpened));
}

#[test]
fn an_old_key_opens_until_it_is_removed() {
    let before = Sealer::new(vec![key(1)]).unwrap();
    let rotated = Sealer::new(vec![key(2), key(1)]).unwrap();
    let after = Sealer::new(vec![key(2)]).unwrap();

    let old = before.seal(Purpose::Session, b"", b"s").unwrap();
    assert!(rotated.open(Purpose::Session, b"", &old).is_ok());
    assert_eq!(after.open(Purpose::Session, b"", &old), Err(NotOpened));

    let new = rotated.seal(Purpose::Session, b"", b"s").unwrap();
    assert!(after.open(Purpose::Session, b"", &new).is_ok(), "the newest key seals");
    assert_eq!(before.open(Purpose::Session, b"", &new), Err(NotOpened));
}

#[test]
fn the_same_value_never_seals_to_the_same_bytes() {
    let sealer = Sealer::new(vec![key(3)]).unwrap();
    let one = sealer.seal(Purpose::Ticket, ALICE, b"x").unwrap();
    assert_ne!(one, sealer.seal(Purpose::Ticket, ALICE, b"x").unwrap());
}

#[test]
fn the_longest_value_opens_and_a_longer_one_is_not_sealed() {
    let sealer = Sealer::random().unwrap();
    let longest = sealer.seal(Purpose::Ticket, b"", &vec![7; MAX_PLAINTEXT]).unwrap();
    assert_eq!(longest.len(), MAX_SEALED);
    assert!(sealer.open(Purpose::Ticket, b"", &longest).is_ok());
    assert_eq!(sealer.seal(Purpose::Ticket, b"", &vec![7; MAX_PLAINTEXT + 1]), Err(SealError::TooLong));
    assert_eq!(sealer.open(Purpose::Ticket, b"", &vec![VERSION; MAX_SEALED + 1]), Err(NotOpened));
}

#[test]
fn unusable_keys_are_refused() {
    assert!(Sealer::new(vec![key(1)]).is_ok());
    assert_eq!(Sealer::new(vec![]).unwrap_err(), SealKeyError::Missing);
    assert_eq!(Sealer::new(vec![Secret::new(vec![1; 31])]).unwrap_err(), SealKeyError::Length(31));
    assert_eq!(Sealer::new(vec![key(1), Secret::new(vec![9; 32])]).unwrap_err(), SealKeyError::Weak);
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?}", Sealer::new(vec![key(1), key(2)]).unwrap()), "Sealer { older: 1, .. }");
}
