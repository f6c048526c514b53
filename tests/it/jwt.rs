//! Bad tokens against a gate over TCP: the catalogue's C.3, one table over one gate.
//!
//! Each token is signed as well as it can be, so that what is wrong with it is what the table says and nothing else.
//! Must not judge what the unit tests of the scheme judge better: which key sets are refused, how keys are fetched.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::config::CertificateRole;
use portcullis::gate::chain::Chain;
use portcullis_auth::{Clock, SystemClock};
use portcullis_auth_api_key::ApiKeys;
use portcullis_auth_jwt::{Algorithm, DenyList, Http, IssuerConfig, Jwt, KeySource, Roles, TokenType};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::support::client::Client;
use crate::support::login::{KEYS, Login};
use crate::support::schemes::{AUDIENCE, Ca, Checked, Signer, Watched, b64, optional, seconds};
use crate::support::{Settings, on_runtime};

/// Issuers with what the table needs, and the gate that believes them.
struct Bench {
    watched: Watched,
    jwt: Arc<Jwt>,
    /// Roles from `groups`, and a token `gone` that is denied.
    one: Signer,
    /// Another with a key of the same name.
    two: Signer,
    /// Wants a scope, takes access tokens only, and names people by their address.
    strict: Signer,
    /// Keys of the first that are published for something else.
    encrypting: Signer,
    deriving: Signer,
    other_algorithm: Signer,
    now: u64,
}

impl Bench {
    async fn start() -> Self {
        let one = Signer::new("https://id.test/one", "k1");
        let two = Signer::new("https://id.test/two", "k1");
        let strict = Signer::new("https://id.test/strict", "k1");
        let encrypting = Signer::new(one.issuer, "enc");
        let deriving = Signer::new(one.issuer, "ops");
        let other_algorithm = Signer::new(one.issuer, "alg");
        let marked = |signer: &Signer, name: &str, value: Value| {
            let mut jwk = signer.jwk();
            jwk[name] = value;
            jwk
        };
        let mut first = one.config_with(&[
            one.jwk(),
            marked(&encrypting, "use", json!("enc")),
            marked(&deriving, "key_ops", json!(["encrypt"])),
            marked(&other_algorithm, "alg", json!("ES384")),
            json!({"kty": "oct", "kid": "oct", "k": b64("secret")}),
        ]);
        first.roles_claim = Roles::Claim("groups".parse().unwrap());
        first.denied = DenyList::parse("tokens = [\"gone\"]\nprincipals = [\"mallory\"]").unwrap();
        let mut third = strict.config();
        third.principal_claim = "email".parse().unwrap();
        third.required.insert("scope".parse().unwrap(), "sql".to_owned());
        third.types = vec![TokenType::named("at+jwt")];

        let jwt = Jwt::new("tokens", vec![first, two.config(), third], Arc::new(SystemClock)).unwrap();
        let jwt = Arc::new(jwt);
        let mut settings = Settings::shared().await;
        let keys = ApiKeys::new("keys", KEYS.file());
        settings.chain = Some(Chain::new(Arc::clone(&jwt) as _).then(Arc::new(keys)).unwrap());
        let watched = Watched::start(settings).await;
        let now = seconds(watched.gate.clock.now());
        Self { watched, jwt, one, two, strict, encrypting, deriving, other_algorithm, now }
    }

    fn client(&self, token: &str) -> Client {
        self.watched.gate.client(&Login::Headers(vec![format!("Bearer {token}").into_bytes()]))
    }

    async fn verdict(&self, token: &str) -> String {
        self.watched.verdict(&self.client(token)).await
    }

    fn good(&self) -> Value {
        self.one.claims("alice", self.watched.gate.clock.now())
    }

    /// The good claims with this one changed; null takes it away.
    fn claim(&self, name: &str, value: Value) -> String {
        let mut claims = self.good();
        set(&mut claims, name, value);
        self.one.token(&claims)
    }

    /// The good header with this member changed; null takes it away.
    fn header(&self, name: &str, value: Value) -> String {
        let mut header = self.one.header();
        set(&mut header, name, value);
        self.one.token_with(&header, &self.good())
    }

    /// The good claims with this text in place of their beginning.
    fn beginning(&self, text: &str) -> String {
        let claims = self.good().to_string();
        self.one.token_of(self.one.header().to_string(), claims.replacen('{', text, 1))
    }

