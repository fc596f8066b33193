//! Groups: names and where they lead. A file has them in one of three forms.

pub(super) mod dense;
mod link;
mod symbols;

use vramfit_base::Result;

use super::cursor::Cursor;
use super::header::{Header, kind};

/// More members than are looked at in one group.
pub(crate) const MAX_MEMBERS: usize = 1 << 20;

/// The maximum depth of nested groups.
pub(crate) const MAX_DEPTH: usize = 64;
/// More objects than are looked at in one file.
pub(crate) const MAX_OBJECTS: usize = 1 << 20;

/// A name in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) target: Target,
    /// Its place in the order in which names came into the group, where the file keeps that.
    pub(crate) order: Option<u64>,
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the header at an address.
    Object(u64),
    /// To a path in the same file.
    Soft(String),
    /// To a path in another file.
    External {
        /// The file, as the link names it.
        file: String,
        path: String,
    },
    /// To something that only its writer understands; its number says what.
    Unknown(u8),
}

pub(crate) fn is_group(header: &Header) -> bool {
    [kind::SYMBOL_TABLE, kind::LINK_INFO, kind::LINK]
        .iter()
        .any(|&kind| header.find(kind).is_some())
}

/// Returns the members of a group, sorted by name.
pub(crate) fn links(header: &Header) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    if let Some(message) = header.find(kind::SYMBOL_TABLE) {
        symbols::read(&mut header.cursor(message), &mut links)?;
    }
    for message in header.all(kind::LINK) {
        links.push(link::read(&mut header.cursor(message))?);
    }
    if let Some(message) = header.find(kind::LINK_INFO) {
        let cursor = header.cursor(message);
        let container = cursor.container;
        for found in dense::LINKS.objects(cursor)? {
            let (address, bytes) = found?;
            if links.len() == MAX_MEMBERS {
                return Err(container.damaged(address, "a group has too many members"));
            }
            links.push(link::read(&mut Cursor::new(container, &bytes, address))?);
        }
    }
    links.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(links)
}
