//! Whether labels are in an order that a weak shuffle would expose: a few places are read.

use std::collections::BTreeMap;

use vramfit_base::Result;

use super::Finding;
use super::sample::{Value, value};
use crate::read::RowReader;

/// Pairs of adjacent rows that are read, evenly over the file.
const PAIRS: u64 = 64;
/// Labels that cost more than this to decode are not read.
const MAX_BYTES: u64 = 16 << 20;

/// Checks a dataset, if it has one integer per row.
///
/// # Errors
///
/// As [`RowReader::gather`].
pub(super) fn find_order(rows: &RowReader, path: &str) -> Result<Option<Finding>> {
    let is_label = !rows.scalar().is_float() && rows.row_bytes() == rows.scalar().size();
    let cost = rows.band_rows().min(rows.len()).saturating_mul(rows.row_bytes() as u64);
    let cost = cost.saturating_mul(PAIRS.min(rows.len().div_ceil(rows.band_rows())));
    if !is_label || rows.len() < 2 * PAIRS || cost > MAX_BYTES {
        return Ok(None);
    }
    let wanted: Vec<u64> = (0..PAIRS)
        .flat_map(|pair| {
            let first = (u128::from(rows.len() - 1) * u128::from(pair) / u128::from(PAIRS)) as u64;
            [first, first + 1]
        })
        .collect();
    let mut bytes = vec![0; wanted.len() * rows.row_bytes()];
    rows.gather(&wanted, &mut bytes)?;
    let values: Vec<i128> = (bytes.chunks_exact(rows.row_bytes()))
        .filter_map(|bytes| match value(rows.scalar(), bytes) {
            Value::Integer(value) => Some(value),
            Value::Real(_) => None,
        })
        .collect();
    Ok(classify(&values).map(|(id, message)| Finding {
        id,
        dataset: path.to_owned(),
        message,
        fix: "shuffle with windows of at least 64 blocks; a small shuffle buffer is not enough"
            .to_owned(),
    }))
}

/// Classifies pairs of adjacent rows, in file order.
fn classify(values: &[i128]) -> Option<(&'static str, String)> {
    let mut counts: BTreeMap<i128, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(*value).or_default() += 1;
    }
    let count = values.len();
    if counts.len() < 2 {
        return None;
    }
    let sorted = values.is_sorted() || values.iter().rev().is_sorted();
    if sorted && counts.len() == count {
        return Some((
            "ordered-rows",
            format!(
                "strictly increasing or decreasing in the {count} rows sampled: rows are ordered by time or by an index"
            ),
        ));
    }
    if sorted {
        return Some((
            "sorted-labels",
            format!(
                "sorted in the {count} rows sampled: without a shuffle, a batch has a single label"
            ),
        ));
    }
    let pairs: Vec<&[i128]> = values.chunks_exact(2).collect();
    let equal = pairs.iter().filter(|pair| pair[0] == pair[1]).count();
    let by_chance: f64 = (counts.values()).map(|&rows| (rows as f64 / count as f64).powi(2)).sum();
    (equal * 10 >= pairs.len() * 9 && by_chance < 0.5).then(|| {
        (
            "labels-in-runs",
            format!(
                "{equal} of {} pairs of adjacent rows have the same label ({:.0} would be expected by chance)",
                pairs.len(),
                by_chance * pairs.len() as f64
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::classify;

    #[test]
    fn orders_are_distinguished() {
        let id = |values: Vec<i128>| classify(&values).map(|(id, _)| id);
        let pairs =
            |label: fn(i128) -> i128| (0..64).flat_map(|at| [label(at); 2]).collect::<Vec<_>>();
        assert_eq!(id((0..128).collect()), Some("ordered-rows"));
        assert_eq!(id(pairs(|at| at / 8)), Some("sorted-labels"));
        assert_eq!(id(pairs(|at| -at / 8)), Some("sorted-labels"));
        assert_eq!(id(pairs(|at| at * 7 % 10)), Some("labels-in-runs"));
        assert_eq!(id((0..128).map(|at| at * 7 % 10).collect()), None);
        assert_eq!(id(vec![3; 128]), None);
        // Nine in ten are of one class: equal pairs are expected.
        assert_eq!(id(pairs(|at| i128::from(at % 10 == 3))), None);
    }
}
