//! Values that are packed by the conventions of netCDF (CF): integers that stand for floats.

use vramfit_base::{Error, Result};

use crate::hdf5::Scalar;
use crate::hdf5::attribute::{self, AttributeValue};
use crate::hdf5::header::Header;
use crate::inspect::{Value, read_value};
use crate::read::Dataset;

/// The attributes that say how values are packed.
const PACKING_ATTRIBUTES: [&str; 5] =
    ["scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];

/// What values of a dataset stand for: `value * scale + offset`, or nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packing {
    scale: f64,
    offset: f64,
    /// Values that stand for missing ones.
    missing: Vec<f64>,
    signs: Option<Signs>,
}

/// Integers that stand for those of the other kind with the same bits; there are `modulus` of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Signs {
    /// Signed ones for unsigned ones.
    Unsigned { modulus: f64 },
    /// Unsigned ones for signed ones.
    Signed { modulus: f64 },
}

impl Signs {
    fn apply(self, number: f64) -> f64 {
        match self {
            Signs::Unsigned { modulus } if number < 0.0 => number + modulus,
            Signs::Signed { modulus } if number >= modulus / 2.0 => number - modulus,
            _ => number,
        }
    }
}

impl Packing {
    /// Reads the attributes of a dataset, whose numbers are stored in a type; `None` where it has none of them.
    ///
    /// # Errors
    /// `invalid-file` when an attribute is damaged; `unsupported-feature` when it is not what the conventions say.
    pub(super) fn read(dataset: &Dataset, stored: Scalar) -> Result<Option<Packing>> {
        let header = Header::read(dataset.container(), dataset.address())?;
        let context = |name: &str, error: Error| {
            let path = dataset.path();
            let hint = "read values as they are stored, without `unpack`";
            error.context(format_args!("the attribute `{name}` of dataset `{path}`")).hint(hint)
        };
        let find = |name| attribute::find(&header, name).map_err(|error| context(name, error));
        let numbers = |name| -> Result<Option<Vec<f64>>> {
            match find(name)? {
                None => Ok(None),
                Some(AttributeValue::Numbers(numbers)) => {
                    let numbers = numbers.into_iter();
                    let numbers = numbers.map(|(scalar, bytes)| match read_value(scalar, &bytes) {
                        Value::Integer(integer) => integer as f64,
                        Value::Real(number) => number,
                    });
                    Ok(Some(numbers.collect()))
                }
                Some(AttributeValue::Text(_)) => Err(context(name, not_numbers("text"))),
                Some(AttributeValue::Other(what)) => Err(context(name, not_numbers(&what))),
            }
        };
        let single = |name| -> Result<Option<f64>> {
            match numbers(name)?.as_deref() {
                None | Some([]) => Ok(None),
                Some([number]) => Ok(Some(*number)),
                Some(several) => {
                    let what =
                        format!("it has {} values, and is one for all elements", several.len());
                    Err(context(name, Error::unsupported_feature(what)))
                }
            }
        };
        let (scale, offset) = (single("scale_factor")?, single("add_offset")?);
        let signs = match find("_Unsigned")? {
            Some(AttributeValue::Text(text)) => signs(stored, &text),
            Some(_) => {
                let what = "it is not text, and is `true` or `false`";
                return Err(context("_Unsigned", Error::unsupported_feature(what)));
            }
            None => None,
        };
        let missing = [numbers("_FillValue")?, numbers("missing_value")?];
        let is_packed = scale.is_some() || offset.is_some() || signs.is_some();
        if !is_packed && missing.iter().all(Option::is_none) {
            return Ok(None);
        }
        let missing = missing.into_iter().flatten().flatten();
        // They may have more digits than the numbers that they are written in place of.
        let missing = missing.flat_map(|number| match stored {
            Scalar::Float32 => vec![number, f64::from(number as f32)],
            _ => vec![signs.map_or(number, |signs| signs.apply(number))],
        });
        Ok(Some(Packing {
            scale: scale.unwrap_or(1.0),
            offset: offset.unwrap_or(0.0),
            missing: missing.collect(),
            signs,
        }))
    }

    /// Unpacks doubles in place: missing values become NaN.
    pub(super) fn apply(&self, numbers: &mut [[u8; 8]]) {
        for bytes in numbers {
            let stored = f64::from_le_bytes(*bytes);
            let number = self.signs.map_or(stored, |signs| signs.apply(stored));
            let unpacked = match self.missing.contains(&number) {
                true => f64::NAN,
                false => number * self.scale + self.offset,
            };
            *bytes = unpacked.to_le_bytes();
        }
    }
}

/// Returns which attributes of a dataset say that its values are packed. A fill value of NaN is none of them: it reads
/// as what it stands for.
pub(crate) fn packing_attributes(dataset: &Dataset) -> Vec<&'static str> {
    let Ok(header) = Header::read(dataset.container(), dataset.address()) else {
        return Vec::new();
    };
    let names = attribute::names(&header).unwrap_or_default();
    let is_there = |wanted: &&str| names.iter().any(|name| name == wanted);
    let is_nan = |(scalar, bytes): &(Scalar, Vec<u8>)| match read_value(*scalar, bytes) {
        Value::Integer(_) => false,
        Value::Real(number) => number.is_nan(),
    };
    let is_fill_value = |name: &str| matches!(name, "_FillValue" | "missing_value");
    let says_something = |name: &&str| match attribute::find(&header, name) {
        Ok(Some(AttributeValue::Numbers(numbers))) if is_fill_value(name) => {
            !numbers.iter().all(is_nan)
        }
        _ => true,
    };
    PACKING_ATTRIBUTES.into_iter().filter(is_there).filter(says_something).collect()
}

/// Returns what the text of the attribute `_Unsigned` says of integers of a type.
fn signs(stored: Scalar, text: &str) -> Option<Signs> {
    let modulus = (8.0 * stored.size() as f64).exp2();
    let is_unsigned =
        matches!(stored, Scalar::Uint8 | Scalar::Uint16 | Scalar::Uint32 | Scalar::Uint64);
    match text.to_ascii_lowercase().as_str() {
        "true" if stored.is_signed() => Some(Signs::Unsigned { modulus }),
        "false" if is_unsigned => Some(Signs::Signed { modulus }),
        _ => None,
    }
}

fn not_numbers(what: &str) -> Error {
    Error::unsupported_feature(format!("it is {what}, and values are unpacked with numbers"))
}
