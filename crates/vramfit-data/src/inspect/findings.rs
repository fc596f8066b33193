//! What will be slow, and why: one function per rule, each with the threshold that decides.

use std::collections::HashMap;

use serde::Serialize;
use vramfit_base::Bytes;

use super::alike::{AlikeMembers, find_patterns};
use super::plan::{band_rows, groups};
use super::{Entry, OpenDataset};
use crate::hdf5::Container;
use crate::load::packing_attributes;
use crate::read::Storage;

/// A smaller read from a disk costs as much as one of this size (`docs/concepts/row-order.md`).
pub(super) const TINY_CHUNK: u64 = 16 << 10;
/// With larger bands a window holds too few of them to shuffle well in any usual budget.
const LARGE_BAND: u64 = 8 << 20;

/// Something to know about a file before training on it.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// A stable name.
    pub id: &'static str,
    /// The dataset concerned; several are separated by commas.
    pub dataset: String,
    /// The problem, with numbers.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

/// Applies the rules that need no rows.
pub(super) fn find_all(entries: &[Entry], readable: &[OpenDataset]) -> Vec<Finding> {
    let rules = [
        large_band,
        split_rows,
        tiny_chunks,
        ineffective_compression,
        wide_numbers,
        packed_values,
        valid_range,
        missing_sources,
    ];
    let mut findings = Vec::new();
    for open in readable {
        let entry = &entries[open.entry];
        findings.extend(rules.iter().filter_map(|rule| rule(entry, open)));
    }
    findings.extend(mismatched_chunks(entries, readable));
    findings
}

/// A file that was not closed, and that libhdf5 reads nevertheless.
pub(super) fn not_closed(container: &Container) -> Option<Finding> {
    container.unclosed().map(|what| Finding {
        id: "not-closed",
        dataset: "/".to_owned(),
        message: what.to_owned(),
        fix: "write the file again if it is not complete".to_owned(),
    })
}

