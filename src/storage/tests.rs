//! Kept tables: there whole or not at all, whoever writes at the same time and whatever ends in between.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::path::{Path as LocalPath, PathBuf};

use arrow::datatypes::{DataType, Field, Schema};
use portcullis_auth::{Assertion, Expiry, Principal, SystemClock};

use super::*;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let id = DataId::random().unwrap();
        let folder = std::env::temp_dir().join(format!("portcullis-kept-{}", id.as_str()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    async fn storage(&self) -> Arc<Storage> {
        let place = Url::from_directory_path(&self.0).unwrap();
        Arc::new(Storage::open(place, &Stores::local_only()).await.unwrap())
    }

    /// Every file, relative to the folder.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &LocalPath, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &mut found);
        let mut names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn identity(subject: &str) -> IdentityKey {
    identity_of("here", subject)
}

fn identity_of(authority: &str, subject: &str) -> IdentityKey {
    Principal::assertion(Assertion {
        name: subject.to_owned(),
        scheme: "test",
        authority: authority.to_owned(),
        subject: subject.to_owned(),
        roles: [].into(),
        attributes: [].into(),
        expires: Expiry::Never,
        credential_id: "none".to_owned(),
    })
    .unwrap()
    .key()
    .clone()
}

fn name(table: &str) -> FullName {
    FullName { catalog: "sales".to_owned(), schema: "public".to_owned(), table: table.to_owned() }
}

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, false)]))
}

/// A table with something that stands for rows.
async fn make(storage: &Storage, table: &str, maker: &str, unless: Unless) -> Result<Draft, Unpublished> {
    let draft = storage.draft().unwrap();
    storage.write(&draft, b"rows".to_vec()).await.unwrap();
    storage.publish(&name(table), New::Table(&draft), &columns(), &identity(maker), unless).await.map(|()| draft)
}

fn maker_of(storage: &Storage, table: &str) -> Option<Maker> {
    storage.kept(name(table).as_name()).map(|kept| kept.maker().clone())
}

#[tokio::test]
async fn a_table_is_there_once_it_is_published_also_for_those_who_look_later() {
    let folder = Folder::new();
    let storage = folder.storage().await;
    let draft = storage.draft().unwrap();
    storage.write(&draft, b"rows".to_vec()).await.unwrap();
    assert!(maker_of(&storage, "t").is_none() && maker_of(&*folder.storage().await, "t").is_none());

    storage.publish(&name("t"), New::Table(&draft), &columns(), &identity("ann"), Unless::Taken).await.unwrap();
    let later = folder.storage().await;
    for storage in [&storage, &later] {
        assert!(maker_of(storage, "t").unwrap().is(&identity("ann")));
        assert!(!maker_of(storage, "t").unwrap().is(&identity("bob")));
        assert!(!maker_of(storage, "t").unwrap().is(&identity_of("elsewhere", "ann")), "the same name elsewhere");
        assert_eq!(storage.in_schema("sales", "public"), ["t"]);
        assert!(storage.in_schema("sales", "other").is_empty());
    }
    let kept = later.kept(name("t").as_name()).unwrap();
    assert_eq!(kept.schema(), columns());
}

#[tokio::test]
async fn whoever_is_first_has_the_name() {
    let folder = Folder::new();
    let (one, two) = (folder.storage().await, folder.storage().await);
    let both = tokio::join!(make(&one, "t", "ann", Unless::Taken), make(&two, "t", "bob", Unless::Taken));
    let (won, lost) = match both {
        (Ok(_), Err(lost)) => ("ann", lost),
        (Err(lost), Ok(_)) => ("bob", lost),
        other => panic!("{other:?}"),
    };
    assert!(matches!(lost, Unpublished::Taken), "{lost:?}");
    for storage in [one, two] {
        storage.refresh().await.unwrap();
        assert!(maker_of(&storage, "t").unwrap().is(&identity(won)));
    }
}

#[tokio::test]
async fn a_table_can_be_replaced_and_dropped_and_made_again() {
    let folder = Folder::new();
    let (one, two) = (folder.storage().await, folder.storage().await);
    make(&one, "t", "ann", Unless::Taken).await.unwrap();
    // The other has not looked since.
    make(&two, "t", "bob", Unless::Never).await.unwrap();
    one.refresh().await.unwrap();
    assert!(maker_of(&one, "t").unwrap().is(&identity("bob")));

    one.withdraw(&name("t")).await.unwrap();
    assert!(maker_of(&one, "t").is_none());
    assert!(matches!(two.withdraw(&name("t")).await, Err(Unpublished::Gone)));
    assert!(matches!(two.withdraw(&name("never")).await, Err(Unpublished::Gone)));
    make(&two, "t", "cat", Unless::Taken).await.unwrap();
    one.refresh().await.unwrap();
    assert!(maker_of(&one, "t").unwrap().is(&identity("cat")));
}

#[tokio::test]
async fn names_of_all_kinds_are_told_apart_and_found_again() {
    let folder = Folder::new();
    let storage = folder.storage().await;
    let names = ["t", "T", "a b", "..", ".", "a/b", "a%2Fb", "ä", "a+b&c=d;e", "\"quoted\"", "a\\b", "*", "日本"];
    for (number, table) in names.iter().enumerate() {
        make(&storage, table, &number.to_string(), Unless::Taken).await.unwrap();
    }
    let later = folder.storage().await;
    for (number, table) in names.iter().enumerate() {
        assert!(maker_of(&later, table).unwrap().is(&identity(&number.to_string())), "{table}");
    }
    assert_eq!(later.in_schema("sales", "public").len(), names.len());
}

