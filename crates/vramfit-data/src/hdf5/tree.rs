//! Everything that is in a file, for listing it. Chunk indexes are not read for that.

use std::collections::HashSet;

use vramfit_base::Result;

use super::attribute;
use super::container::Container;
use super::datatype::Datatype;
use super::description::Description;
use super::group::{self, MAX_DEPTH, MAX_OBJECTS, Target};
use super::header::Header;
use super::layout::Layout;
use super::pipeline::FilterStep;

/// One name in a file and what it leads to.
#[derive(Clone, Debug)]
pub struct Node {
    /// The path, such as `/train/x`; `/` for the root.
    pub path: String,
    /// Names of its attributes, sorted.
    pub attributes: Vec<String>,
    /// What it is.
    pub content: Content,
}

/// What is at a path.
#[derive(Clone, Debug)]
pub enum Content {
    /// A group; its members follow.
    Group,
    /// A dataset.
    Dataset(DatasetSummary),
    /// A named type, or something that is neither group nor dataset.
    Other,
    /// A link to a path, which is not followed here.
    SoftLink(String),
    /// A link to a path in another file, which is not followed here.
    ExternalLink {
        /// The file, as the link names it.
        file: String,
        /// The path in the file.
        path: String,
    },
    /// Another name for a group that is listed elsewhere.
    Again,
    /// It could not be read.
    Unreadable {
        /// Why it is not described.
        why: String,
        /// What would help, if that is known.
        hint: Option<String>,
    },
}

/// A dataset, as far as its header says.
#[derive(Clone, Debug)]
pub struct DatasetSummary {
    /// Length of each axis.
    pub shape: Vec<u64>,
    /// How long each axis may become; `u64::MAX` without limit.
    pub max_shape: Vec<u64>,
    /// What an element is.
    pub datatype: Datatype,
    /// How it is stored: `compact`, `contiguous`, `chunked` or `virtual`.
    pub layout: &'static str,
    /// Length of a chunk along each axis, if it has chunks.
    pub chunk: Option<Vec<u64>>,
    /// What was done to the chunks, in the order in which it was done.
    pub filters: Vec<FilterStep>,
}

/// Lists everything in a file: each group before its members, those sorted by name.
///
/// What cannot be read is listed as [`Content::Unreadable`] and does not keep the rest from it.
///
/// # Errors
///
/// `invalid-file` or `io` when not even the root can be read.
pub fn tree(container: &Container) -> Result<Vec<Node>> {
    let root = Header::read(container, container.root)?;
    let mut walk = Walk { container, nodes: Vec::new(), seen: HashSet::from([container.root]) };
    walk.group("/", &root, 0)?;
    Ok(walk.nodes)
}

struct Walk<'a> {
    container: &'a Container,
    nodes: Vec<Node>,
    /// Addresses of the groups that were listed: hard links can make circles.
    seen: HashSet<u64>,
}

impl Walk<'_> {
    fn group(&mut self, path: &str, header: &Header, depth: usize) -> Result<()> {
        let links = group::links(header)?;
        let attributes = attribute::names(header).unwrap_or_default();
        self.push(path, attributes, Content::Group);
        for link in links {
            let path = format!("{}/{}", path.trim_end_matches('/'), link.name);
            if self.nodes.len() >= MAX_OBJECTS {
                let content = unreadable("the file has too many objects");
                self.push(&path, Vec::new(), content);
                return Ok(());
            }
            let content = match link.target {
                Target::Soft(to) => Content::SoftLink(to),
                Target::External { file, path } => Content::ExternalLink { file, path },
                Target::Unknown(kind) => unreadable(&format!("the link type {kind} is unknown")),
                Target::Object(address) => match self.object(&path, address, depth + 1) {
                    Ok(()) => continue,
                    Err(error) => Content::Unreadable {
                        why: error.message().to_owned(),
                        hint: error.hint_text().map(str::to_owned),
                    },
                },
            };
            self.push(&path, Vec::new(), content);
        }
        Ok(())
    }

    fn object(&mut self, path: &str, address: u64, depth: usize) -> Result<()> {
        let header = Header::read(self.container, address)?;
        if group::is_group(&header) {
            if !self.seen.insert(address) {
                self.push(path, Vec::new(), Content::Again);
                return Ok(());
            }
            if depth == MAX_DEPTH {
                self.push(path, Vec::new(), unreadable("groups are nested too deeply"));
                return Ok(());
            }
            return self.group(path, &header, depth);
        }
        let attributes = attribute::names(&header).unwrap_or_default();
        let content = match Description::is_present(&header) {
            true => Content::Dataset(summary(Description::read(self.container.clone(), header)?)),
            false => Content::Other,
        };
        self.push(path, attributes, content);
        Ok(())
    }

    fn push(&mut self, path: &str, attributes: Vec<String>, content: Content) {
        self.nodes.push(Node { path: path.to_owned(), attributes, content });
    }
}

fn unreadable(why: &str) -> Content {
    Content::Unreadable { why: why.to_owned(), hint: None }
}

fn summary(description: Description) -> DatasetSummary {
    let (layout, chunk) = match description.layout {
        Layout::Compact(_) => ("compact", None),
        Layout::Contiguous(_) => ("contiguous", None),
        Layout::Chunked(chunked) => ("chunked", Some(chunked.chunk)),
        Layout::Virtual { .. } => ("virtual", None),
    };
    DatasetSummary {
        shape: description.space.shape,
        max_shape: description.space.max_shape,
        datatype: description.datatype,
        layout,
        chunk,
        filters: description.filters,
    }
}
