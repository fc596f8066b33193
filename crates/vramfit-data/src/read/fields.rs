//! The numbers of an element to read: those of a dataset of numbers, or a field of its records.

use vramfit_base::{Error, Result};

use crate::hdf5::path::list_names;
use crate::hdf5::{Datatype, Field, Numbers};

/// How many fields are listed in a hint.
const MAX_LISTED: usize = 16;

/// Returns the numbers of an element to read.
pub(crate) fn find_numbers<'a>(datatype: &'a Datatype, field: Option<&str>) -> Result<&'a Numbers> {
    match (datatype, field) {
        (Datatype::Numbers { numbers, .. }, None) => Ok(numbers),
        (Datatype::Numbers { .. }, Some(field)) => Err(Error::invalid_argument(format!(
            "its elements are numbers and have no field `{field}`"
        ))),
        (Datatype::Compound { fields, others, .. }, None) => {
            if let ([], Some((name, what))) = (fields.as_slice(), others.first()) {
                return Err(Error::unsupported_feature(format!(
                    "no field of its records is a number (`{name}`: {what})"
                )));
            }
            let error = Error::invalid_argument("its elements are records; a field is required");
            Err(hint_fields(error, "name one of ", fields))
        }
        (Datatype::Compound { fields, others, .. }, Some(name)) => {
            if let Some(field) = fields.iter().find(|field| field.name == name) {
                return Ok(&field.numbers);
            }
            if let Some((_, what)) = others.iter().find(|(other, _)| other == name) {
                return Err(Error::unsupported_feature(format!(
                    "field `{name}`: {what} are not supported"
                )));
            }
            let error = Error::invalid_argument(format!("its records have no field `{name}`"));
            Err(hint_fields(error, "available: ", fields))
        }
        (Datatype::Other { what, .. }, _) => {
            Err(Error::unsupported_feature(format!("{what} are not supported"))
                .hint(suggest_numbers(what)))
        }
    }
}

/// Returns how elements that are no numbers become some.
pub(crate) fn suggest_numbers(what: &str) -> &'static str {
    match what {
        _ if what.contains("string") => {
            "write them as numbers: labels as integers, text with a tokenizer; or decode them while they are loaded: `Loader(..., decode={...})`"
        }
        _ if what.contains("bytes") => {
            "decode them while they are loaded: `Loader(..., decode={...})`"
        }
        _ if what.contains("reference") => {
            "they refer to other datasets, such as the cells of a MATLAB array: name these"
        }
        _ if what.contains("sequence") => {
            "write all values in one dataset and where each sequence begins in another, which `Ragged` reads"
        }
        _ if what.contains("float") => {
            "write them as float64, or as float32 where that is precise enough"
        }
        _ if what.contains("integer") => "write them as integers of at most 64 bits",
        _ if what.contains("complex") => {
            "write their real and imaginary parts as datasets of floats"
        }
        _ => "write what they mean as a dataset of integers or floats",
    }
}

fn hint_fields(error: Error, lead: &str, fields: &[Field]) -> Error {
    match list_names(fields.iter().map(|field| &*field.name), MAX_LISTED) {
        None => error,
        Some(names) => error.hint(format!("{lead}{names}")),
    }
}