    /// The claims of the strict issuer.
    fn strict(&self, header: Value, changes: &[(&str, Value)]) -> String {
        let mut claims = self.strict.claims("alice", self.watched.gate.clock.now());
        claims["email"] = json!("alice@corp.test");
        claims["scope"] = json!("openid sql");
        for (name, value) in changes {
            set(&mut claims, name, value.clone());
        }
        self.strict.token_with(&header, &claims)
    }
}

fn set(object: &mut Value, name: &str, value: Value) {
    if value.is_null() {
        object.as_object_mut().unwrap().remove(name);
    } else {
        object[name] = value;
    }
}

/// As tools write a public key of P-256.
fn pem(point: &[u8]) -> String {
    let head = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
        0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let text = STANDARD.encode([&head, point].concat());
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let end = |word: &str| format!("-----{word} PUBLIC {}-----\n", "KEY");
    format!("{}{}\n{}", end("BEGIN"), lines.join("\n"), end("END"))
}

type Case = (&'static str, String, &'static str);

/// J01 to J37.
#[test]
fn a_token_is_let_in_by_a_strict_profile_only() {
    on_runtime(async {
        let bench = Bench::start().await;
        let mut checked = Checked::default();
        for (what, token, expected) in headers(&bench).into_iter().chain(claims(&bench)).chain(forms(&bench)) {
            checked.that(what, &bench.verdict(&token).await, expected);
        }
        checked.done();
    });
}

