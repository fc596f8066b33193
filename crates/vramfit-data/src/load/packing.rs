//! Values that are packed by the conventions of netCDF (CF): integers that stand for floats.

use vramfit_base::Result;

use crate::hdf5::attribute;
use crate::hdf5::header::Header;
use crate::inspect::{Value, read_value};
use crate::read::Dataset;

/// What values of a dataset stand for: `value * scale + offset`, or nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packing {
    scale: f64,
    offset: f64,
    /// Values that stand for missing ones.
    missing: Vec<f64>,
}

impl Packing {
    /// Reads the attributes of a dataset; `None` where it has none of them.
    ///
    /// # Errors
    /// `invalid-file` when an attribute is damaged.
    pub(super) fn read(dataset: &Dataset) -> Result<Option<Packing>> {
        let header = Header::read(dataset.container(), dataset.address())?;
        let number = |name| -> Result<Option<f64>> {
            let found = attribute::number(&header, name)?;
            Ok(found.map(|(scalar, bytes)| match read_value(scalar, &bytes) {
                Value::Integer(integer) => integer as f64,
                Value::Real(number) => number,
            }))
        };
        let (scale, offset) = (number("scale_factor")?, number("add_offset")?);
        let missing = [number("_FillValue")?, number("missing_value")?];
        let missing: Vec<f64> = missing.into_iter().flatten().collect();
        if scale.is_none() && offset.is_none() && missing.is_empty() {
            return Ok(None);
        }
        let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
        Ok(Some(Packing { scale, offset, missing }))
    }

    /// Unpacks doubles in place: missing values become NaN.
    pub(super) fn apply(&self, numbers: &mut [[u8; 8]]) {
        for bytes in numbers {
            let number = f64::from_le_bytes(*bytes);
            let unpacked = match self.missing.contains(&number) {
                true => f64::NAN,
                false => number * self.scale + self.offset,
            };
            *bytes = unpacked.to_le_bytes();
        }
    }
}
