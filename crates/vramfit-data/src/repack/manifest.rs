//! The content of a file, as it can be written again: the structure, small values, and of large
//! datasets their description.

use std::collections::HashMap;

use vramfit_core::{Error, Result};

use super::Omission;
use super::value::{Values, elsewhere, encode_datatype};
use crate::hdf5::description::Description;
use crate::hdf5::element_storage::{DatatypeMessage, ElementStorage};
use crate::hdf5::group::{self, MAX_DEPTH, MAX_OBJECTS, Target as LinkTarget};
use crate::hdf5::header::{Header, kind};
use crate::hdf5::{Container, FilterStep, attribute};
use crate::read::{Dataset as SourceDataset, RowReader};
use crate::write::{
    Attribute, Content, Data, Dataset, Group, InlineKind, InlineObject, Link, RawValue, Storage,
    Target,
};

/// The content of a file. Paths do not start with a slash; that of the root is empty.
#[derive(Default)]
pub(super) struct FileManifest {
    pub(super) streamed: Vec<StreamedDataset>,
    /// Everything but those.
    pub(super) content: Content,
    /// What cannot be copied, other than datasets.
    pub(super) omissions: Vec<Omission>,
    /// Datasets that cannot be copied, and other objects that cannot be read.
    pub(super) refused: Vec<(String, Error)>,
}

/// A dataset whose rows are copied in pieces.
pub(super) struct StreamedDataset {
    /// Its description, except for the storage.
    pub(super) dataset: Dataset,
    /// The path by which it is opened.
    pub(super) from: String,
    /// The filters of its chunks.
    pub(super) filters: Vec<FilterStep>,
}

impl FileManifest {
    /// Reads the structure of a file.
    ///
    /// # Errors
    ///
    /// `invalid-file` or `io` when not even the root can be read.
    pub(super) fn of(container: &Container) -> Result<FileManifest> {
        let root = Header::read(container, container.root)?;
        let mut walk = Walk {
            container,
            values: Values::new(container),
            seen: HashMap::from([(container.root, String::new())]),
            manifest: FileManifest::default(),
        };
        let base = container.base;
        if base > 0 {
            let what = format!("the first {base} bytes of the file, a user block");
            walk.omit("", what, "a user block is not HDF5 data");
        }
        walk.group("", &root, 0)?;
        Ok(walk.manifest)
    }

    /// Returns the paths of all datasets.
    pub(super) fn datasets(&self) -> impl Iterator<Item = &str> {
        let is_dataset = |object: &&InlineObject| matches!(object.what, InlineKind::Dataset(_));
        let inline = self.content.inline.iter().filter(is_dataset);
        let streamed = self.streamed.iter().map(|dataset| &dataset.dataset.path);
        streamed.chain(inline.map(|object| &object.path)).map(String::as_str)
    }
}

struct Walk<'a> {
    container: &'a Container,
    values: Values<'a>,
    /// The first path of each object: its further names are links.
    seen: HashMap<u64, String>,
    manifest: FileManifest,
}