/// Algorithms, keys and what a header may say.
fn headers(bench: &Bench) -> Vec<Case> {
    const ALGORITHM: &str = "refused: the algorithm is not accepted";
    const FOLLOWED: &str = "refused: the header of the token holds a member that is never followed";
    const NO_KEY: &str = "refused: the issuer has no such key";
    const TYPE: &str = "refused: a token of this type is not accepted";
    const SIGNATURE: &str = "refused: the signature does not verify";
    let one = &bench.one;
    let algorithm = |name: Value| bench.header("alg", name);
    let shared = |secret: &[u8], name: &str| {
        let mut header = one.header();
        header["alg"] = json!(name);
        let message = format!("{}.{}", b64(header.to_string()), b64(bench.good().to_string()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        format!("{message}.{}", b64(hmac::sign(&key, message.as_bytes())))
    };
    let own_key = {
        let mut header = bench.two.header();
        header["jwk"] = bench.two.jwk();
        bench.two.token_with(&header, &bench.good())
    };
    let by = |signer: &Signer| signer.token(&bench.good());
    let es384 = {
        let mut header = bench.other_algorithm.header();
        header["alg"] = json!("ES384");
        bench.other_algorithm.token_with(&header, &bench.good())
    };
    let confused = bench.header("alg", json!("ES384"));
    let oct = {
        let mut header = one.header();
        header["kid"] = json!("oct");
        one.token_with(&header, &bench.good())
    };
    let doubled = |text: &str| {
        let header = one.header().to_string();
        one.token_of(header.replacen('{', text, 1), bench.good().to_string())
    };
    let strict_header = bench.strict.header();
    let without_type = {
        let mut header = strict_header.clone();
        set(&mut header, "typ", Value::Null);
        header
    };
    vec![
        ("a good one", by(one), "admitted: alice"),
        ("J01 none", algorithm(json!("none")), ALGORITHM),
        ("J01 None", algorithm(json!("None")), ALGORITHM),
        ("J01 NoNe", algorithm(json!("NoNe")), ALGORITHM),
        ("J01 empty", algorithm(json!("")), ALGORITHM),
        ("J02 the point as a secret", shared(one.public_key(), "HS256"), ALGORITHM),
        ("J02 the JWK as a secret", shared(one.jwk().to_string().as_bytes(), "HS256"), ALGORITHM),
        ("J02 the PEM as a secret", shared(pem(one.public_key()).as_bytes(), "HS256"), ALGORITHM),
        ("J02 no secret", shared(b"", "HS256"), ALGORITHM),
        ("J03 HS256", algorithm(json!("HS256")), ALGORITHM),
        ("J04 HS512", algorithm(json!("HS512")), ALGORITHM),
        ("J05 lower case", algorithm(json!("es256")), ALGORITHM),
        ("J05 none said", algorithm(Value::Null), ALGORITHM),
        ("J05 a list", algorithm(json!(["ES256"])), ALGORITHM),
        ("J05 a number", algorithm(json!(256)), ALGORITHM),
        ("J15 two algorithms", doubled("{\"alg\":\"none\","), "refused: the header of the token is not a plain JSON"),
        ("J15 two key ids", doubled("{\"kid\":\"k1\","), "refused: the header of the token is not a plain JSON object"),
        ("J16 crit", bench.header("crit", json!(["x"])), FOLLOWED),
        ("J16 crit, empty", bench.header("crit", json!([])), FOLLOWED),
        ("J16 crit b64", bench.header("crit", json!(["b64"])), FOLLOWED),
        ("J16 b64", bench.header("b64", json!(false)), FOLLOWED),
        ("J18 a key of its own", own_key, FOLLOWED),
        ("J19 a chain of its own", bench.header("x5c", json!(["MIIB"])), FOLLOWED),
        ("J20 a path", bench.header("kid", json!("../../../dev/null")), NO_KEY),
        ("J20 a file", bench.header("kid", json!("/etc/passwd")), NO_KEY),
        ("J20 a query", bench.header("kid", json!("' OR 1=1--")), NO_KEY),
        ("J20 a command", bench.header("kid", json!("|id")), NO_KEY),
        ("J20 control", bench.header("kid", json!("k1\u{0}")), "refused: `kid` is not a short printable string"),
        ("J20 a number", bench.header("kid", json!(1)), "refused: `kid` is not a short printable string"),
        ("J20 1 KiB", bench.header("kid", json!("k".repeat(1024))), "refused: `kid` is not a short printable string"),
        ("J20 10 KiB", bench.header("kid", json!("k".repeat(10_240))), "refused: the header of the token is too long"),
        ("J22 a key for encryption", by(&bench.encrypting), NO_KEY),
        ("J22 a key for other work", by(&bench.deriving), NO_KEY),
        ("J22 a key for another algorithm", by(&bench.other_algorithm), NO_KEY),
        ("J23 a key with the wrong algorithm", es384, NO_KEY),
        ("J23 a token with the wrong algorithm", confused, "refused: the key of the token is not for its algorithm"),
        ("J23 a published secret", oct, NO_KEY),
        ("J29 JWT", bench.header("typ", json!("JWT")), "admitted: alice"),
        ("J29 at+jwt", bench.header("typ", json!("at+jwt")), "admitted: alice"),
        ("J29 none", bench.header("typ", Value::Null), "admitted: alice"),
        ("J29 logout+jwt", bench.header("typ", json!("logout+jwt")), TYPE),
        ("J29 dpop+jwt", bench.header("typ", json!("dpop+jwt")), TYPE),
        ("J29 garbage", bench.header("typ", json!("garbage")), TYPE),
        ("J29 a list", bench.header("typ", json!(["JWT"])), "refused: `typ` is not a string"),
        ("J29 strict", bench.strict(strict_header, &[]), "admitted: alice@corp.test"),
        ("J29 an ID token where it is strict", bench.strict(without_type, &[("nonce", json!("n"))]), TYPE),
        ("J30 zip", bench.header("zip", json!("DEF")), FOLLOWED),
        ("J30 enc", bench.header("enc", json!("A128GCM")), FOLLOWED),
        ("J36 another issuer's key of the same name", bench.two.token(&bench.good()), SIGNATURE),
    ]
}

/// What the claims say.
fn claims(bench: &Bench) -> Vec<Case> {
    const ISSUER: &str = "refused: the issuer of the token is unknown";
    const ISSUER_FORM: &str = "refused: `iss` is not a string";
    const AUDIENCE_FORM: &str = "refused: `aud` is neither a string nor a short list of strings";
    const ELSEWHERE: &str = "refused: the token is meant for somebody else";
    const EXPIRED: &str = "refused: the token has expired";
    const NOT_PLAIN: &str = "refused: the claims are not a plain JSON object";
    const NAME: &str = "refused: the principal claim is missing, empty or not a string";
    const UNUSABLE: &str = "refused: not usable as an identity";
    const BOUND: &str = "refused: the token is bound in a way that is not supported";
    const ROLES: &str = "refused: the claim `groups` is neither a string nor a list of strings";
    let claim = |name, value| bench.claim(name, value);
    let now = bench.now;
    let until = |ago: u64| {
        let mut claims = bench.good();
        claims["iat"] = json!(now - 600);
        claims["exp"] = json!(now - ago);
        bench.one.token(&claims)
    };
    let at_jwt = || bench.strict.header();
    let duplicated = {
        let mut claims = bench.strict.claims("alice", bench.watched.gate.clock.now());
        claims["email"] = json!("alice@corp.test");
        claims["scope"] = json!("sql");
        let text = claims.to_string().replacen('{', "{\"email\":\"root@corp.test\",", 1);
        bench.strict.token_of(at_jwt().to_string(), text)
    };
    let null = {
        let mut claims = bench.good();
        claims["aud"] = Value::Null;
        bench.one.token(&claims)
    };
    let thumbprint = b64(digest(&SHA256, b"a certificate"));
    let seventeen: Vec<_> = (0..16).map(|at| format!("a{at}")).chain([AUDIENCE.to_owned()]).collect();
    let roles = |count: usize| json!((0..count).map(|at| format!("r{at}")).collect::<Vec<_>>());
    vec![
        ("J06 a slash behind", claim("iss", json!("https://id.test/one/")), ISSUER),
        ("J06 upper case", claim("iss", json!("https://ID.test/one")), ISSUER),
        ("J06 none", claim("iss", Value::Null), ISSUER_FORM),
        ("J06 a number", claim("iss", json!(1)), ISSUER_FORM),
        ("J06 a list with it", claim("iss", json!(["https://evil.test", "https://id.test/one"])), ISSUER_FORM),
        ("J07 one of two", claim("aud", json!(["another", AUDIENCE])), "admitted: alice"),
        ("J07 none", claim("aud", Value::Null), AUDIENCE_FORM),
        ("J07 null", null, AUDIENCE_FORM),
        ("J07 empty", claim("aud", json!([])), ELSEWHERE),
        ("J07 a number", claim("aud", json!(1)), AUDIENCE_FORM),
        ("J07 mixed", claim("aud", json!([AUDIENCE, 1])), AUDIENCE_FORM),
        ("J07 seventeen", claim("aud", json!(seventeen)), AUDIENCE_FORM),
        ("J07 something behind", claim("aud", json!("portcullis2")), ELSEWHERE),
        ("J07 upper case", claim("aud", json!("Portcullis")), ELSEWHERE),
        ("J08 none", claim("exp", Value::Null), "refused: `exp` is missing"),
        ("J08 text", claim("exp", json!("never")), "refused: `exp` is not a date"),
        ("J08 negative", claim("exp", json!(-1)), "refused: `exp` is not a date"),
        ("J08 1e300", claim("exp", json!(1e300)), "refused: `exp` is not a date"),
        ("J08 2^64 - 1", claim("exp", json!(u64::MAX)), "refused: `exp` is not a date"),
        ("J08 past", until(500), EXPIRED),
        ("J08 a fraction", claim("exp", json!(now as f64 + 1800.5)), "admitted: alice"),
        ("J09 20 s ago", until(20), "admitted: alice"),
        ("J09 29 s ago", until(29), "admitted: alice"),
        ("J09 31 s ago", until(31), EXPIRED),
        ("J10 in an hour", claim("nbf", json!(now + 3600)), "refused: the token is not valid yet"),
        ("J10 text", claim("nbf", json!("now")), "refused: `nbf` is not a date"),
        ("J11 in an hour", claim("iat", json!(now + 3000)), "refused: the token was issued in the future"),
        ("J12 ten years", claim("exp", json!(now + 315_360_000)), "refused: the token lives too long"),
        ("J13 none", claim("sub", Value::Null), NAME),
        ("J13 a number", claim("sub", json!(1)), NAME),
        ("J13 empty", claim("sub", json!("")), NAME),
        ("J13 NUL", claim("sub", json!("alice\u{0}")), UNUSABLE),
        ("J13 300 bytes", claim("sub", json!("a".repeat(300))), UNUSABLE),
        ("J13 turned", claim("sub", json!("\u{202e}ecila")), UNUSABLE),
        ("J13 a grant's word", claim("sub", json!("role:admin")), UNUSABLE),
        ("J14 two subjects", bench.beginning("{\"sub\":\"root\","), NOT_PLAIN),
        ("J14 two issuers", bench.beginning("{\"iss\":\"https://id.test/two\","), NOT_PLAIN),
        ("J14 two audiences", bench.beginning("{\"aud\":\"another\","), NOT_PLAIN),
        ("J14 two ends", bench.beginning("{\"exp\":1,"), NOT_PLAIN),
        ("J14 two names in another claim", duplicated, NOT_PLAIN),
        (
            "J31 bound, without a certificate",
            claim("cnf", json!({"x5t#S256": thumbprint})),
            "refused: the token is bound to",
        ),
        ("J31 bound to nothing", claim("cnf", json!({})), BOUND),
        ("J31 bound to half a hash", claim("cnf", json!({"x5t#S256": "AAAA"})), BOUND),
        ("J31 bound to text", claim("cnf", json!("x5t#S256")), BOUND),
        ("J31 bound twice", claim("cnf", json!({"x5t#S256": thumbprint, "jkt": "x"})), BOUND),
        ("J32 bound to a key", claim("cnf", json!({"jkt": thumbprint})), BOUND),
        ("J33 the scope", bench.strict(at_jwt(), &[("scope", json!("sql"))]), "admitted: alice@corp.test"),
        ("J33 in a list", bench.strict(at_jwt(), &[("scope", json!(["openid", "sql"]))]), "admitted: alice@corp.test"),
        ("J33 none", bench.strict(at_jwt(), &[("scope", Value::Null)]), "refused: the claim `scope` does not say"),
        ("J33 half", bench.strict(at_jwt(), &[("scope", json!("sql:read"))]), "refused: the claim `scope` does not"),
        ("J33 true", bench.strict(at_jwt(), &[("scope", json!(true))]), "refused: the claim `scope` does not say"),
        ("J34 another id", claim("jti", json!("here")), "admitted: alice"),
        ("J34 denied", claim("jti", json!("gone")), "refused: the token or its principal is denied"),
        ("J34 somebody denied", claim("sub", json!("mallory")), "refused: the token or its principal is denied"),
        ("J34 a number", claim("jti", json!(1)), "refused: `jti` is not a string"),
        ("J35 one role", claim("groups", json!("analyst")), "admitted: alice"),
        ("J35 two roles", claim("groups", json!(["analyst", "writer"])), "admitted: alice"),
        ("J35 a number", claim("groups", json!(7)), ROLES),
        ("J35 nested", claim("groups", json!(["analyst", ["writer"]])), ROLES),
        ("J35 mixed", claim("groups", json!(["analyst", 7])), ROLES),
        ("J35 too many", claim("groups", roles(201)), UNUSABLE),
        ("J35 far too many", claim("groups", roles(2000)), "refused: the token is too long"),
        ("J37 for another as well", claim("aud", json!([AUDIENCE, "another"])), "admitted: alice"),
    ]
}

/// How a token is written.
fn forms(bench: &Bench) -> Vec<Case> {
    const SIGNATURE: &str = "refused: the signature does not verify";
    const NOT_PLAIN: &str = "refused: the claims are not a plain JSON object";
    const BASE64: &str = "refused: a part of the token is not base64url";
    const PARTS: &str = "refused: a token of four or five parts is not a signed JWT";
    const NOBODYS: &str = "refused: no scheme claimed the credential";
    let good = bench.one.token(&bench.good());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let signed = |signature: &[u8]| format!("{message}.{}", b64(signature));
    let payload = |text: &[u8]| bench.one.token_of(bench.one.header().to_string(), text);
    // The last of 86 characters holds two bits of the signature and four that must be zero.
    let (head, last) = signature.split_at(85);
    let spelled = ["A", "Q", "g", "w"].into_iter().find(|same| *same == last).unwrap();
    let other = match spelled {
        "A" => "B",
        "Q" => "R",
        "g" => "h",
        _ => "x",
    };
    let flipped = if head.starts_with('A') { "B" } else { "A" };
    let deep = format!("{}{}", "{\"a\":".repeat(200), "1}".replace('1', &format!("1{}", "}".repeat(199))));
    let json_form = format!("{{\"payload\":\"{}\",\"signatures\":[]}}", b64(bench.good().to_string()));
    vec![
        ("a good one", good.clone(), "admitted: alice"),
        ("J24 r and s are zero", signed(&[0; 64]), SIGNATURE),
        ("J24 r is n", signed(&[&N[..], &[1; 32]].concat()), SIGNATURE),
        ("J24 DER", signed(&[0x30, 6, 2, 1, 1, 2, 1, 1]), SIGNATURE),
        ("J24 63 bytes", signed(&[1; 63]), SIGNATURE),
        ("J24 65 bytes", signed(&[1; 65]), SIGNATURE),
        ("J25 no signature", format!("{message}."), "refused: the token has no signature"),
        ("J25 two parts", message.to_owned(), NOBODYS),
        ("J25 three empty parts", "..".to_owned(), "refused: the header of the token is not a plain JSON object"),
        ("J25 another bit", format!("{message}.{flipped}{}", signature.split_at(1).1), SIGNATURE),
        ("J25 a bit behind the end", format!("{message}.{head}{other}"), BASE64),
        ("J25 padding", format!("{good}=="), NOBODYS),
        ("J25 the other alphabet", format!("{message}.+{}", signature.split_at(1).1), NOBODYS),
        ("J25 a space", format!("{message} .{signature}"), "refused: the credential holds"),
        ("J26 four parts", format!("{good}.YQ"), PARTS),
        (
            "J26 five parts",
            format!("{}..YQ.YQ.YQ", b64("{\"alg\":\"dir\",\"enc\":\"A128GCM\",\"zip\":\"DEF\"}")),
            PARTS,
        ),
        ("J26 six parts", format!("{good}.YQ.YQ.YQ"), NOBODYS),
        ("J27 as JSON", json_form, "refused: the credential holds"),
        ("J28 a list", payload(b"[]"), NOT_PLAIN),
        ("J28 text", payload(b"\"alice\""), NOT_PLAIN),
        ("J28 not UTF-8", payload(b"{\"iss\":\"\xff\"}"), NOT_PLAIN),
        ("J28 deep", payload(deep.as_bytes()), NOT_PLAIN),
        ("J28 something behind", payload(format!("{}x", bench.good()).as_bytes()), NOT_PLAIN),
        ("J28 20 KiB", payload(&[b' '; 15_000]), "refused: the token is too long"),
        ("J28 33 KiB", payload(&[b' '; 25_000]), "refused: the header is too long"),
    ]
}

/// J17 and J20: what a token names is never fetched; C08: a long one costs no signature.
#[test]
fn nothing_in_a_token_is_followed_and_a_bad_form_costs_no_signature() {
    on_runtime(async {
        let bench = Bench::start().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let place = format!("http://{}/keys", listener.local_addr().unwrap());
        let arrived = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&arrived);
        let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }));
        assert_eq!(bench.verdict(&bench.one.token(&bench.good())).await, "admitted: alice");
        let before = bench.jwt.counters().verified;
        for name in ["jku", "x5u", "url"] {
            let refused = bench.verdict(&bench.header(name, json!(place))).await;
            assert!(refused.starts_with("refused: the header of the token holds a member"), "{name}: {refused}");
        }
        // In the claims they mean nothing, and the issuer is a name.
        let claimed = bench.claim("jku", json!(place));
        assert_eq!(bench.verdict(&claimed).await, "admitted: alice");
        assert_eq!(
            bench.verdict(&bench.claim("iss", json!(place))).await,
            "refused: the issuer of the token is unknown"
        );
        let verified = bench.jwt.counters().verified;
        assert_eq!(verified, before + 1, "the one that was let in");
        let long = format!("{}.{}.{}", b64(bench.one.header().to_string()), "A".repeat(20 * 1024), b64([1; 64]));
        assert_eq!(bench.verdict(&long).await, "refused: the token is too long");
        assert_eq!(bench.jwt.counters().verified, verified, "no signature was looked at");
        assert_eq!(arrived.load(Ordering::SeqCst), 0, "somebody was dialled");
    });
}

