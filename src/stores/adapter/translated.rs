//! Values of one version of `object_store` as those of the other.
//!
//! [`there`] is towards the store, [`back`] towards the engine. The two versions have the same fields by the same
//! names; a field that only one of them knows is empty on the other side.

use std::error::Error as StdError;
use std::fmt;

use datafusion::object_store::{self as engine, Error};
use object_stores as network;

/// Makes errors of a store sayable.
pub(super) struct Told {
    unspeakable: Vec<String>,
}

impl Told {
    /// What never leaves; neither as it is nor as URLs write it.
    pub(super) fn without(secrets: Vec<Vec<u8>>) -> Self {
        let texts = secrets.into_iter().filter_map(|secret| String::from_utf8(secret).ok());
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let unspeakable = texts.filter(|text| !text.is_empty()).flat_map(|text| [encoded(&text), text]).collect();
        Self { unspeakable }
    }

    /// The same kind of error, with a text of ours.
    pub(super) fn error(&self, error: network::Error) -> Error {
        match error {
            network::Error::NotFound { path, source } => Error::NotFound { path, source: self.said(&*source) },
            network::Error::AlreadyExists { path, source } => {
                Error::AlreadyExists { path, source: self.said(&*source) }
            }
            network::Error::Precondition { path, source } => Error::Precondition { path, source: self.said(&*source) },
            network::Error::NotModified { path, source } => Error::NotModified { path, source: self.said(&*source) },
            network::Error::PermissionDenied { path, source } => {
                Error::PermissionDenied { path, source: self.said(&*source) }
            }
            network::Error::Unauthenticated { path, source } => {
                Error::Unauthenticated { path, source: self.said(&*source) }
            }
            network::Error::NotSupported { source } => Error::NotSupported { source: self.said(&*source) },
            network::Error::NotImplemented { operation, implementer } => {
                Error::NotImplemented { operation, implementer }
            }
            network::Error::UnknownConfigurationKey { store, key } => Error::UnknownConfigurationKey { store, key },
            network::Error::JoinError { source } => Error::JoinError { source },
            network::Error::InvalidPath { source } => generic(self.said(&source)),
            network::Error::Generic { store: _, source } => match source.downcast::<Error>() {
                // It went there by `there::error`.
                Ok(own) => *own,
                Err(source) => generic(self.said(&*source)),
            },
            other => generic(self.said(&other)),
        }
    }

