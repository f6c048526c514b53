//! A limit lets through what it says, tells a wait that is enough, and never grows.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_auth::{Assertion, Expiry, Principal};

use super::failures::LONGEST_DELAY;
use super::known::{HOMES_PER_NAME, KNOWN_FOR};
use super::*;

const ALICE: Named<'_> = Named::Name("alice");
const BOB: Named<'_> = Named::Name("bob");
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const SPRAY: u64 = 1_000_000;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn source(address: &str) -> Source {
    Source::from(address.parse::<IpAddr>().unwrap())
}

/// One of 2^64 sources.
fn network(number: u64) -> Source {
    Source::from(IpAddr::V6(Ipv6Addr::from(u128::from(number) << 64)))
}

fn limiter() -> (Limiter, Ticks) {
    let rates =
        Rates { preauth_per_ip: rate("3/s"), failed_auth_per_ip: rate("20/m"), failed_auth_per_name: rate("5/m") };
    let ticks = Ticks::still();
    (Limiter::new(rates, ticks.clone()), ticks)
}

fn fail(limiter: &Limiter, times: u32, source: Source, name: Named<'_>) {
    for _ in 0..times {
        let _not_of_interest = limiter.failed(source, name);
    }
}

/// Waits as long as a refusal says; a moment before that the refusal must still stand.
fn wait_out(ticks: &Ticks, exceeded: Exceeded, refuses: impl Fn() -> Result<(), Exceeded>) {
    let moment = Duration::from_nanos(1);
    ticks.advance(exceeded.retry_after.checked_sub(moment).unwrap());
    assert!(refuses().is_err(), "too long a wait");
    ticks.advance(moment);
}

#[test]
fn a_rate_is_a_count_a_slash_and_a_unit() {
    for (text, count, period) in [("200/s", 200, 1), ("300/m", 300, 60), ("1/h", 1, 3600), ("1000000/s", 1_000_000, 1)]
    {
        let rate = rate(text);
        assert_eq!((rate.count().get(), rate.period().as_secs()), (count, period), "{text}");
    }
    for text in ["", "/", "5", "5/", "/s", "0/s", "-1/s", "+5/s", "1.5/s", " 5/s", "5 /s", "5/S", "5/min", "5/d"] {
        text.parse::<Rate>().unwrap_err();
    }
    for text in ["1000001/s", "4294967296/s", "99999999999999999999/s", "5/s/s", "٣/s"] {
        text.parse::<Rate>().unwrap_err();
    }
    assert_eq!((Rate::per_second(200), Rate::per_minute(300)), (rate("200/s"), rate("300/m")));
    assert_eq!((Rate::per_second(0), Rate::per_minute(u32::MAX)), (rate("1/s"), rate("1000000/m")));
    let told = "ten/m".parse::<Rate>().unwrap_err().to_string();
    assert!(told.starts_with("`ten/m` is not a rate") && told.contains("200/s"), "{told}");
    assert!("x".repeat(10_000).parse::<Rate>().unwrap_err().to_string().len() < 300);
}

#[test]
fn the_more_generous_rate_is_the_faster_one_and_then_the_one_with_more_at_once() {
    for (more, less) in [("2/s", "1/s"), ("2/s", "100/m"), ("61/m", "1/s"), ("60/m", "1/s"), ("3600/h", "60/m")] {
        assert!(rate(more).is_more_generous_than(rate(less)), "{more} {less}");
        assert!(!rate(less).is_more_generous_than(rate(more)), "{more} {less}");
    }
    assert!(!rate("5/s").is_more_generous_than(rate("5/s")));
}

#[test]
fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff:ffff:ffff:ffff"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"), "a mapped address is its IPv4 address");
    assert_ne!(source("::ffff:192.0.2.1"), source("::ffff:192.0.2.2"));
    assert_eq!(source("2001:db8:1:2:3::").to_string(), "2001:db8:1:2::/64");
    assert_eq!(source("::ffff:192.0.2.1").to_string(), "192.0.2.1");
}

#[test]
fn a_stranger_waits_as_long_as_it_is_told_and_passes() {
    let (limiter, ticks) = limiter();
    let (here, there) = (source("192.0.2.1"), source("192.0.2.2"));
    for _ in 0..3 {
        limiter.stranger(here).unwrap();
    }
    let exceeded = limiter.stranger(here).unwrap_err();
    assert_eq!(exceeded.limit, "preauth_per_ip");
    assert!(!exceeded.retry_after.is_zero() && exceeded.retry_after <= SECOND, "{exceeded:?}");
    limiter.stranger(there).unwrap();
    wait_out(&ticks, exceeded, || limiter.stranger(here));
    limiter.stranger(here).unwrap();
    limiter.stranger(here).unwrap_err();
}

