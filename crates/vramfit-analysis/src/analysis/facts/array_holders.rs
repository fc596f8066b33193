//! The variables of a program that hold its arrays when it ends: for lack of memory, after its last step, or by itself.

use crate::bytes::Bytes;
use crate::section::{Content, Section, Table, Value};
use crate::trace::{ArrayHolder, Note};

/// Variables that a report lists.
const MAX_SHOWN: usize = 10;
/// A variable is named beside the cause if it holds at least one in this many of the bytes in use.
const MIN_NAMED_FRACTION: u64 = 4;

/// Returns what the notes of a run say, those that hold most first.
pub(in crate::analysis) fn from_notes(notes: &[Note]) -> Vec<ArrayHolder> {
    let holders = notes.iter().filter_map(|note| match note {
        Note::ArrayHolders { holders } => Some(holders),
        _ => None,
    });
    let mut holders: Vec<ArrayHolder> = holders.flatten().cloned().collect();
    holders.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    holders
}

/// Names the variable that holds most of the arrays, where that is much of what is in use.
pub(crate) fn sentence(holders: &[ArrayHolder], in_use_bytes: u64) -> Option<String> {
    let holder = holders.first()?;
    let is_much = holder.bytes.saturating_mul(MIN_NAMED_FRACTION) >= in_use_bytes;
    (is_much && holder.bytes <= in_use_bytes).then(|| {
        format!("held by {}: {}, {}", holder.name, arrays(holder.arrays), Bytes(holder.bytes))
    })
}

/// Lists the variables.
pub(crate) fn section(holders: &[ArrayHolder]) -> Option<Section> {
    let rows = holders.iter().take(MAX_SHOWN).map(|holder| {
        vec![
            Value::Text(holder.name.clone()),
            Value::Count(holder.arrays),
            Value::Bytes(holder.bytes),
        ]
    });
    let note = "bytes on the fullest device, as they were asked for; an array that several variables hold is listed \
                under the nearest";
    let table = Table::new(&["variable", "arrays", "bytes"], rows.collect(), note);
    let title = "variables that held arrays when the program ended";
    (!holders.is_empty()).then(|| Section::new(title, Content::Table(table)))
}

fn arrays(count: u64) -> String {
    match count {
        1 => "1 array".to_owned(),
        count => format!("{count} arrays"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str, arrays: u64, bytes: u64) -> ArrayHolder {
        ArrayHolder { name: name.to_owned(), arrays, bytes }
    }

    #[test]
    fn the_variable_that_holds_most_is_named_if_that_is_much() {
        let notes = [
            Note::ArrayHolders { holders: vec![holder("`w` of train.py", 1, 100)] },
            Note::ArrayHolders { holders: vec![holder("`history` of train.py", 7, 300)] },
        ];
        let holders = from_notes(&notes);
        let said = Some("held by `history` of train.py: 7 arrays, 300 B".to_owned());
        for (in_use, expected) in [
            (300, &said),
            (1200, &said),
            (1201, &None),
            // More than there is would be wrong.
            (299, &None),
        ] {
            assert_eq!(&sentence(&holders, in_use), expected, "{in_use}");
        }
        assert_eq!(sentence(&[], 0), None);
    }
}
