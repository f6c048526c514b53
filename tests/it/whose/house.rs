//! A gate with an analyst, a writer, an owner and a stranger, and tables of which each sees something else.
//!
//! Must not assert a promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use portcullis::config::{Allow, Format, Grant, Grantee, Location, NonEmpty, RowRule, Session, Table};
use portcullis::gate::chain::Chain;
use portcullis::storage::Keeping;
use portcullis_auth::{
    Action, Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, Principal, Rejection, Standing,
    Verdict,
};
use url::Url;

use crate::support::client::Client;
use crate::support::login::Login;
use crate::support::{Gate, Settings, directory, reading};

/// A gate with these people.
pub(crate) struct House {
    pub(crate) gate: Gate,
}

impl House {
    /// With the tables and rules below.
    pub(crate) async fn open() -> Self {
        Self::with(tables(), grants()).await
    }

    pub(crate) async fn with(tables: Vec<Table>, grants: Vec<Grant>) -> Self {
        Self::keeping(Keeping::Nowhere, tables, grants).await
    }

    /// With a place for what people make.
    pub(crate) async fn keeping(keeping: Keeping, tables: Vec<Table>, grants: Vec<Grant>) -> Self {
        let session = Session { default_catalog: "shop".to_owned(), ..Session::default() };
        let (locations, chain) = (locations(), Some(Chain::new(Arc::new(Staff))));
        let settings = Settings { keeping, tables, grants, locations, session, chain, ..Settings::shared().await };
        Self { gate: Gate::start(settings).await }
    }

    /// All calls of one person that show the password share a session.
    pub(crate) fn client(&self, who: &str) -> Client {
        self.gate.client(&login(who))
    }

    /// On the connection of `client`, with a session of its own.
    pub(crate) async fn session_on(client: &Client) -> Client {
        client.with(&Login::Bearer(client.handshake().await.unwrap()))
    }
}

/// The columns of the table.
pub(crate) const PEOPLE: [&str; 4] = ["analyst", "writer", "owner", "stranger"];

pub(crate) fn login(who: &str) -> Login {
    Login::Basic(who.to_owned(), who.to_owned())
}

/// Everybody's password is the name; the first four have a role of that name, and the analysts a region.
#[derive(Debug)]
struct Staff;

impl Authenticator for Staff {
    fn scheme(&self) -> &'static str {
        "test-staff"
    }

    fn name(&self) -> &str {
        "test-staff"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = match attempt.credential() {
            Credential::Basic(basic) if basic.password().matches(basic.user().as_bytes()) => {
                Verdict::Admit(principal(basic.user()))
            }
            Credential::Basic(_) => Verdict::Reject(Rejection::invalid("no such pair")),
            Credential::Absent | Credential::Bearer(_) | Credential::Malformed(_) | Credential::Unknown => {
                Verdict::Abstain
            }
        };
        Box::pin(std::future::ready(verdict))
    }

    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, _principal: &Principal, _now: SystemTime) -> Standing {
        Standing::Good
    }
}

fn principal(user: &str) -> Principal {
    let (roles, region): (&[&str], &[&str]) = match user {
        "analyst" => (&["analyst"], &["EU"]),
        "overseas" => (&["analyst"], &["US"]),
        "auditor" => (&["analyst", "zqauditor"], &["EU"]),
        "nowhere" => (&["analyst"], &[]),
        "writer" => (&["writer"], &[]),
        "owner" => (&["owner"], &[]),
        _ => (&[], &[]),
    };
    Principal::assertion(Assertion {
        name: user.to_owned(),
        scheme: "test-staff",
        authority: "test-staff".to_owned(),
        subject: user.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        attributes: region.iter().map(|region| ("region".to_owned(), (*region).to_owned())).collect(),
        expires: Expiry::Never,
        credential_id: user.to_owned(),
    })
    .unwrap()
}

/// Analysts see a part of `orders` and of `seen`, and all of `open`; the writer adds to `drafts` and reads `open`; the
/// owner reads everything.
pub(crate) fn grants() -> Vec<Grant> {
    let role = |name: &str| Grantee::Role(name.to_owned());
    let part = |table: &str| Grant {
        rows: RowRule::Where(ROWS.to_owned()),
        masks: BTreeMap::from([("card".to_owned(), MASK.to_owned())]),
        ..reading(&format!("shop.public.{table}"), role("analyst"))
    };
    vec![
        part("orders"),
        part("seen"),
        reading("shop.public.open", role("analyst")),
        reading("shop.public.open", role("writer")),
        Grant {
            allow: BTreeSet::from([Action::Insert, Action::Create]),
            ..reading("shop.public.drafts", role("writer"))
        },
        reading("*", role("owner")),
    ]
}

fn locations() -> Vec<Location> {
    let rule = |folder: &str, to: &str, allow| Location {
        prefix: Url::from_directory_path(ROOT.join(folder)).unwrap(),
        to: NonEmpty { first: Grantee::User(to.to_owned()), rest: Vec::new() },
        allow,
    };
    vec![rule("inbox", "writer", Allow::ReadWrite), rule("outbox", "owner", Allow::Read)]
}