#[test]
fn the_running_clock_refuses_too() {
    let limiter = Keyed::new("test", rate("2/h"), 10, Ticks::start());
    limiter.check(&1).unwrap();
    limiter.check(&1).unwrap();
    let exceeded = limiter.check(&1).unwrap_err();
    assert!(exceeded.retry_after > MINUTE && exceeded.retry_after <= MINUTE * 30, "{exceeded:?}");
}

#[test]
fn failures_within_the_quota_cost_nothing() {
    let (limiter, ticks) = limiter();
    let here = source("192.0.2.1");
    for _ in 0..100 {
        limiter.failed(here, ALICE).unwrap();
        limiter.may_try(here, ALICE).unwrap();
        // 5/m
        ticks.advance(SECOND * 12);
    }
}

#[test]
fn each_failure_beyond_the_quota_doubles_the_wait_up_to_fifteen_minutes() {
    let (limiter, ticks) = limiter();
    let here = source("192.0.2.1");
    fail(&limiter, 5, here, ALICE);
    limiter.may_try(here, ALICE).unwrap();
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
        let wait = Duration::from_secs(wait);
        // A source of its own for each, so that only the name is in question; none has ever signed in.
        let here = network(wait.as_secs());
        fail(&limiter, 1, here, ALICE);
        let exceeded = limiter.may_try(here, ALICE).unwrap_err();
        assert_eq!(exceeded, Exceeded { limit: "failed_auth_per_name", retry_after: wait });
        limiter.may_try(here, BOB).unwrap();
        wait_out(&ticks, exceeded, || limiter.may_try(here, ALICE));
        limiter.may_try(here, ALICE).unwrap();
    }
}

#[test]
fn a_source_that_fails_too_often_is_told_and_delayed_with_every_name() {
    let (limiter, ticks) = limiter();
    let (here, there) = (source("192.0.2.1"), source("192.0.2.2"));
    for _ in 0..20 {
        limiter.failed(here, Named::Nobody).unwrap();
    }
    let told = limiter.failed(here, Named::Nobody).unwrap_err();
    assert_eq!(told, Exceeded { limit: "failed_auth_per_ip", retry_after: SECOND });
    for name in [ALICE, BOB, Named::Nobody] {
        assert_eq!(limiter.may_try(here, name).unwrap_err(), told);
        limiter.may_try(there, name).unwrap();
    }
    ticks.advance(SECOND);
    limiter.may_try(here, ALICE).unwrap();
    assert_eq!(limiter.failed(here, Named::Nobody).unwrap_err().retry_after, SECOND * 2);
}

#[test]
fn of_two_waits_the_longer_one_is_told() {
    let (limiter, ticks) = limiter();
    let here = source("192.0.2.1");
    fail(&limiter, 21, here, ALICE);
    let exceeded = limiter.may_try(here, ALICE).unwrap_err();
    assert_eq!(exceeded, Exceeded { limit: "failed_auth_per_name", retry_after: LONGEST_DELAY });
    assert_eq!(limiter.may_try(here, BOB).unwrap_err().limit, "failed_auth_per_ip");
    ticks.advance(exceeded.retry_after);
    limiter.may_try(here, ALICE).unwrap();
}

#[test]
fn a_quiet_time_resets_the_delay_and_a_shorter_one_does_not() {
    let (limiter, ticks) = limiter();
    let here = source("192.0.2.1");
    fail(&limiter, 7, here, ALICE);
    ticks.advance(SECOND * 2 + MINUTE - Duration::from_nanos(1));
    limiter.sweep();
    fail(&limiter, 1, here, ALICE);
    assert_eq!(limiter.may_try(here, ALICE).unwrap_err().retry_after, SECOND * 4);
    ticks.advance(SECOND * 4 + MINUTE);
    fail(&limiter, 5, here, ALICE);
    limiter.may_try(here, ALICE).unwrap();
    fail(&limiter, 1, here, ALICE);
    assert_eq!(limiter.may_try(here, ALICE).unwrap_err().retry_after, SECOND);
}

#[test]
fn a_name_under_attack_stays_open_where_it_has_signed_in_and_only_there() {
    let (limiter, _ticks) = limiter();
    let (home, elsewhere) = (source("192.0.2.1"), source("192.0.2.2"));
    limiter.succeeded(home, ALICE);
    for number in 0..50 {
        fail(&limiter, 1, network(number), ALICE);
    }
    limiter.may_try(home, ALICE).unwrap();
    assert_eq!(limiter.may_try(elsewhere, ALICE).unwrap_err().limit, "failed_auth_per_name");
}

