//! Datasets whose samples look as if they were on the last axis, as in files of MATLAB.

use super::findings::Finding;
use super::{Entry, OpenDataset};

/// Finds datasets whose last axis is as long as there are labels, and whose first axis is like that of no other.
pub(super) fn find(entries: &[Entry], readable: &[OpenDataset]) -> Vec<Finding> {
    let find_one = |open: &OpenDataset| {
        let shape = open.rows.dataset().shape();
        let (&[first, ..], &[.., last]) = (shape, shape) else {
            return None;
        };
        let others = || {
            let others = readable.iter().filter(|other| other.entry != open.entry);
            others.map(|other| (other, other.rows.dataset().shape()))
        };
        if shape.len() < 2 || last < 2 || first == last {
            return None;
        }
        let has_rows = |rows: u64| others().find(|(_, shape)| shape[0] == rows);
        let (labels, is_single) = if shape == [1, last] {
            // A row of labels, beside samples on a first axis.
            (has_rows(last).filter(|(_, shape)| shape.len() > 1)?.0, true)
        } else {
            let labels = others().find(|(other, shape)| {
                // A row of floats may be the means of columns, of which there are fewer than samples.
                is_labels(other, shape, last) && (is_integer(other) || last > first)
            })?;
            (labels.0, false)
        };
        if !is_single && has_rows(first).is_some() {
            return None;
        }
        let (path, labels) = (&entries[open.entry].path, &entries[labels.entry].path);
        let axis = match is_single {
            true => format!("{{\"{}\": -1}}", path.trim_start_matches('/')),
            false => "-1".to_owned(),
        };
        Some(Finding {
            id: "last-axis",
            dataset: path.clone(),
            message: format!(
                "its last axis is as long ({last}) as `{labels}` has samples, and its first one ({first}) is not: samples look as if \
                 they were on the last axis, as in files of MATLAB"
            ),
            fix: format!("read them from there: `Loader(..., samples=Rows(axis={axis}))`"),
        })
    };
    readable.iter().filter_map(find_one).collect()
}

/// Whether a dataset has a label for each of so many samples: integers on one axis, or a row of any numbers, as MATLAB
/// writes a column.
fn is_labels(open: &OpenDataset, shape: &[u64], samples: u64) -> bool {
    shape == [samples] && is_integer(open) || shape == [1, samples]
}

fn is_integer(open: &OpenDataset) -> bool {
    !open.rows.scalar().is_float()
}
