//! The dataspace message: how many axes a dataset has and how long they are.

use vramfit_base::Result;

use super::cursor::Cursor;

/// The most axes that the format allows.
pub(crate) const MAX_AXES: usize = 32;

/// Returns the product of some lengths, times `unit`, if it has 64 bits.
pub(crate) fn checked_product(unit: u64, lengths: &[u64]) -> Option<u64> {
    let mut lengths = lengths.iter();
    lengths.try_fold(unit, |all, &one| all.checked_mul(one))
}

/// The shape of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dataspace {
    /// Length of each axis; none for a single value.
    pub(crate) shape: Vec<u64>,
    /// How long each axis may become; `u64::MAX` without limit.
    pub(crate) max_shape: Vec<u64>,
    /// Whether there is no value at all, not even a single one.
    pub(crate) is_null: bool,
}

impl Dataspace {
    /// Reads the message.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Dataspace> {
        let version = cursor.version(&[1, 2], "a dataspace")?;
        let axes = usize::from(cursor.u8()?);
        let flags = cursor.u8()?;
        let is_null = match version {
            1 => {
                cursor.skip(5)?;
                false
            }
            _ => cursor.u8()? == 2,
        };
        if axes > MAX_AXES {
            return Err(cursor.damaged(format_args!("a dataspace has {axes} dimensions")));
        }
        let shape = read_lengths(cursor, axes)?;
        let max = match flags & 1 {
            0 => shape.clone(),
            _ => read_lengths(cursor, axes)?,
        };
        if let Some((length, max)) = shape.iter().zip(&max).find(|(length, max)| length > max) {
            return Err(cursor.damaged(format_args!(
                "a dimension has length {length}, which exceeds its maximum of {max}"
            )));
        }
        Ok(Dataspace { shape, max_shape: max, is_null })
    }
}

fn read_lengths(cursor: &mut Cursor<'_>, axes: usize) -> Result<Vec<u64>> {
    let unlimited = u64::MAX >> (64 - 8 * cursor.container.length_width);
    (0..axes)
        .map(|_| {
            let length = cursor.length()?;
            Ok(if length == unlimited { u64::MAX } else { length })
        })
        .collect()
}