#[test]
fn where_a_name_has_signed_in_guesses_are_limited_all_the_same() {
    let (limiter, ticks) = limiter();
    let (home, elsewhere) = (source("192.0.2.1"), source("192.0.2.2"));
    limiter.succeeded(home, ALICE);
    fail(&limiter, 5, home, ALICE);
    limiter.may_try(home, ALICE).unwrap();
    fail(&limiter, 1, home, ALICE);
    assert_eq!(limiter.may_try(home, ALICE).unwrap_err().limit, "failed_auth_per_name");
    limiter.may_try(elsewhere, ALICE).unwrap();
    ticks.advance(SECOND);
    limiter.may_try(home, ALICE).unwrap();
}

#[test]
fn a_success_ends_the_delay_of_this_name_from_this_source_and_no_other() {
    let (limiter, ticks) = limiter();
    let (here, there) = (source("192.0.2.1"), source("192.0.2.2"));
    fail(&limiter, 10, here, ALICE);
    ticks.advance(limiter.may_try(here, ALICE).unwrap_err().retry_after);
    limiter.succeeded(here, ALICE);
    fail(&limiter, 5, here, ALICE);
    limiter.may_try(here, ALICE).unwrap();
    fail(&limiter, 1, there, ALICE);
    let elsewhere = limiter.may_try(there, ALICE).unwrap_err();
    assert_eq!(elsewhere.retry_after, SECOND * 32, "from elsewhere the delay goes on");

    fail(&limiter, 6, here, BOB);
    limiter.succeeded(here, ALICE);
    limiter.may_try(here, BOB).unwrap_err();
}

#[test]
fn a_success_does_not_buy_a_source_more_failures() {
    let (limiter, _ticks) = limiter();
    let here = source("192.0.2.1");
    for guess in 0..20 {
        limiter.succeeded(here, ALICE);
        limiter.failed(here, Named::Name(&format!("victim-{guess}"))).unwrap();
    }
    limiter.succeeded(here, ALICE);
    limiter.failed(here, Named::Name("victim-20")).unwrap_err();
}

#[test]
fn a_source_is_known_for_a_name_for_a_week() {
    let (limiter, ticks) = limiter();
    let home = source("192.0.2.1");
    limiter.succeeded(home, ALICE);
    ticks.advance(KNOWN_FOR - SECOND);
    limiter.sweep();
    fail(&limiter, 6, source("192.0.2.2"), ALICE);
    limiter.may_try(home, ALICE).unwrap();
    ticks.advance(SECOND);
    limiter.sweep();
    fail(&limiter, 1, source("192.0.2.2"), ALICE);
    limiter.may_try(home, ALICE).unwrap_err();
}

#[test]
fn one_account_cannot_make_the_gate_forget_the_sources_of_others() {
    let (limiter, ticks) = limiter();
    let home = source("192.0.2.1");
    limiter.succeeded(home, ALICE);
    for number in 0..1_000 {
        ticks.advance(Duration::from_millis(1));
        limiter.succeeded(network(number), Named::Name("mallory"));
    }
    assert_eq!(limiter.known.len(), HOMES_PER_NAME + 1);
    fail(&limiter, 6, source("192.0.2.2"), ALICE);
    limiter.may_try(home, ALICE).unwrap();
    fail(&limiter, 6, source("192.0.2.2"), Named::Name("mallory"));
    limiter.may_try(network(999), Named::Name("mallory")).unwrap();
    limiter.may_try(network(0), Named::Name("mallory")).unwrap_err();
}

#[test]
fn a_spray_of_networks_does_not_grow_memory_and_keeps_nobody_out_who_is_known() {
    let (limiter, ticks) = limiter();
    let known = source("192.0.2.1");
    limiter.stranger(known).unwrap();
    let mut refused = 0_u64;
    for number in 0..SPRAY {
        refused = refused.saturating_add(u64::from(limiter.stranger(network(number)).is_err()));
    }
    assert_eq!(limiter.strangers.len(), MOST_KEYS);
    assert!(refused > SPRAY / 2, "those beyond the bound share one bucket: {refused}");
    limiter.stranger(known).unwrap();

    ticks.advance(SECOND * 2);
    limiter.stranger(source("192.0.2.9")).unwrap();
    assert_eq!(limiter.strangers.len(), 1, "a full limit looks for keys at rest by itself");
}

#[test]
fn a_spray_of_failing_networks_and_names_does_not_grow_memory() {
    let (limiter, ticks) = limiter();
    for number in 0..SPRAY {
        let _mostly_refused = limiter.failed(network(number), Named::Name(&format!("name-{number}")));
    }
    assert_eq!((limiter.sources.len(), limiter.names.len(), limiter.known.len()), (MOST_KEYS, MOST_KEYS, 0));
    assert!(limiter.keys_held() <= MOST_KEYS * 4);

    let (here, wait) = (source("192.0.2.1"), limiter.may_try(source("192.0.2.1"), ALICE).unwrap_err().retry_after);
    assert_eq!(wait, SECOND, "those who are new share a short delay while the table is full");
    ticks.advance(MINUTE);
    limiter.sweep();
    assert_eq!(limiter.keys_held(), 0);
    limiter.may_try(here, ALICE).unwrap();
}