/// J21: a storm of key ids that nobody has.
#[test]
fn a_storm_of_unknown_keys_fetches_hardly_ever() {
    on_runtime(async {
        let signer = Signer::new("https://id.test/fetched", "k1");
        let set = json!({ "keys": [signer.jwk()] }).to_string();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let place = format!("http://{}/keys", listener.local_addr().unwrap());
        let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                drop(stream.read(&mut request).await);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", set.len());
                drop(stream.write_all(format!("{head}{set}").as_bytes()).await);
            }
        }));
        let mut config =
            IssuerConfig::new(signer.issuer, vec![AUDIENCE.to_owned()], vec![Algorithm::Es256], KeySource::Url(place));
        config.http = Http::DangerLoopback;
        let jwt = Arc::new(Jwt::new("tokens", vec![config], Arc::new(SystemClock)).unwrap());
        let mut settings = Settings::shared().await;
        settings.chain = Some(Chain::new(Arc::clone(&jwt) as _));
        let watched = Watched::start(settings).await;
        let claims = signer.claims("alice", watched.gate.clock.now());
        let good = Login::Bearer(signer.token(&claims));
        assert_eq!(watched.verdict(&watched.gate.client(&good)).await, "admitted: alice");
        let (before, started) = (jwt.counters().fetches, Instant::now());
        for at in 0..300 {
            let mut header = signer.header();
            header["kid"] = json!(format!("unknown-{at}"));
            let client = watched.gate.client(&Login::Bearer(signer.token_with(&header, &claims)));
            let found = watched.verdict(&client).await;
            assert!(found.starts_with("refused: the issuer has no such key"), "{at}: {found}");
        }
        // Seconds lie between two, however many ask.
        let (fetches, elapsed) = (jwt.counters().fetches - before, started.elapsed());
        assert!(fetches <= 1 + elapsed.as_secs() / COOLDOWN, "{fetches} fetches in {elapsed:?}");
        assert_eq!(watched.verdict(&watched.gate.client(&good)).await, "admitted: alice");
    });
}

