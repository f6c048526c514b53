//! Two dates, or none.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;
use crate::tls::testing::{Ca, year};

fn at(text: &[u8]) -> Option<u64> {
    let (year, rest) = number(text, 4)?;
    instant(year, rest).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
}

#[test]
fn certificates_and_crls_have_dates() {
    let ca = Ca::new("CA");
    let client = ca.client_of(1, [2020, 2090], &[]);
    let of = |from, until| Some(Dates { from: year(from), until: year(until) });
    assert_eq!(of_certificate(client.chain.first().unwrap()), of(2020, 2090));
    let far = ca.client_of(1, [1975, 4096], &[]);
    assert_eq!(of_certificate(far.chain.first().unwrap()), of(1975, 4096));
    assert_eq!(of_crl(ca.crl([2024, 2049], &[]).der()), of(2024, 2049), "both in two digits");
    assert_eq!(of_crl(ca.crl([2024, 2050], &[1]).der()), of(2024, 2050), "the second in four");
    // Neither is taken for the other.
    assert_eq!(of_crl(client.chain.first().unwrap()), None);
    assert_eq!(of_certificate(ca.crl([2024, 2050], &[1]).der()), None);
}

#[test]
fn time_is_counted_from_1970() {
    assert_eq!(at(b"19700101000000Z"), Some(0));
    assert_eq!(at(b"20000229235959Z"), Some(951_868_799));
    assert_eq!(at(b"20240301000000Z"), Some(1_709_251_200));
    assert_eq!(at(b"20380119031408Z"), Some(2_147_483_648));
    assert_eq!(at(b"21000301000000Z"), Some(4_107_542_400));
    assert_eq!(at(b"99991231235959Z"), Some(253_402_300_799));
    assert_eq!(at(b"19500101000000Z"), Some(0), "long past");
}

#[test]
fn what_is_no_time_has_none() {
    assert!(at(b"20240131000000Z").is_some());
    for bad in [
        &b""[..],
        b"2024",
        b"20240131000000",
        b"20240131000000z",
        b"20240131000000ZZ",
        b"202401310000Z",
        b"20240131000000+0100",
        b"20240131000000.5Z",
        b"20240001000000Z",
        b"20241301000000Z",
        b"20240100000000Z",
        b"20240132000000Z",
        b"20230229000000Z",
        b"21000229000000Z",
        b"20240131240000Z",
        b"20240131006000Z",
        b"20240131000060Z",
        b"2024+131000000Z",
        b"2024 131000000Z",
    ] {
        assert_eq!(at(bad), None, "{}", bad.escape_ascii());
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let ca = Ca::new("CA");
    let crl = ca.crl([2024, 2050], &[1]).der().to_vec();
    assert!(of_crl(&crl).is_some());
    for length in 0..crl.len() {
        let (cut, _) = crl.split_at(length);
        assert_eq!(of_crl(cut), None, "{length}");
        for byte in [0x00, 0x30, 0x7f, 0x80, 0x84, 0x85, 0xff] {
            let mut bad = crl.clone();
            *bad.get_mut(length).unwrap() = byte;
            of_crl(&bad);
            of_certificate(&bad);
        }
    }
}