/// Puts the findings about members that are alike together.
pub(super) fn fold(
    findings: Vec<Finding>,
    entries: &[Entry],
    alike: &[AlikeMembers],
) -> Vec<Finding> {
    // The path of each dataset of such members, with wildcards.
    let found = find_patterns(entries, alike);
    let paths = entries.iter().map(|entry| entry.path.as_str());
    let patterns: HashMap<&str, &str> =
        paths.zip(found.iter().map(|(pattern, _)| pattern.as_str())).collect();
    let mut totals: HashMap<&str, usize> = HashMap::new();
    for (entry, (pattern, _)) in entries.iter().zip(&found) {
        *totals.entry(pattern).or_default() += usize::from(entry.dataset.is_some());
    }
    let mut folded: Vec<(Finding, usize)> = Vec::new();
    let mut places: HashMap<(&'static str, String), usize> = HashMap::new();
    for finding in findings {
        let mut datasets: Vec<&str> = (finding.dataset.split(','))
            .map(|path| patterns.get(path).copied().unwrap_or(path))
            .collect();
        datasets.sort_unstable();
        datasets.dedup();
        let datasets = datasets.join(",");
        let is_alike = datasets != finding.dataset;
        match places.get(&(finding.id, datasets.clone())) {
            Some(&place) if is_alike => folded[place].1 += 1,
            _ => {
                places.insert((finding.id, datasets.clone()), folded.len());
                folded.push((Finding { dataset: datasets, ..finding }, 1));
            }
        }
    }
    let say = |(finding, count): (Finding, usize)| match totals.get(finding.dataset.as_str()) {
        Some(&total) if total > 1 => {
            let message =
                format!("{count} of {total} datasets; in the first of them, {}", finding.message);
            Finding { message, ..finding }
        }
        _ => finding,
    };
    folded.into_iter().map(say).collect()
}

/// To read one row, all chunks that hold parts of it are decoded: too much for one row.
fn large_band(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let Storage::Chunked { grid, .. } = open.rows.dataset().storage() else {
        return None;
    };
    let rows = grid.chunk.first().copied()?.min(open.rows.len());
    let across: u64 = grid.lengths.iter().skip(1).product();
    let bytes = Bytes(grid.chunk_bytes.saturating_mul(across));
    if bytes.0 <= LARGE_BAND || rows <= 1 {
        return None;
    }
    let what = match (grid.count, across) {
        (1, _) => format!("one chunk holds all {rows} rows, so reading any row decodes {bytes}"),
        (_, 1) => format!("chunks hold {rows} rows ({bytes}), so reading any row decodes {bytes}"),
        _ => format!(
            "each row is split across {across} chunks of {rows} rows, so reading any row decodes {bytes}"
        ),
    };
    Some(Finding {
        id: "large-chunks",
        dataset: entry.path.clone(),
        message: what,
        fix: "rewrite the dataset with smaller chunks of whole rows".to_owned(),
    })
}

/// A row in many chunks: a batch needs all of them, and threads cannot divide the work by rows.
fn split_rows(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let Storage::Chunked { grid, .. } = open.rows.dataset().storage() else {
        return None;
    };
    let across: u64 = grid.lengths.iter().skip(1).product();
    if across < 8 || large_band(entry, open).is_some() {
        return None;
    }
    Some(Finding {
        id: "split-rows",
        dataset: entry.path.clone(),
        message: format!(
            "each row is split across {across} chunks, all of which must be read for it"
        ),
        fix: "rewrite the dataset with chunks of whole rows".to_owned(),
    })
}

fn tiny_chunks(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let Storage::Chunked { grid, table, .. } = open.rows.dataset().storage() else {
        return None;
    };
    if grid.chunk_bytes >= TINY_CHUNK || table.len() <= 256 {
        return None;
    }
    Some(Finding {
        id: "tiny-chunks",
        dataset: entry.path.clone(),
        message: format!(
            "{} chunks of only {} each, and each takes a read of its own",
            table.len(),
            Bytes(grid.chunk_bytes)
        ),
        fix: "rewrite the dataset with chunks of about 256 KiB".to_owned(),
    })
}

fn ineffective_compression(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let info = entry.dataset.as_ref()?;
    let (memory, stored) = (open.rows.dataset().bytes(), info.stored_bytes?.0);
    let compresses =
        info.filters.iter().any(|name| !matches!(name.as_str(), "shuffle" | "fletcher32"));
    if !compresses
        || info.chunks_unwritten != Some(0)
        || memory < 1 << 20
        || stored < memory / 20 * 19
    {
        return None;
    }
    Some(Finding {
        id: "ineffective-compression",
        dataset: entry.path.clone(),
        message: format!(
            "compression does not reduce the size ({} stored for {} of data), but costs time in every epoch",
            Bytes(stored),
            Bytes(memory)
        ),
        fix: "rewrite the dataset without compression".to_owned(),
    })
}

fn wide_numbers(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let name = open.rows.scalar().name();
    if !matches!(name, "float64" | "int64" | "uint64") || open.rows.dataset().bytes() < 1 << 20 {
        return None;
    }
    let half = Bytes(open.rows.dataset().bytes() / 2);
    Some(Finding {
        id: "wide-numbers",
        dataset: entry.path.clone(),
        message: format!(
            "JAX converts {name} to 32 bits unless x64 is enabled, so {half} are read for nothing"
        ),
        fix: "store 32-bit types where they suffice".to_owned(),
    })
}

/// Values that are packed by the conventions of netCDF (CF): h5py reads them as stored, xarray and netCDF4 decode them.
fn packed_values(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    // Most datasets have no attributes.
    let found = match entry.attributes.is_empty() {
        true => Vec::new(),
        false => packing_attributes(open.rows.dataset()),
    };
    let named = name_attributes(&found)?;
    Some(Finding {
        id: "packed-values",
        dataset: entry.path.clone(),
        message: format!(
            "it has the {named}: values are read as they are stored, packed and with fill values for missing ones"
        ),
        fix: "unpack them while they are loaded: `Loader(..., unpack=True)`".to_owned(),
    })
}

/// Bounds of valid values, which netCDF4 masks by.
fn valid_range(entry: &Entry, _: &OpenDataset) -> Option<Finding> {
    let is_there = |name: &&str| entry.attributes.iter().any(|own| own == name);
    let found = ["valid_range", "valid_min", "valid_max"].into_iter().filter(is_there);
    let named = name_attributes(&found.collect::<Vec<_>>())?;
    Some(Finding {
        id: "valid-range",
        dataset: entry.path.clone(),
        message: format!(
            "it has the {named}: values outside of that range are read as they are, also with `unpack=True`"
        ),
        fix: "mask them in a `transform`, if there are some".to_owned(),
    })
}

/// Returns attributes by their names, as in ``attributes `a`, `b` ``; none where there are none.
pub fn name_attributes(names: &[&str]) -> Option<String> {
    let noun = match names.len() {
        0 => return None,
        1 => "attribute",
        _ => "attributes",
    };
    let named: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    Some(format!("{noun} {}", named.join(", ")))
}

/// A virtual dataset whose sources are not all there: h5py reads fill values without a word.
fn missing_sources(entry: &Entry, open: &OpenDataset) -> Option<Finding> {
    let missing = open.rows.dataset().missing_sources();
    let first = missing.first()?.display();
    let others = match missing.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(Finding {
        id: "missing-sources",
        dataset: entry.path.clone(),
        message: format!(
            "it is virtual, and `{first}`{others} does not exist or has no such dataset: elements of it are the fill value"
        ),
        fix: "put the files where they were when the virtual dataset was made".to_owned(),
    })
}

/// Datasets that are read together, with chunks whose boundaries do not align.
fn mismatched_chunks(entries: &[Entry], readable: &[OpenDataset]) -> Option<Finding> {
    let groups = groups(readable);
    let chunked: Vec<(&OpenDataset, u64)> = (groups.first()?.iter())
        .filter_map(|open| Some((*open, band_rows(open.rows.dataset())?.min(open.rows.len()))))
        .collect();
    let max_rows = chunked.iter().map(|(_, rows)| *rows).max()?;
    if chunked.iter().all(|(_, rows)| max_rows % rows == 0) {
        return None;
    }
    let label =
        |(open, rows): &(&OpenDataset, u64)| format!("`{}` {rows}", entries[open.entry].path);
    let list: Vec<String> = chunked.iter().map(label).collect();
    let paths: Vec<&str> =
        chunked.iter().map(|(open, _)| entries[open.entry].path.as_str()).collect();
    Some(Finding {
        id: "mismatched-chunks",
        dataset: paths.join(","),
        message: format!(
            "the numbers of rows per chunk do not divide each other ({}), so chunks are decoded more than once",
            list.join(", ")
        ),
        fix: "rewrite the datasets with the same number of rows per chunk".to_owned(),
    })
}
