//! The filter pipeline message: what was done to a chunk before it was stored.

use vramfit_base::Result;

use super::cursor::Cursor;

/// More filters than the format allows.
const MAX_FILTERS: u8 = 32;

/// One step that was applied to a chunk when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterStep {
    /// The number under which The HDF Group has registered it.
    pub id: u16,
    /// What the writer called it; often empty.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<u32>,
}

/// Reads the message: the steps in the order in which they were applied.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Vec<FilterStep>> {
    let version = cursor.version(&[1, 2], "a filter pipeline")?;
    let count = cursor.u8()?;
    if count > MAX_FILTERS {
        return Err(cursor.damaged(format_args!("a pipeline has {count} filters")));
    }
    if version == 1 {
        cursor.skip(6)?;
    }
    (0..count).map(|_| read_step(cursor, version)).collect()
}

fn read_step(cursor: &mut Cursor<'_>, version: u8) -> Result<FilterStep> {
    let id = cursor.u16()?;
    // The filters of the library itself have no name in version 2.
    let name_length = match version {
        2 if id < 256 => 0,
        _ => usize::from(cursor.u16()?),
    };
    // Whether a chunk may go without the step says each chunk's filter mask.
    cursor.skip(2)?;
    let count = cursor.u16()?;
    let name = match version {
        1 => cursor.text(name_length.next_multiple_of(8))?,
        _ => cursor.text(name_length)?,
    };
    let parameters = (0..count).map(|_| cursor.u32()).collect::<Result<_>>()?;
    if version == 1 && count % 2 == 1 {
        cursor.skip(4)?;
    }
    Ok(FilterStep { id, name, parameters })
}
