//! Which numbers of an element are wanted: those of a dataset of numbers, or a field of its records.

use vramfit_core::Result;

use super::dataset::unsupported;
use super::row_reader::invalid;
use crate::hdf5::{Element, Field, Numbers};

/// How many fields are listed in a hint.
const MAX_LISTED: usize = 16;

/// Returns the numbers of an element that are wanted.
pub(super) fn find_numbers<'a>(element: &'a Element, field: Option<&str>) -> Result<&'a Numbers> {
    match (element, field) {
        (Element::Numbers { numbers, .. }, None) => Ok(numbers),
        (Element::Numbers { .. }, Some(field)) => Err(invalid(&format!(
            "its elements are numbers and have no field `{field}`"
        ))),
        (Element::Record { fields, others, .. }, None) => {
            if let ([], Some((name, what))) = (fields.as_slice(), others.first()) {
                return Err(unsupported(&format!(
                    "no field of its records is a number (`{name}`: {what})"
                )));
            }
            let error = invalid("its elements are records, and no field is named");
            Err(match list_fields(fields) {
                None => error,
                Some(names) => error.hint(format!("name one of {names}")),
            })
        }
        (Element::Record { fields, others, .. }, Some(name)) => {
            if let Some(field) = fields.iter().find(|field| field.name == name) {
                return Ok(&field.numbers);
            }
            if let Some((_, what)) = others.iter().find(|(other, _)| other == name) {
                return Err(unsupported(&format!(
                    "field `{name}`: {what} are not supported"
                )));
            }
            let error = invalid(&format!("its records have no field `{name}`"));
            Err(match list_fields(fields) {
                None => error,
                Some(names) => error.hint(format!("there is {names}")),
            })
        }
        (Element::Other { what, .. }, _) => Err(unsupported(&format!("{what} are not supported"))
            .hint("write them as numbers; text becomes numbers with a tokenizer")),
    }
}

/// Lists the names of fields, of many only the first.
fn list_fields(fields: &[Field]) -> Option<String> {
    let names: Vec<_> = fields
        .iter()
        .take(MAX_LISTED)
        .map(|field| format!("`{}`", field.name))
        .collect();
    match (names.is_empty(), fields.len().saturating_sub(MAX_LISTED)) {
        (true, _) => None,
        (false, 0) => Some(names.join(", ")),
        (false, more) => Some(format!("{} and {more} more", names.join(", "))),
    }
}
