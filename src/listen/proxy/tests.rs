//! Networks and headers, by themselves.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

/// A header of version 2 with this command and version, family and protocol, and rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [v2::PROTOCOL_PREFIX, &[command, family], &length, rest].concat()
}

const V4_ENDS: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0x12, 0x34, 0, 80];

fn said(header: &[u8]) -> Result<Said, HeaderError> {
    assert_eq!(extent(header).unwrap(), Extent::Known(header.len()));
    parse(header)
}

#[test]
fn a_network_holds_the_addresses_of_its_prefix() {
    for (text, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
        ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("192.0.2.1/32", "192.0.2.1", "192.0.2.0"),
        ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
        ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
        ("::1", "::1", "::2"),
        ("fe80::/10", "febf::1", "fec0::1"),
    ] {
        assert!(network(text).contains(inside.parse().unwrap()), "{text} {inside}");
        assert!(!network(text).contains(outside.parse().unwrap()), "{text} {outside}");
    }
    assert!(!network("8000::/1").contains("255.0.0.1".parse().unwrap()), "the other family is never inside");
    assert!(!network("128.0.0.0/1").contains("ff00::1".parse().unwrap()));
    assert!(network("0.0.0.0/0").is_everything() && network("::/0").is_everything());
    assert!(!network("0.0.0.0/1").is_everything() && !network("0.0.0.0").is_everything());
}

