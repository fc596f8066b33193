//! A dataset as all messages of its object header describe it.

use vramfit_base::{Error, Result};

use super::container::Container;
use super::dataspace::Dataspace;
use super::datatype::Datatype;
use super::fill;
use super::header::{Header, kind};
use super::layout::Layout;
use super::pipeline::{self, FilterStep};

/// A dataset as its header describes it.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) container: Container,
    pub(crate) space: Dataspace,
    pub(crate) datatype: Datatype,
    pub(crate) layout: Layout,
    /// In the order in which they were applied.
    pub(crate) filters: Vec<FilterStep>,
    /// One element, or `None` for zeros.
    pub(crate) fill: Option<Vec<u8>>,
}

impl Description {
    /// Whether an object is a dataset.
    pub(crate) fn is_present(header: &Header) -> bool {
        header.find(kind::LAYOUT).is_some()
    }

    /// Reads the messages.
    pub(crate) fn read(container: Container, header: Header) -> Result<Description> {
        let header = header
            .resolve(kind::DATATYPE)?
            .resolve(kind::DATASPACE)?
            .resolve(kind::FILTERS)?
            .resolve(kind::FILL)?;
        if header.find(kind::EXTERNAL_FILES).is_some() {
            return Err(Error::unsupported_feature("external raw data files are not supported")
                .hint("copy them into the HDF5 file: `h5repack old.h5 new.h5`"));
        }
        let message = |kind, what| header.find(kind).ok_or_else(|| header.without(what));
        let space = message(kind::DATASPACE, "dataspace")?;
        let datatype = message(kind::DATATYPE, "datatype")?;
        let layout = message(kind::LAYOUT, "layout")?;
        let filters = match header.find(kind::FILTERS) {
            Some(message) => pipeline::read(&mut header.cursor(message))?,
            None => Vec::new(),
        };
        let datatype = Datatype::read(&mut header.cursor(datatype))?;
        let fill = fill::read(&header)?;
        if fill.as_ref().is_some_and(|fill| fill.len() != datatype.size()) {
            // Fill values of variable length are longer in memory than in the file, and are not read.
            if !matches!(datatype, Datatype::Other { .. }) {
                return Err(header.without("fill value of the size of its datatype"));
            }
        }
        Ok(Description {
            space: Dataspace::read(&mut header.cursor(space))?,
            layout: Layout::read(&mut header.cursor(layout))?,
            datatype,
            filters,
            fill,
            container,
        })
    }
}