impl Walk<'_> {
    fn group(&mut self, path: &str, header: &Header, depth: usize) -> Result<()> {
        let links = group::links(header)?;
        let attributes = self.attributes(path, header);
        let mut order: Vec<(u64, String)> =
            (links.iter()).filter_map(|link| Some((link.order?, link.name.clone()))).collect();
        order.sort();
        let names = order.into_iter().map(|(_, name)| name).collect();
        let is_ordered = !links.is_empty() && links.iter().all(|link| link.order.is_some());
        self.manifest.content.groups.push(Group {
            path: path.to_owned(),
            attributes,
            order: is_ordered.then_some(names),
        });
        for link in links {
            let path = match path {
                "" => link.name.clone(),
                group => format!("{group}/{}", link.name),
            };
            // A name that is not UTF-8 was read with a replacement character.
            if link.name.contains(char::REPLACEMENT_CHARACTER) || link.name.is_empty() {
                let error = Error::unsupported_feature("its name is not valid UTF-8");
                self.refuse(&path, error);
                continue;
            }
            if self.seen.len() >= MAX_OBJECTS {
                return Err(Error::unsupported_feature(
                    "files with more than 2^20 objects are not supported",
                ));
            }
            let target = match link.target {
                LinkTarget::Soft(to) => Target::Soft(to),
                LinkTarget::External { file, path } => Target::External { file, path },
                LinkTarget::Unknown(kind) => {
                    let what = format!("the link `/{path}`");
                    let reason = format!("links of type {kind} are user-defined");
                    self.omit(&path, what, &reason);
                    continue;
                }
                LinkTarget::Object(address) => match self.seen.get(&address) {
                    Some(first) => Target::Object(first.clone()),
                    None => {
                        self.seen.insert(address, path.clone());
                        if let Err(error) = self.object(&path, address, depth + 1) {
                            self.refuse(&path, error);
                        }
                        continue;
                    }
                },
            };
            self.manifest.content.links.push(Link { path, target });
        }
        Ok(())
    }

    fn object(&mut self, path: &str, address: u64, depth: usize) -> Result<()> {
        let header = Header::read(self.container, address)?;
        if group::is_group(&header) {
            if depth == MAX_DEPTH {
                return Err(Error::unsupported_feature("groups are nested too deeply"));
            }
            return self.group(path, &header, depth);
        }
        if Description::is_present(&header) {
            return self.dataset(path, header);
        }
        let Some(message) = header.find(kind::DATATYPE) else {
            return Err(Error::unsupported_feature("it is not a group, dataset or datatype"));
        };
        let datatype = DatatypeMessage::read(&mut header.cursor(message))?;
        if datatype.storage == ElementStorage::FileAddress {
            return Err(elsewhere(&datatype));
        }
        let attributes = self.attributes(path, &header);
        self.manifest.content.inline.push(InlineObject {
            path: path.to_owned(),
            what: InlineKind::Type(encode_datatype(&datatype)),
            attributes,
        });
        Ok(())
    }

    fn dataset(&mut self, path: &str, header: Header) -> Result<()> {
        let header = header.resolve(kind::DATATYPE)?;
        let message = header.find(kind::DATATYPE);
        let message = message.ok_or_else(|| header.without("datatype"))?;
        let datatype = DatatypeMessage::read(&mut header.cursor(message))?;
        if datatype.storage == ElementStorage::FileAddress {
            return Err(elsewhere(&datatype));
        }
        let attributes = self.attributes(path, &header);
        let description = Description::read(self.container.clone(), header)?;
        let space = description.space;
        let inline_dataset = |value: RawValue| InlineObject {
            path: path.to_owned(),
            what: InlineKind::Dataset(value),
            attributes: attributes.clone(),
        };
        if space.is_null {
            let value = self.values.value(&datatype, None, Vec::new())?;
            self.manifest.content.inline.push(inline_dataset(value));
            return Ok(());
        }
        let can_grow = space.max_shape != space.shape;
        let is_empty = space.shape.contains(&0);
        let is_varying = matches!(datatype.storage, ElementStorage::GlobalHeap { .. });
        if is_varying && can_grow {
            let what = format!("the maximum shape of `/{path}`");
            let reason = "elements of variable length are copied with their current values";
            self.omit(path, what, reason);
        }
        if space.shape.is_empty() || is_varying || is_empty && !can_grow {
            let elements = match is_empty {
                true => Vec::new(),
                false => elements(self.container, path)?,
            };
            let value = self.values.value(&datatype, Some(space.shape), elements)?;
            self.manifest.content.inline.push(inline_dataset(value));
            return Ok(());
        }
        // Whatever prevents reading its rows is reported now.
        RowReader::raw(SourceDataset::open_in(self.container, path)?)?;
        self.manifest.streamed.push(StreamedDataset {
            dataset: Dataset {
                path: path.to_owned(),
                datatype: encode_datatype(&datatype),
                max_shape: if can_grow { space.max_shape } else { Vec::new() },
                shape: space.shape,
                storage: Storage::Contiguous,
                shuffle: true,
                checksums: false,
                fill: description.fill,
                attributes,
            },
            from: path.to_owned(),
            filters: description.filters,
        });
        Ok(())
    }

    /// Reads the attributes of an object. Those that cannot be copied are noted.
    fn attributes(&mut self, path: &str, header: &Header) -> Vec<Attribute> {
        /// A message has no more bytes than this; name, type and shape are in it, too.
        const MAX_BYTES: usize = 60 << 10;
        let all = match attribute::all(header) {
            Ok(all) => all,
            Err(error) => {
                self.omit(path, "all attributes".to_owned(), error.message());
                return Vec::new();
            }
        };
        let mut attributes = Vec::new();
        for (name, attribute) in all {
            let value = attribute.and_then(|attribute| self.values.attribute(attribute));
            let value = value.and_then(|value| {
                let is_odd = name.contains(char::REPLACEMENT_CHARACTER);
                let is_large = name.len() + value.datatype.message.len() > 1 << 12
                    || matches!(&value.data, Data::Plain(bytes) if bytes.len() > MAX_BYTES)
                    || matches!(&value.data, Data::VarLen(all) if all.len() > MAX_BYTES / 16);
                match (is_odd, is_large) {
                    (true, _) => Err(Error::unsupported_feature("its name is not valid UTF-8")),
                    (_, true) => Err(Error::unsupported_feature("it is larger than 60 KiB")),
                    _ => Ok(value),
                }
            });
            match value {
                Ok(value) => attributes.push((name, crate::write::Value::Raw(value))),
                Err(error) => {
                    let what = format!("the attribute `{name}` of `/{path}`");
                    self.omit(path, what, error.message());
                }
            }
        }
        attributes
    }

    fn omit(&mut self, path: &str, what: String, reason: &str) {
        self.manifest.omissions.push(Omission {
            path: format!("/{path}"),
            what,
            reason: reason.to_owned(),
        });
    }

    fn refuse(&mut self, path: &str, error: Error) {
        self.manifest.refused.push((path.to_owned(), error));
    }
}

/// Reads all elements of a dataset that is copied in memory.
fn elements(container: &Container, path: &str) -> Result<Vec<u8>> {
    let dataset = SourceDataset::open_in(container, path)?;
    if dataset.shape().is_empty() {
        return dataset.single_value();
    }
    /// References to so many texts; they and their texts are in memory at once.
    const MAX_BYTES: u64 = 64 << 20;
    if dataset.bytes() > MAX_BYTES {
        let what = dataset.datatype().describe();
        return Err(Error::unsupported_feature(format!(
            "{what} are not copied: there are more than {MAX_BYTES} bytes of them"
        ))
        .hint("store them with a fixed length, or as numbers"));
    }
    let mut elements = vec![0; dataset.bytes() as usize];
    let rows = RowReader::raw(dataset)?;
    rows.read(0..rows.len(), &mut elements)?;
    Ok(elements)
}
