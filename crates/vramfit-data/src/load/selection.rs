//! Which samples are read: those that the options list, and the set of a split.

use std::collections::HashSet;
use std::ops::Range;

use vramfit_base::nearest::nearest;
use vramfit_base::{Error, Result};

use super::columns::Columns;
use super::options::{LoaderOptions, SampleSelection, SplitOptions, SplitSet};
use crate::order::{Engine, ListedRows, Order, RowSubset, Split, SplitMode, ThreeWaySplit};
use crate::sample::{RowRanges, SampleOptions};
use crate::splitmix::MixKey;

/// Returns the order of the samples that the options select, by an engine.
///
/// # Errors
/// `invalid-argument` when there are none, one of the sets of a split has none, or a weight is none.
pub(super) fn make_order(
    options: &LoaderOptions,
    columns: &Columns,
    engine: Engine,
) -> Result<Order> {
    let order = order_selected(options, columns, engine)?;
    let Some(weights) = &options.weights else {
        return Ok(order);
    };
    if !options.shuffle {
        return Err(Error::invalid_argument(
            "samples are drawn by `weights`, which has no order of the file",
        )
        .hint("leave `shuffle=False` out"));
    }
    order.weighted(weights)
}

/// Returns the same for samples that come once each.
fn order_selected(options: &LoaderOptions, columns: &Columns, engine: Engine) -> Result<Order> {
    let (samples, seed) = (columns.len(), options.seed);
    let selected = match &options.selection {
        None => None,
        Some(SampleSelection::Samples { ranges, mask_length }) => {
            if let Some(length) = mask_length.filter(|length| *length != samples) {
                return Err(Error::invalid_argument(format!(
                    "`rows` is a mask of {length} values, and there are {samples} samples"
                ))
                .hint("use a mask with one value for each sample, or sample numbers"));
            }
            Some(ranges.clone())
        }
        Some(SampleSelection::Groups(names)) => Some(select_groups(columns, names)?),
    };
    let Some(split) = options.split else {
        return match selected {
            None => Order::new(samples, seed, engine, RowSubset::All),
            Some(ranges) => {
                let listed = ListedRows::new(ranges);
                Order::listed(samples, seed, engine, RowSubset::All, listed)
            }
        };
    };
    ensure_fractions(split)?;
    let groups = columns.sample_groups();
    if !split.by_group.unwrap_or(share_rows(options, groups.len())) {
        let count = selected.as_ref().map_or(samples, RowRanges::len);
        let subset = split_rows(split, count)?;
        return match selected {
            None => Order::new(samples, seed, engine, subset),
            Some(ranges) => Order::listed(samples, seed, engine, subset, ListedRows::new(ranges)),
        };
    }
    // Groups that are too short for a sample count, too: the sets do not depend on the length of windows.
    let set = match groups.len() {
        1 if !columns.samples.is_windows() => {
            return Err(Error::invalid_argument(
                "samples are split by group, and there is only one group",
            )
            .hint("use `split_by=\"sample\"`"));
        }
        1 => split_in_time(split, columns),
        _ => split_groups(split, &groups)?,
    };
    let set = match selected {
        None => set,
        Some(selected) => intersect(&selected, &set),
    };
    if set.is_empty() {
        return Err(Error::invalid_argument(format!(
            "the {} set of the split has no samples",
            name(split.set)
        ))
        .hint("choose a larger fraction for it"));
    }
    Order::listed(samples, seed, engine, RowSubset::All, ListedRows::new(set))
}

/// Whether samples of a group belong together, so that it stays whole unless the options say otherwise: all but rows by
/// themselves, and ragged samples of one group.
fn share_rows(options: &LoaderOptions, groups: usize) -> bool {
    match &options.samples {
        SampleOptions::Rows => options.columns.iter().any(|column| column.shift != 0),
        SampleOptions::Windows { .. } | SampleOptions::Groups { .. } => true,
        SampleOptions::Ragged { pack, .. } => *pack || groups > 1,
    }
}