#[test]
fn what_is_no_network_is_refused_with_the_reason() {
    for (text, reason) in [
        ("", "write it as"),
        ("10.0.0/8", "write it as"),
        ("proxy.internal", "write it as"),
        (" 10.0.0.0/8", "write it as"),
        ("010.0.0.0/8", "write it as"),
        ("10.0.0.0/", "not the length"),
        ("10.0.0.0/33", "not the length"),
        ("10.0.0.0/+8", "not the length"),
        ("10.0.0.0/8/8", "not the length"),
        ("2001:db8::/129", "not the length"),
        ("2001:db8::/99999999999", "not the length"),
        ("10.0.0.1/8", "bits beyond"),
        ("2001:db8::1/64", "bits beyond"),
        ("::ffff:10.0.0.0/104", "the IPv4 network"),
    ] {
        let told = text.parse::<Network>().unwrap_err().to_string();
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn the_first_version_tells_the_client() {
    for (header, client) in [
        ("PROXY TCP4 192.0.2.1 198.51.100.1 4660 80\r\n", "192.0.2.1:4660"),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
        ("PROXY TCP6 2001:db8::1 2001:db8::2 4660 80\r\n", "[2001:db8::1]:4660"),
    ] {
        assert_eq!(said(header.as_bytes()).unwrap(), Said::Client(client.parse().unwrap()));
    }
    assert_eq!(said(b"PROXY UNKNOWN\r\n").unwrap(), Said::Unknown);
    assert_eq!(said(b"PROXY UNKNOWN 192.0.2.1 198.51.100.1 4660 80\r\n").unwrap(), Said::Unknown);
}

#[test]
fn a_malformed_first_version_is_refused() {
    for header in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP5 192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 01 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1  198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.999 198.51.100.1 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r \r\n",
        "PROXY TCP4 192.0.2.1\r198.51.100.1 1 2\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.1 1 2\r\n",
    ] {
        assert!(matches!(said(header.as_bytes()), Err(HeaderError::Malformed)), "{header:?}");
    }
}

#[test]
fn the_second_version_tells_the_client_or_that_there_is_none() {
    let v4 = Said::Client("192.0.2.1:4660".parse().unwrap());
    assert_eq!(said(&binary(0x21, 0x11, V4_ENDS)).unwrap(), v4);
    let with_more = [V4_ENDS, &[0x04, 0, 2, 0, 0], &[0xee, 0, 1, 7]].concat();
    assert_eq!(said(&binary(0x21, 0x11, &with_more)).unwrap(), v4);

    let mut v6 = [0; 36];
    v6.iter_mut().zip([0x20, 0x01, 0x0d, 0xb8]).for_each(|(byte, value)| *byte = value);
    v6.iter_mut().skip(32).zip([0x12, 0x34]).for_each(|(byte, value)| *byte = value);
    assert_eq!(said(&binary(0x21, 0x21, &v6)).unwrap(), Said::Client("[2001:db8::]:4660".parse().unwrap()));

    for local in [binary(0x20, 0x00, &[]), binary(0x20, 0x11, V4_ENDS), binary(0x20, 0x12, V4_ENDS)] {
        assert_eq!(said(&local).unwrap(), Said::Itself);
    }
    assert_eq!(said(&binary(0x21, 0x00, &[])).unwrap(), Said::Unknown);
}

#[test]
fn a_malformed_second_version_is_refused() {
    for (header, name) in [
        (binary(0x11, 0x11, V4_ENDS), "an older version"),
        (binary(0x22, 0x11, V4_ENDS), "an unknown command"),
        (binary(0x21, 0x41, V4_ENDS), "an unknown family"),
        (binary(0x21, 0x13, V4_ENDS), "an unknown protocol"),
        (binary(0x21, 0x11, &[192, 0, 2, 1]), "addresses cut short"),
        (binary(0x21, 0x21, V4_ENDS), "addresses of the other family"),
        (binary(0x21, 0x11, &[V4_ENDS, &[0x04, 0, 9, 0]].concat()), "an entry beyond the end"),
        (binary(0x21, 0x11, &[V4_ENDS, &[0x04]].concat()), "half an entry"),
    ] {
        assert!(matches!(said(&header), Err(HeaderError::Malformed)), "{name}");
    }
    for header in [binary(0x21, 0x12, V4_ENDS), binary(0x21, 0x10, V4_ENDS), binary(0x21, 0x31, &[0; 216])] {
        assert!(matches!(said(&header), Err(HeaderError::NotTcp)));
    }
}

#[test]
fn a_header_ends_where_it_says_and_not_later() {
    let text = b"PROXY UNKNOWN\r\n";
    let followed = [text.as_slice(), b"\x16\x03\x01\r\n"].concat();
    assert_eq!(extent(&followed).unwrap(), Extent::Known(text.len()));
    let header = binary(0x21, 0x11, V4_ENDS);
    let followed = [header.as_slice(), b"\x16\x03\x01"].concat();
    assert_eq!(extent(&followed).unwrap(), Extent::Known(header.len()));
    for (header, open) in [(text.as_slice(), text.len()), (&header, FIXED)] {
        for end in 0..open {
            assert_eq!(extent(header.split_at(end).0).unwrap(), Extent::Open, "{end}");
        }
    }
}

#[test]
fn a_header_without_an_end_is_refused_at_the_bound() {
    let line = |length: usize| [b"PROXY UNKNOWN ".as_slice(), &vec![b'x'; length.saturating_sub(16)], b"\r\n"].concat();
    assert_eq!(extent(&line(LONGEST_LINE)).unwrap(), Extent::Known(LONGEST_LINE));
    assert!(matches!(extent(&line(LONGEST_LINE + 1)), Err(HeaderError::TooLong)));
    assert!(matches!(extent(line(LONGEST_LINE + 2).split_at(LONGEST_LINE).0), Err(HeaderError::TooLong)));

    assert_eq!(extent(&binary(0x21, 0, &[0; LONGEST - FIXED])).unwrap(), Extent::Known(LONGEST));
    for length in [LONGEST - FIXED + 1, 65_535] {
        assert!(matches!(extent(&binary(0x21, 0, &vec![0; length])), Err(HeaderError::TooLong)), "{length}");
    }
}

#[test]
fn what_is_no_header_is_refused_at_its_first_wrong_byte() {
    for bytes in
        [b"\x16\x03\x01".as_slice(), b"PRI * HTTP/2.0", b"GET", b"PROXX", b"\r\n\r\n\r", b"\r\n\r\n\0\r\nQUIT\r"]
    {
        assert!(matches!(extent(bytes), Err(HeaderError::Missing)), "{bytes:?}");
    }
    for bytes in [b"PROXY TCP4 1".as_slice(), &binary(0x21, 0x11, V4_ENDS)] {
        assert!(looks_like_header(bytes));
    }
    assert!(!looks_like_header(b"PRI * HTTP/2.0"));
}

#[test]
fn no_bytes_make_the_parser_panic() {
    let headers = [
        b"PROXY TCP4 192.0.2.1 198.51.100.1 4660 80\r\n".to_vec(),
        binary(0x21, 0x11, V4_ENDS),
        binary(0x21, 0x21, &[7; 40]),
    ];
    let mut parsed = 0_u32;
    for header in headers {
        for at in 0..header.len() {
            for value in 0..=u8::MAX {
                let mut changed = header.clone();
                *changed.get_mut(at).unwrap() = value;
                if let Ok(Extent::Known(length)) = extent(&changed) {
                    parsed = parsed.saturating_add(u32::from(parse(changed.get(..length).unwrap_or(&changed)).is_ok()));
                }
            }
        }
    }
    assert!(parsed > 1_000, "{parsed}");
}
