//! The fill value: what an element is that was never written.

use vramfit_base::Result;

use super::header::{Header, kind};

/// Returns the bytes of one element, or `None` for zeros.
pub(crate) fn read(header: &Header) -> Result<Option<Vec<u8>>> {
    if let Some(message) = header.find(kind::FILL) {
        let mut cursor = header.cursor(message);
        let has_value = match cursor.version(&[1, 2, 3], "a fill value")? {
            3 => cursor.u8()? & 0x20 != 0,
            version => {
                cursor.skip(2)?;
                let defined = cursor.u8()? != 0;
                // Version 1 has a length in any case.
                defined || version == 1
            }
        };
        if !has_value {
            return Ok(None);
        }
        let length = cursor.u32()? as usize;
        // The length of -1 says that the value was left undefined on purpose.
        return Ok(match length {
            0 | 0xffff_ffff => None,
            length => Some(cursor.take(length)?.to_vec()),
        });
    }
    let Some(message) = header.find(kind::OLD_FILL) else {
        return Ok(None);
    };
    let mut cursor = header.cursor(message);
    let length = cursor.u32()? as usize;
    Ok(match length {
        0 => None,
        length => Some(cursor.take(length)?.to_vec()),
    })
}