#[tokio::test]
async fn what_nobody_needs_goes_and_nothing_else() {
    let folder = Folder::new();
    let storage = folder.storage().await;
    let kept = make(&storage, "kept", "ann", Unless::Taken).await.unwrap();
    let dropped = make(&storage, "dropped", "ann", Unless::Taken).await.unwrap();
    storage.withdraw(&name("dropped")).await.unwrap();
    let replaced = make(&storage, "replaced", "ann", Unless::Taken).await.unwrap();
    let replacing = make(&storage, "replaced", "ann", Unless::Never).await.unwrap();
    let unfinished = storage.draft().unwrap();
    storage.write(&unfinished, b"rows".to_vec()).await.unwrap();
    std::fs::write(folder.0.join("data/not-ours.txt"), "x").unwrap();
    std::fs::write(folder.0.join("tables/not-ours.txt"), "x").unwrap();

    let has = |draft: &Draft| folder.files().iter().any(|file| file.contains(draft.data.as_str()));
    let all = [&kept, &dropped, &replaced, &replacing, &unfinished];
    // Somebody may still be reading or writing.
    let now = SystemClock.now();
    sweep::sweep(&storage.place, now.checked_sub(Duration::from_secs(3600)).unwrap()).await.unwrap();
    assert!(all.into_iter().all(has));

    sweep::sweep(&storage.place, now.checked_add(Duration::from_secs(1)).unwrap()).await.unwrap();
    assert_eq!(all.map(has), [true, false, false, true, false]);
    let left = folder.files();
    assert_eq!(left.iter().filter(|file| file.starts_with("tables/sales")).count(), 2, "{left:?}");
    assert_eq!(left.iter().filter(|file| file.contains("not-ours")).count(), 2, "{left:?}");
    // What is left is as it was, and a swept name can be had again.
    make(&storage, "dropped", "bob", Unless::Taken).await.unwrap();
    let later = folder.storage().await;
    assert!(maker_of(&later, "kept").is_some() && maker_of(&later, "replaced").is_some());
    assert!(maker_of(&later, "dropped").unwrap().is(&identity("bob")));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_said_and_not_guessed_at() {
    let folder = Folder::new();
    let storage = folder.storage().await;
    make(&storage, "t", "ann", Unless::Taken).await.unwrap();
    let record = folder.0.join("tables/sales/public/t/00000000000000000001.json");
    let good = std::fs::read_to_string(&record).unwrap();
    for bad in [
        "",
        "{}",
        "[1]",
        &good.replace("\"version\":1", "\"version\":2"),
        &good.replace("ann", "ann\",\"admin\":\"yes"),
        &good.replace("\"data\":\"", "\"data\":\"../"),
        &good.replace("\"schema\":\"", "\"schema\":\"AAAA"),
    ] {
        assert_ne!(bad, good);
        std::fs::write(&record, bad).unwrap();
        let place = Url::from_directory_path(&folder.0).unwrap();
        let opened = Storage::open(place, &Stores::local_only()).await;
        assert!(matches!(opened, Err(StorageError::Record(..))), "{bad}");
    }
    // A gate that runs goes on with what it knows.
    assert!(storage.refresh().await.is_ok());
    assert!(maker_of(&storage, "t").is_some());
}

#[tokio::test]
async fn nobody_fills_the_place_with_tables_with_names_or_with_what_was_dropped() {
    let folder = Folder::new();
    let place = Url::from_directory_path(&folder.0).unwrap();
    let mut storage = Storage::open(place, &Stores::local_only()).await.unwrap();
    storage.bounds = Bounds { tables: 2, names: 3, records: 4 };
    make(&storage, "a", "ann", Unless::Taken).await.unwrap();
    make(&storage, "b", "ann", Unless::Taken).await.unwrap();
    assert!(matches!(make(&storage, "c", "bob", Unless::Taken).await, Err(Unpublished::Full)));
    storage.withdraw(&name("b")).await.unwrap();
    make(&storage, "c", "bob", Unless::Taken).await.unwrap();
    storage.withdraw(&name("c")).await.unwrap();
    // Of the three names one is in use.
    assert!(matches!(make(&storage, "d", "bob", Unless::Taken).await, Err(Unpublished::Full)));
    make(&storage, "c", "bob", Unless::Taken).await.unwrap();
    make(&storage, "c", "bob", Unless::Never).await.unwrap();
    assert!(matches!(make(&storage, "c", "bob", Unless::Never).await, Err(Unpublished::Worn)));
    // What is there can always be dropped.
    storage.withdraw(&name("c")).await.unwrap();
    assert!(matches!(make(&storage, "c", "bob", Unless::Taken).await, Err(Unpublished::Worn)));
    sweep::sweep(&storage.place, SystemClock.now().checked_add(Duration::from_secs(1)).unwrap()).await.unwrap();
    storage.refresh().await.unwrap();
    make(&storage, "d", "bob", Unless::Taken).await.unwrap();
}
