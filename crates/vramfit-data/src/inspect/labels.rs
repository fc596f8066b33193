//! Whether labels are in an order that a weak shuffle would show: looked at in a few places.

use std::collections::BTreeMap;

use vramfit_core::Result;

use super::Finding;
use super::sample::{Value, value};
use crate::hdf5::Scalar;
use crate::read::Rows;

/// Pairs of neighbours that are looked at, evenly over the file.
const PAIRS: u64 = 64;
/// Rows that cost more than this to decode are not looked at.
const MAX_BYTES: u64 = 16 << 20;

/// Looks at a dataset, if it has one integer a row.
///
/// # Errors
///
/// As [`Rows::gather`].
pub(super) fn find_order(rows: &Rows, path: &str) -> Result<Option<Finding>> {
    let is_label = !matches!(
        rows.scalar(),
        Scalar::Float16 | Scalar::Bfloat16 | Scalar::Float32 | Scalar::Float64
    ) && rows.row_bytes() == rows.scalar().size();
    let cost = rows
        .band_rows()
        .min(rows.len())
        .saturating_mul(rows.row_bytes() as u64);
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
    Ok(order(&values).map(|(id, message)| Finding {
        id,
        dataset: path.to_owned(),
        message,
        cure: "shuffle, with at least 64 blocks in a pool; a small shuffle buffer will not do"
            .to_owned(),
        command: None,
    }))
}

/// Judges pairs of neighbours, in the order of the file.
fn order(values: &[i128]) -> Option<(&'static str, String)> {
    let mut counts: BTreeMap<i128, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(*value).or_default() += 1;
    }
    let looked = values.len();
    if counts.len() < 2 {
        return None;
    }
    let sorted = values.is_sorted() || values.iter().rev().is_sorted();
    if sorted && counts.len() == looked {
        return Some((
            "ordered-rows",
            format!(
                "it only rises or falls in the {looked} rows looked at: rows are in the order of time or of an index"
            ),
        ));
    }
    if sorted {
        return Some((
            "sorted-labels",
            format!(
                "sorted, as far as the {looked} rows looked at say: without a shuffle a batch has one label"
            ),
        ));
    }
    let pairs: Vec<&[i128]> = values.chunks_exact(2).collect();
    let equal = pairs.iter().filter(|pair| pair[0] == pair[1]).count();
    let by_chance: f64 = (counts.values())
        .map(|&count| (count as f64 / looked as f64).powi(2))
        .sum();
    (equal * 10 >= pairs.len() * 9 && by_chance < 0.5).then(|| {
        (
            "labels-in-runs",
            format!(
                "{equal} of {} pairs of neighbours have the same label, by chance it would be {:.0}",
                pairs.len(),
                by_chance * pairs.len() as f64
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn orders_are_told_apart() {
        let id = |values: Vec<i128>| order(&values).map(|(id, _)| id);
        let pairs =
            |label: fn(i128) -> i128| (0..64).flat_map(|at| [label(at); 2]).collect::<Vec<_>>();
        assert_eq!(id((0..128).collect()), Some("ordered-rows"));
        assert_eq!(id(pairs(|at| at / 8)), Some("sorted-labels"));
        assert_eq!(id(pairs(|at| -at / 8)), Some("sorted-labels"));
        assert_eq!(id(pairs(|at| at * 7 % 10)), Some("labels-in-runs"));
        assert_eq!(id((0..128).map(|at| at * 7 % 10).collect()), None);
        assert_eq!(id(vec![3; 128]), None);
        // Nine in ten are of one class: equal neighbours are what is to be expected.
        assert_eq!(id(pairs(|at| i128::from(at % 10 == 3))), None);
    }
}
