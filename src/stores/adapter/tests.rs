//! What goes to a store and comes back from it, in the words of the engine.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use datafusion::object_store::{
    Attribute, Error, GetRange, ObjectStoreExt as _, PutMode, TagSet, UpdateVersion, WriteMultipart,
};
use futures::TryStreamExt as _;
use object_stores::memory::InMemory;

use super::*;

fn memory() -> Adapter {
    Adapter::new(Arc::new(InMemory::new()), "memory://test", Vec::new())
}

async fn filled(names: &[&str]) -> Adapter {
    let store = memory();
    for name in names {
        store.put(&Path::from(*name), PutPayload::from(format!("content of {name}"))).await.unwrap();
    }
    store
}

async fn names(listed: BoxStream<'static, Result<ObjectMeta>>) -> Vec<String> {
    let mut names: Vec<_> = listed.map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
    names.sort();
    names
}

#[tokio::test]
async fn what_was_put_is_listed_looked_at_and_read() {
    let store = filled(&["a/1.csv", "a/2.csv", "a/b/3.csv", "c/4.csv"]).await;
    assert_eq!(names(store.list(None)).await, ["a/1.csv", "a/2.csv", "a/b/3.csv", "c/4.csv"]);
    assert_eq!(names(store.list(Some(&Path::from("a")))).await, ["a/1.csv", "a/2.csv", "a/b/3.csv"]);
    let after = store.list_with_offset(Some(&Path::from("a")), &Path::from("a/1.csv"));
    assert_eq!(names(after).await, ["a/2.csv", "a/b/3.csv"]);
    let one_level = store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
    assert_eq!(one_level.common_prefixes, [Path::from("a/b")]);
    assert_eq!(one_level.objects.len(), 2);

    let meta = store.head(&Path::from("c/4.csv")).await.unwrap();
    assert_eq!((meta.location, meta.size), (Path::from("c/4.csv"), 18));
    let got = store.get(&Path::from("c/4.csv")).await.unwrap();
    assert_eq!((got.range.clone(), got.meta.size), (0..18, 18));
    assert_eq!(got.bytes().await.unwrap(), "content of c/4.csv");
}

#[tokio::test]
async fn every_form_of_a_range_reaches_the_store() {
    let store = filled(&["x"]).await;
    let path = Path::from("x");
    for (range, expected) in
        [(GetRange::Bounded(0..7), "content"), (GetRange::Offset(8), "of x"), (GetRange::Suffix(1), "x")]
    {
        let options = GetOptions { range: Some(range.clone()), ..GetOptions::default() };
        assert_eq!(store.get_opts(&path, options).await.unwrap().bytes().await.unwrap(), expected, "{range:?}");
    }
    assert_eq!(store.get_ranges(&path, &[0..3, 8..10]).await.unwrap(), ["con", "of"]);
}

#[tokio::test]
async fn conditions_and_what_hangs_on_an_object_get_there_and_back() {
    let store = memory();
    let path = Path::from("x");
    let mut tags = TagSet::default();
    tags.push("a b", "c&d=e");
    let attributes = [(Attribute::ContentType, "text/csv"), (Attribute::Metadata("who".into()), "us")];
    let options = PutOptions {
        mode: PutMode::Create,
        tags,
        attributes: attributes.into_iter().collect(),
        ..PutOptions::default()
    };
    assert_eq!(there::put_options(options.clone()).tags.encoded(), options.tags.encoded());
    let first = store.put_opts(&path, "1".into(), options.clone()).await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().attributes, options.attributes);

    let again = store.put_opts(&path, "2".into(), PutMode::Create.into()).await.unwrap_err();
    assert!(matches!(again, Error::AlreadyExists { .. }), "{again:?}");
    let second = store.put_opts(&path, "2".into(), PutMode::Update(first.clone().into()).into()).await.unwrap();
    let stale = UpdateVersion { e_tag: first.e_tag, version: first.version };
    let stale = store.put_opts(&path, "3".into(), PutMode::Update(stale).into()).await.unwrap_err();
    assert!(matches!(stale, Error::Precondition { .. }), "{stale:?}");
    let unchanged = GetOptions { if_none_match: second.e_tag, ..GetOptions::default() };
    let unchanged = store.get_opts(&path, unchanged).await.unwrap_err();
    assert!(matches!(unchanged, Error::NotModified { .. }), "{unchanged:?}");
}