    fn said(&self, error: &(dyn StdError + 'static)) -> Box<dyn StdError + Send + Sync> {
        let mut text = error.to_string();
        for secret in &self.unspeakable {
            text = text.replace(secret, "…");
        }
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(end);
        }
        Box::new(Said(text))
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

/// What a store said, without what it must not say.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

fn generic(source: Box<dyn StdError + Send + Sync>) -> Error {
    Error::Generic { store: "object store", source }
}

/// Stores answer with whole pages.
const LONGEST: usize = 1000;

/// Towards the store.
pub(super) mod there {
    use super::{engine, generic, network};

    pub(in super::super) fn path(path: &engine::path::Path) -> engine::Result<network::path::Path> {
        network::path::Path::parse(path.as_ref()).map_err(|error| generic(Box::new(error)))
    }

    pub(in super::super) fn payload(payload: engine::PutPayload) -> network::PutPayload {
        payload.into_iter().collect()
    }

    /// Carried through the store's stream, and taken out again behind it.
    pub(in super::super) fn error(error: engine::Error) -> network::Error {
        network::Error::Generic { store: "engine", source: Box::new(error) }
    }

    pub(in super::super) fn get_options(options: engine::GetOptions) -> network::GetOptions {
        network::GetOptions {
            if_match: options.if_match,
            if_none_match: options.if_none_match,
            if_modified_since: options.if_modified_since,
            if_unmodified_since: options.if_unmodified_since,
            range: options.range.map(|range| match range {
                engine::GetRange::Bounded(range) => network::GetRange::Bounded(range),
                engine::GetRange::Offset(offset) => network::GetRange::Offset(offset),
                engine::GetRange::Suffix(length) => network::GetRange::Suffix(length),
            }),
            version: options.version,
            head: options.head,
            extensions: options.extensions,
        }
    }

    pub(in super::super) fn put_options(options: engine::PutOptions) -> network::PutOptions {
        network::PutOptions {
            mode: match options.mode {
                engine::PutMode::Overwrite => network::PutMode::Overwrite,
                engine::PutMode::Create => network::PutMode::Create,
                engine::PutMode::Update(engine::UpdateVersion { e_tag, version }) => {
                    network::PutMode::Update(network::UpdateVersion { e_tag, version })
                }
            },
            tags: tags(&options.tags),
            attributes: attributes(&options.attributes),
            extensions: options.extensions,
        }
    }

    pub(in super::super) fn multipart_options(options: engine::PutMultipartOptions) -> network::PutMultipartOptions {
        network::PutMultipartOptions {
            tags: tags(&options.tags),
            attributes: attributes(&options.attributes),
            extensions: options.extensions,
        }
    }

    pub(in super::super) fn copy_options(options: engine::CopyOptions) -> network::CopyOptions {
        let mode = match options.mode {
            engine::CopyMode::Overwrite => network::CopyMode::Overwrite,
            engine::CopyMode::Create => network::CopyMode::Create,
        };
        network::CopyOptions::new().with_mode(mode).with_extensions(options.extensions)
    }

    pub(in super::super) fn rename_options(options: engine::RenameOptions) -> network::RenameOptions {
        let mode = match options.target_mode {
            engine::RenameTargetMode::Overwrite => network::RenameTargetMode::Overwrite,
            engine::RenameTargetMode::Create => network::RenameTargetMode::Create,
        };
        network::RenameOptions::new().with_target_mode(mode).with_extensions(options.extensions)
    }

    fn tags(tags: &engine::TagSet) -> network::TagSet {
        let mut translated = network::TagSet::default();
        for (key, value) in url::form_urlencoded::parse(tags.encoded().as_bytes()) {
            translated.push(&key, &value);
        }
        translated
    }

    fn attributes(attributes: &engine::Attributes) -> network::Attributes {
        attributes.iter().filter_map(|(key, value)| Some((attribute(key)?, value.to_string()))).collect()
    }

    fn attribute(key: &engine::Attribute) -> Option<network::Attribute> {
        match key {
            engine::Attribute::ContentDisposition => Some(network::Attribute::ContentDisposition),
            engine::Attribute::ContentEncoding => Some(network::Attribute::ContentEncoding),
            engine::Attribute::ContentLanguage => Some(network::Attribute::ContentLanguage),
            engine::Attribute::ContentType => Some(network::Attribute::ContentType),
            engine::Attribute::CacheControl => Some(network::Attribute::CacheControl),
            engine::Attribute::StorageClass => Some(network::Attribute::StorageClass),
            engine::Attribute::Metadata(name) => Some(network::Attribute::Metadata(name.clone())),
            _ => None,
        }
    }
}

/// Towards the engine.
pub(super) mod back {
    use std::sync::Arc;

    use futures::StreamExt;

    use super::{Told, engine, generic, network};

    pub(in super::super) fn path(path: &network::path::Path) -> engine::Result<engine::path::Path> {
        engine::path::Path::parse(path.as_ref()).map_err(|error| generic(Box::new(error)))
    }

    pub(in super::super) fn meta(meta: network::ObjectMeta) -> engine::Result<engine::ObjectMeta> {
        Ok(engine::ObjectMeta {
            location: path(&meta.location)?,
            last_modified: meta.last_modified,
            size: meta.size,
            e_tag: meta.e_tag,
            version: meta.version,
        })
    }

    pub(in super::super) fn list_result(listed: network::ListResult) -> engine::Result<engine::ListResult> {
        Ok(engine::ListResult {
            common_prefixes: listed.common_prefixes.iter().map(path).collect::<Result<_, _>>()?,
            objects: listed.objects.into_iter().map(meta).collect::<Result<_, _>>()?,
        })
    }

    pub(in super::super) fn put_result(done: network::PutResult) -> engine::PutResult {
        engine::PutResult { e_tag: done.e_tag, version: done.version }
    }

    pub(in super::super) fn get_result(got: network::GetResult, told: &Arc<Told>) -> engine::Result<engine::GetResult> {
        let meta = meta(got.meta.clone())?;
        let (range, attributes, told) = (got.range.clone(), attributes(&got.attributes), Arc::clone(told));
        let bytes = got.into_stream().map(move |bytes| bytes.map_err(|error| told.error(error)));
        Ok(engine::GetResult { payload: engine::GetResultPayload::Stream(bytes.boxed()), meta, range, attributes })
    }

    fn attributes(attributes: &network::Attributes) -> engine::Attributes {
        attributes.iter().filter_map(|(key, value)| Some((attribute(key)?, value.to_string()))).collect()
    }

    fn attribute(key: &network::Attribute) -> Option<engine::Attribute> {
        match key {
            network::Attribute::ContentDisposition => Some(engine::Attribute::ContentDisposition),
            network::Attribute::ContentEncoding => Some(engine::Attribute::ContentEncoding),
            network::Attribute::ContentLanguage => Some(engine::Attribute::ContentLanguage),
            network::Attribute::ContentType => Some(engine::Attribute::ContentType),
            network::Attribute::CacheControl => Some(engine::Attribute::CacheControl),
            network::Attribute::StorageClass => Some(engine::Attribute::StorageClass),
            network::Attribute::Metadata(name) => Some(engine::Attribute::Metadata(name.clone())),
            _ => None,
        }
    }
}