fn name(set: SplitSet) -> &'static str {
    match set {
        SplitSet::Train => "training",
        SplitSet::Validation => "validation",
        SplitSet::Test => "test",
    }
}

fn ensure_fractions(split: SplitOptions) -> Result<()> {
    if split.fold.is_some() {
        return match split.set {
            SplitSet::Test => Err(Error::invalid_argument("folds have no test set")
                .hint("take it out before: `rows=`, or `groups=`")),
            SplitSet::Train | SplitSet::Validation => Ok(()),
        };
    }
    if split.set == SplitSet::Test && split.test_fraction == 0.0 {
        return Err(Error::invalid_argument("the split has no test set")
            .hint("name three fractions: `split=(\"test\", 0.8, 0.1, 0.1)`"));
    }
    let fractions = [split.fraction, split.test_fraction];
    let three = split.test_fraction != 0.0;
    let others = if three { &fractions[..] } else { &fractions[..1] };
    let sum: f64 = others.iter().sum();
    if others.iter().all(|fraction| *fraction > 0.0) && sum < 1.0 {
        return Ok(());
    }
    match three {
        // Its own error names the fraction.
        false => Ok(()),
        true => Err(Error::invalid_argument(format!(
            "fractions of {} for validation and {} for tests leave nothing for training",
            split.fraction, split.test_fraction
        ))
        .hint("use fractions between 0 and 1: `split=(\"train\", 0.8, 0.1, 0.1)`")),
    }
}

/// Returns a set of a split of samples that have nothing to do with each other.
fn split_rows(split: SplitOptions, count: u64) -> Result<RowSubset> {
    if let Some(fold) = split.fold {
        let two = Split::of_fold(count, fold, split.mode == SplitMode::Tail, split.seed)?;
        return Ok(match split.set {
            SplitSet::Train => RowSubset::Train(two),
            SplitSet::Validation | SplitSet::Test => RowSubset::Validation(two),
        });
    }
    if split.test_fraction == 0.0 {
        let two = Split::new(count, split.fraction, split.mode, split.seed)?;
        return Ok(match split.set {
            SplitSet::Train => RowSubset::Train(two),
            SplitSet::Validation | SplitSet::Test => RowSubset::Validation(two),
        });
    }
    let test = Split::new(count, split.test_fraction, split.mode, split.seed)?;
    let [validation_count, test_count] = counts(split, count);
    // Another seed: the same one would choose alike places in both.
    let seed = MixKey::new(&[split.seed, 1]).at(0);
    let validation = Split::of_count(count - test_count, validation_count, split.mode, seed)?;
    let three = ThreeWaySplit { test, validation };
    Ok(match split.set {
        SplitSet::Train => RowSubset::TrainOfThree(three),
        SplitSet::Validation => RowSubset::ValidationOfThree(three),
        SplitSet::Test => RowSubset::Validation(test),
    })
}

/// Returns how many of `count` are for validation, and how many for tests.
fn counts(split: SplitOptions, count: u64) -> [u64; 2] {
    [split.fraction, split.test_fraction].map(|fraction| (count as f64 * fraction).round() as u64)
}

/// Returns the samples of the groups that are in the set.
fn split_groups(split: SplitOptions, groups: &[Range<u64>]) -> Result<RowRanges> {
    let count = groups.len() as u64;
    let subset = split_rows(split, count).map_err(|error| {
        error.context(format!("the {count} groups are split, each of them as a whole"))
    })?;
    let order = Order::new(count, 0, Engine::Sequential, subset)?;
    let mut chosen = Vec::new();
    order.epoch(0).append_rows(0..order.len(), &mut chosen);
    Ok(chosen.into_iter().map(|group| groups[group as usize].clone()).collect())
}