/// J31: a token that is bound to a certificate, where certificates secure the channel.
#[test]
fn a_token_that_is_bound_to_a_certificate_needs_it() {
    on_runtime(async {
        let signer = Signer::new("https://id.test/bound", "k1");
        let ca = Ca::new("clients");
        let (own, other) = (ca.service(1, "alice"), ca.service(2, "alice"));
        let jwt = Jwt::new("tokens", vec![signer.config()], Arc::new(SystemClock)).unwrap();
        let mut settings = Settings::shared().await;
        settings.identity = optional(&[&ca], &[]);
        settings.chain = Some(Chain::new(Arc::new(jwt)).with_certificates(CertificateRole::Channel));
        let watched = Watched::start(settings).await;
        let mut claims = signer.claims("alice", watched.gate.clock.now());
        claims["cnf"] = json!({"x5t#S256": b64(digest(&SHA256, &own.der))});
        let login = Login::Bearer(signer.token(&claims));
        let gate = &watched.gate;
        assert_eq!(watched.verdict(&own.client(gate, &login)).await, "admitted: alice");
        // The second time as the first: what is remembered is bound as well.
        for (client, reason) in [
            (other.client(gate, &login), "refused: the token is bound to another certificate"),
            (gate.client(&login), "refused: the token is bound to a certificate and none was presented"),
        ] {
            for _ in 0..2 {
                let found = watched.verdict(&client).await;
                assert!(found.starts_with(reason), "{found}");
            }
        }
        assert_eq!(watched.verdict(&own.client(gate, &login)).await, "admitted: alice");
    });
}

/// J39: time that jumps.
#[test]
fn a_clock_that_jumps_lets_nobody_in_too_early_or_too_late() {
    on_runtime(async {
        let bench = Bench::start().await;
        let start = bench.watched.gate.clock.now();
        let token = bench.one.token(&bench.good());
        assert_eq!(bench.verdict(&token).await, "admitted: alice");
        let clock = &bench.watched.gate.clock;
        clock.set(start - Duration::from_secs(3600));
        assert!(bench.verdict(&token).await.starts_with("refused: the token is not valid yet"));
        clock.set(start + Duration::from_secs(3600 + 31));
        assert!(bench.verdict(&token).await.starts_with("refused: the token has expired"));
        clock.set(start);
        assert_eq!(bench.verdict(&token).await, "admitted: alice");
    });
}

/// Seconds between two fetches that tokens have asked for.
const COOLDOWN: u64 = 5;
/// The order of P-256, which no part of a signature reaches.
const N: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