/// The policy of `orders` has texts in it that nobody may read.
pub(crate) const ROWS: &str = "region = user_attribute('region') AND coalesce(note, '') <> 'zqliteral'";
pub(crate) const MASK: &str = "CASE WHEN has_role('zqauditor') THEN card ELSE '***' END";

/// Where the files are.
pub(crate) static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = directory().join("zqpath");
    for folder in ["tables", "inbox", "outbox", "cluster"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (place, text) in [("inbox/in.csv", "a\n1\n2\n"), ("outbox/out.csv", "a\n3\n"), ("bare.csv", "a\n4\n")] {
        fs::write(root.join(place), text).unwrap();
    }
    symlink(root.join("bare.csv"), root.join("inbox/link.csv")).unwrap();
    root
});

/// `orders`, of which analysts see a part; `seen`, a copy with that part only; and what is hidden from some or all.
pub(crate) fn tables() -> Vec<Table> {
    static FILES: LazyLock<Vec<Table>> = LazyLock::new(|| {
        let all: Vec<Row> = ROWS_OF_ORDERS.to_vec();
        let seen: Vec<Row> = all.iter().filter(|row| row.2 == "EU").copied().collect();
        let seen: Vec<Row> = seen.into_iter().map(|row| Row(row.0, row.1, row.2, row.3, "***", row.5)).collect();
        vec![
            table("shop", "public", "orders", &batch(["id", "v", "region", "amount", "card", "note"], &all)),
            table("shop", "public", "seen", &batch(["id", "v", "region", "amount", "card", "note"], &seen)),
            table("shop", "public", "open", &batch(["id", "v", "region", "amount", "card", "note"], &OPEN)),
            table("shop", "public", "drafts", &batch(["id", "v", "region", "amount", "card", "note"], &OPEN)),
            table("shop", "public", "vault", &batch(["id", "v", "region", "amount", "card", "note"], &OPEN)),
            table("shop", "public", "zqtable", &batch(["id", "v", "region", "amount", "card", "zqcolumn"], &OPEN)),
            table("shop", "zqcellar", "wine", &batch(["id", "v", "region", "amount", "card", "note"], &OPEN)),
            table("zqattic", "zqbox", "chest", &batch(["id", "v", "region", "amount", "card", "note"], &OPEN)),
        ]
    });
    FILES.clone()
}

/// `id`, `v`, `region`, `amount`, `card`, `note`.
#[derive(Clone, Copy)]
struct Row(i64, Option<i64>, &'static str, i64, &'static str, &'static str);

/// What every expression over the rows of the EU can do, it cannot do over the others: divide by `id - 2`, make a
/// number of `note`, fit `amount` into few bits.
const ROWS_OF_ORDERS: [Row; 9] = [
    Row(1, Some(7), "EU", 10, "zqcardone", "1"),
    Row(2, Some(0), "US", 918_273_645, "zqcardtwo", "zqrowtwo"),
    Row(3, None, "EU", 30, "zqcardthree", "33"),
    Row(4, Some(-3), "EU", 40, "zqcardfour", "4"),
    Row(5, Some(5), "EU", 50, "zqcardfive", "5"),
    Row(6, Some(0), "US", 918_273_646, "zqcardsix", "zqrowsix"),
    Row(0, None, "US", 918_273_647, "zqcardnought", "zqrownought"),
    Row(8, Some(1), "EU", 80, "zqcardeight", "8"),
    Row(-1, Some(2), "ZQ", -918_273_648, "zqcardminus", "[zqrowminus"),
];
const OPEN: [Row; 3] =
    [Row(1, Some(1), "EU", 1, "1", "1"), Row(2, Some(2), "EU", 2, "2", "2"), Row(3, Some(3), "EU", 3, "3", "3")];

fn batch(names: [&str; 6], rows: &[Row]) -> RecordBatch {
    let text =
        |of: fn(&Row) -> &'static str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        text(|row| row.2),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.3))),
        text(|row| row.4),
        text(|row| row.5),
    ];
    let fields = names.iter().zip(&columns).map(|(name, column)| {
        Field::new(*name, column.data_type().clone(), *column.data_type() == DataType::Utf8 || *name == "v")
    });
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).unwrap()
}

/// A table of one Parquet file with these rows.
pub(crate) fn table(catalog: &str, schema: &str, name: &str, rows: &RecordBatch) -> Table {
    let file = ROOT.join("tables").join(format!("{name}.parquet"));
    let mut writer = ArrowWriter::try_new(File::create(&file).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    Table {
        catalog: catalog.to_owned(),
        schema: schema.to_owned(),
        name: name.to_owned(),
        location: Url::from_file_path(file).unwrap(),
        format: Format::Parquet,
        partitions: Vec::new(),
        options: Default::default(),
        line: 1,
    }
}