#[tokio::test]
async fn what_is_not_there_is_not_found_whatever_is_tried() {
    let store = memory();
    let (nowhere, to) = (Path::from("nowhere"), Path::from("to"));
    let errors = [
        store.get(&nowhere).await.map(drop).unwrap_err(),
        store.head(&nowhere).await.map(drop).unwrap_err(),
        store.copy(&nowhere, &to).await.unwrap_err(),
        store.rename(&nowhere, &to).await.unwrap_err(),
        store.get_ranges(&nowhere, std::slice::from_ref(&(0..1))).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn objects_are_copied_renamed_and_deleted() {
    let store = filled(&["a", "b"]).await;
    let [a, b, c, d] = ["a", "b", "c", "d"].map(Path::from);
    store.copy(&a, &c).await.unwrap();
    assert!(matches!(store.copy_if_not_exists(&a, &b).await, Err(Error::AlreadyExists { .. })));
    store.rename(&b, &d).await.unwrap();
    assert!(matches!(store.rename_if_not_exists(&a, &c).await, Err(Error::AlreadyExists { .. })));
    assert_eq!(names(store.list(None)).await, ["a", "c", "d"]);
    store.delete(&a).await.unwrap();
    let both = futures::stream::iter([Ok(c), Ok(d)]).boxed();
    assert_eq!(store.delete_stream(both).try_collect::<Vec<_>>().await.unwrap().len(), 2);
    assert!(names(store.list(None)).await.is_empty());
}

#[tokio::test]
async fn an_error_of_the_engine_comes_back_as_what_it_was() {
    let own = Error::NotImplemented { operation: "this".to_owned(), implementer: "the test".to_owned() };
    let locations = futures::stream::iter([Err(own)]).boxed();
    let error = memory().delete_stream(locations).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error, Error::NotImplemented { .. }), "{error:?}");
}

#[tokio::test]
async fn parts_are_put_together_or_dropped() {
    let store = memory();
    let upload = store.put_multipart(&Path::from("x")).await.unwrap();
    let mut write = WriteMultipart::new_with_chunk_size(upload, 8);
    write.write(b"twelve bytes and some more");
    write.finish().await.unwrap();
    assert_eq!(store.head(&Path::from("x")).await.unwrap().size, 26);

    let mut upload = store.put_multipart(&Path::from("y")).await.unwrap();
    upload.put_part("dropped".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(names(store.list(None)).await, ["x"]);
}

#[test]
fn no_kind_of_error_is_lost_and_no_secret_told() {
    let secret = "s3cr/t+key";
    let told = Told::without(vec![secret.as_bytes().to_vec(), Vec::new()]);
    let (path, source) = (|| "p".to_owned(), || format!("denied for {secret}, s3cr%2Ft%2Bkey, {}", "x".repeat(5000)));
    use object_stores::Error as Network;
    type Is = fn(&Error) -> bool;
    let cases: [(Network, Is); 9] = [
        (Network::NotFound { path: path(), source: source().into() }, |error| matches!(error, Error::NotFound { .. })),
        (Network::AlreadyExists { path: path(), source: source().into() }, |error| {
            matches!(error, Error::AlreadyExists { .. })
        }),
        (Network::Precondition { path: path(), source: source().into() }, |error| {
            matches!(error, Error::Precondition { .. })
        }),
        (Network::NotModified { path: path(), source: source().into() }, |error| {
            matches!(error, Error::NotModified { .. })
        }),
        (Network::PermissionDenied { path: path(), source: source().into() }, |error| {
            matches!(error, Error::PermissionDenied { .. })
        }),
        (Network::Unauthenticated { path: path(), source: source().into() }, |error| {
            matches!(error, Error::Unauthenticated { .. })
        }),
        (Network::NotSupported { source: source().into() }, |error| matches!(error, Error::NotSupported { .. })),
        (Network::Generic { store: "S3", source: source().into() }, |error| matches!(error, Error::Generic { .. })),
        (Network::NotImplemented { operation: path(), implementer: path() }, |error| {
            matches!(error, Error::NotImplemented { .. })
        }),
    ];
    for (network, is) in cases {
        let error = told.error(network);
        assert!(is(&error), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains(secret) && !said.contains("s3cr%2Ft"), "{said}");
        assert!(said.len() < 3000, "{}", said.len());
    }
}

#[test]
fn a_store_shows_its_name_and_nothing_else() {
    let store = Adapter::new(Arc::new(InMemory::new()), "s3://lake", vec![b"hunter2".to_vec()]);
    assert_eq!(
        (store.to_string().as_str(), format!("{store:?}").as_str()),
        ("s3://lake", "Adapter { name: \"s3://lake\", .. }")
    );
}

#[test]
fn a_path_that_is_none_is_an_error() {
    let Err(error) = back::path(&object_stores::path::Path::from("a b/c")) else { return };
    panic!("{error:?}");
}