/// Returns the samples of a part of the only series, none of whose rows is in another part: the training set comes first,
/// then the validation set, then the test set; a fold is a block, and the training set what is before and behind it.
fn split_in_time(split: SplitOptions, columns: &Columns) -> RowRanges {
    let all = columns.segments().rows();
    let extent = |sample: u64| columns.samples.extent(sample);
    let samples_in = |rows: Range<u64>| {
        let first = partition_point(columns.len(), |sample| extent(sample).start < rows.start);
        let last = partition_point(columns.len(), |sample| extent(sample).end <= rows.end);
        first..last.max(first)
    };
    if let Some(fold) = split.fold {
        let block = fold.block(all);
        return match split.set {
            SplitSet::Train => {
                [0..block.start, block.end..all].map(samples_in).into_iter().collect()
            }
            SplitSet::Validation | SplitSet::Test => std::iter::once(samples_in(block)).collect(),
        };
    }
    let [validation, test] = counts(split, all);
    let validation_start = all.saturating_sub(validation + test);
    let test_start = all.saturating_sub(test);
    let rows = match split.set {
        SplitSet::Train => 0..validation_start,
        SplitSet::Validation => validation_start..test_start,
        SplitSet::Test => test_start..all,
    };
    std::iter::once(samples_in(rows)).collect()
}

/// Returns the first number below `count` for which `is_before` is false; it is true for all before it.
fn partition_point(count: u64, is_before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match is_before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

fn intersect(one: &RowRanges, other: &RowRanges) -> RowRanges {
    let mut others = other.iter().peekable();
    let mut common = RowRanges::default();
    for range in one.iter() {
        while let Some(other) = others.peek() {
            if other.start >= range.end {
                break;
            }
            common.push(other.start.max(range.start)..other.end.min(range.end));
            if other.end > range.end {
                break;
            }
            others.next();
        }
    }
    common
}

/// Returns the samples of the groups with some names.
fn select_groups(columns: &Columns, names: &[String]) -> Result<RowRanges> {
    let segments = &columns.segments().segments;
    let known: HashSet<&str> =
        segments.iter().filter_map(|segment| segment.names.last()).map(String::as_str).collect();
    let hint =
        "names are those that stand for `*` in the paths of datasets: `demo_0` for `data/*/obs`";
    if known.is_empty() {
        return Err(Error::invalid_argument("groups are selected, but no dataset has a wildcard")
            .hint(hint));
    }
    if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
        let mut sorted: Vec<&str> = known.into_iter().collect();
        sorted.sort_unstable();
        let similar = nearest(unknown, sorted.into_iter());
        let error = Error::invalid_argument(format!("there is no group `{unknown}`"));
        return Err(match similar.first() {
            Some(similar) => error.hint(format!("did you mean `{similar}`?")),
            None => error.hint(hint),
        });
    }
    let groups = columns.sample_groups();
    if groups.len() != segments.len() {
        return Err(Error::invalid_argument(
            "groups are selected, but samples are not within groups",
        )
        .hint("use `Windows(..., within=\"group\")`"));
    }
    let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
    let chosen = segments.iter().zip(groups).filter(|(segment, _)| {
        segment.names.last().is_some_and(|name| wanted.contains(name.as_str()))
    });
    Ok(chosen.map(|(_, group)| group).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn make(rows: &[bool]) -> RowRanges {
        let rows = rows.iter().enumerate().filter(|(_, chosen)| **chosen);
        rows.map(|(row, _)| row as u64..row as u64 + 1).collect()
    }

    proptest! {
        #[test]
        fn common_rows_are_in_both(rows in prop::collection::vec(any::<(bool, bool)>(), 0..40)) {
            let (one, other): (Vec<bool>, Vec<bool>) = rows.iter().copied().unzip();
            let both: Vec<bool> = rows.iter().map(|(one, other)| *one && *other).collect();
            prop_assert_eq!(intersect(&make(&one), &make(&other)), make(&both));
        }
    }
}
