//! The link message: one name in a group, as files since HDF5 1.8 can have it.

use vramfit_base::Result;

use super::{Link, Target};
use crate::hdf5::cursor::Cursor;

/// Reads a link, from a message or from a heap.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Link> {
    cursor.version(&[1], "a link")?;
    let flags = cursor.u8()?;
    let kind = if flags & 0x08 != 0 { cursor.u8()? } else { 0 };
    let order = match flags & 0x04 {
        0 => None,
        _ => Some(cursor.u64()?),
    };
    if flags & 0x10 != 0 {
        cursor.skip(1)?;
    }
    let length = cursor.uint(1 << (flags & 3))? as usize;
    let name = cursor.text(length)?;
    let target = match kind {
        0 => Target::Object(cursor.known_address("a link")?),
        1 => {
            let length = cursor.u16()?.into();
            Target::Soft(cursor.text(length)?)
        }
        64 => {
            cursor.skip(3)?;
            Target::External { file: cursor.terminated_text()?, path: cursor.terminated_text()? }
        }
        kind => Target::Unknown(kind),
    };
    Ok(Link { name, target, order })
}