#[test]
fn a_spray_of_successes_does_not_grow_memory() {
    let (limiter, ticks) = limiter();
    for number in 0..SPRAY / 5 {
        limiter.succeeded(network(number), Named::Name(&format!("name-{number}")));
    }
    assert_eq!(limiter.known.len(), MOST_KEYS);
    ticks.advance(KNOWN_FOR);
    limiter.sweep();
    assert_eq!(limiter.keys_held(), 0);
}

#[test]
fn what_is_beyond_the_quota_is_not_swept_away_by_a_spray() {
    let (limiter, ticks) = limiter();
    let here = source("192.0.2.1");
    fail(&limiter, 12, here, ALICE);
    for number in 0..SPRAY / 5 {
        let _mostly_refused = limiter.failed(network(number), Named::Name(&format!("name-{number}")));
    }
    ticks.advance(SECOND * 13);
    fail(&limiter, 1, network(SPRAY), BOB);
    assert!(limiter.names.len() < MOST_KEYS, "it has been swept");
    assert_eq!(limiter.may_try(here, ALICE).unwrap_err().retry_after, SECOND * (64 - 13));
}

#[test]
fn no_name_can_be_read_from_a_limiter() {
    let (limiter, _ticks) = limiter();
    fail(&limiter, 6, Source::from(IpAddr::V4(Ipv4Addr::LOCALHOST)), Named::Name("s3cret-name"));
    limiter.succeeded(network(1), Named::Name("s3cret-name"));
    let shown = format!("{limiter:?}");
    assert!(shown.contains("failed_auth_per_name") && !shown.contains("s3cret"), "{shown}");
    assert_ne!(self::limiter().0.hasher.hash_one("alice"), limiter.hasher.hash_one("alice"), "random per limiter");
}

fn principal(subject: &str, roles: &[&str], token: &str) -> Principal {
    Principal::assertion(Assertion {
        name: subject.to_owned(),
        scheme: "test",
        authority: "test".to_owned(),
        subject: subject.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect::<BTreeSet<_>>(),
        attributes: BTreeMap::new(),
        expires: Expiry::Never,
        credential_id: token.to_owned(),
    })
    .unwrap()
}

/// How many requests pass at once.
fn passing(limit: &PerPrincipal, principal: &Principal) -> usize {
    (0..1_000).take_while(|_| limit.check(principal).is_ok()).count()
}

#[test]
fn requests_are_counted_by_identity_and_not_by_token() {
    let ticks = Ticks::still();
    let limit = PerPrincipal::new(rate("5/s"), BTreeMap::new(), &ticks);
    assert_eq!(passing(&limit, &principal("alice", &[], "token-1")), 5);
    let exceeded = limit.check(&principal("alice", &["new"], "token-2")).unwrap_err();
    assert_eq!(exceeded, Exceeded { limit: "requests_per_principal", retry_after: SECOND / 5 });
    assert_eq!(passing(&limit, &principal("bob", &[], "token-3")), 5);
    wait_out(&ticks, exceeded, || limit.check(&principal("alice", &[], "token-1")));
    limit.check(&principal("alice", &[], "token-1")).unwrap();
}

#[test]
fn the_most_generous_rate_of_the_roles_counts_and_a_role_may_also_have_less_than_all() {
    let by_role = [("etl", "50/s"), ("kiosk", "2/s"), ("batch", "1200/m")];
    let by_role = by_role.map(|(role, text)| (role.to_owned(), rate(text))).into();
    let limit = PerPrincipal::new(rate("10/s"), by_role, &Ticks::still());
    for (subject, roles, expected) in [
        ("a", &[][..], 10),
        ("b", &["analyst"], 10),
        ("c", &["kiosk"], 2),
        ("d", &["kiosk", "analyst"], 2),
        ("e", &["batch", "kiosk", "etl"], 50),
        ("f", &["analyst", "kiosk", "etl"], 50),
    ] {
        assert_eq!(passing(&limit, &principal(subject, roles, "1")), expected, "{subject}");
    }
}

#[test]
fn identities_do_not_grow_memory_either() {
    let ticks = Ticks::still();
    let limit = PerPrincipal::new(rate("1/s"), BTreeMap::new(), &ticks);
    for number in 0..MOST_KEYS + 1_000 {
        let _refused_at_the_end = limit.check(&principal(&number.to_string(), &[], "1"));
    }
    assert_eq!(limit.keys_held(), MOST_KEYS);
    ticks.advance(SECOND * 2);
    limit.sweep();
    assert_eq!(limit.keys_held(), 0);
}
