//! The `h5repack` command that rewrites a file so that its rows are read well.
//!
//! `h5repack` is part of HDF5. What it does beyond its manual was found with version 1.10.8: it leaves
//! out, with a warning only, each dataset with a filter that it does not have, and where one dataset
//! becomes contiguous, none can grow any more.

use std::path::Path;

use super::findings::TINY_CHUNK;
use super::plan::{bytes, groups};
use super::{Entry, Finding, OpenDataset};
use crate::read::{MAX_CHUNK_BYTES, Storage};

/// A disk reads pieces of this size in any order at half its speed or more, and a window of a shuffle
/// holds many of them.
const CHUNK_BYTES: u64 = 512 << 10;
/// The command names each dataset.
const MAX_DATASETS: usize = 64;
/// The filters that HDF5 itself has.
const OWN_FILTERS: [&str; 6] = ["deflate", "shuffle", "fletcher32", "szip", "nbit", "scale-offset"];

/// Returns the command that rewrites a file so that none of the findings about chunks and compression
/// remains; `None` where there are none, or where `h5repack` would lose something.
///
/// Datasets with the same number of rows, which are read together, get the same number of rows per
/// chunk, chosen for the largest of them.
pub(super) fn h5repack_command(
    file: &Path,
    entries: &[Entry],
    readable: &[OpenDataset],
    findings: &[Finding],
) -> Option<String> {
    let datasets = || entries.iter().filter_map(|entry| entry.dataset.as_ref());
    if datasets().flat_map(|info| &info.filters).any(|name| !OWN_FILTERS.contains(&&**name)) {
        return None;
    }
    let can_grow = datasets()
        .any(|info| info.max_shape.iter().copied().ne(info.shape.iter().copied().map(Some)));
    // A command for thousands of datasets is none that can be pasted.
    if readable.len() > MAX_DATASETS {
        return None;
    }
    let is_found = |path: &str, ids: &[&str]| {
        let mut found = findings.iter().filter(|finding| ids.contains(&finding.id));
        found.any(|finding| finding.dataset.split(',').any(|dataset| dataset == path))
    };
    let mut options = Vec::new();
    for group in groups(readable) {
        let path = |open: &OpenDataset| entries[open.entry].path.as_str();
        let needs_chunks = group.iter().any(|open| is_found(path(open), CHUNK_FINDINGS));
        for open in &group {
            if needs_chunks && matches!(open.rows.dataset().storage(), Storage::Chunked { .. }) {
                let layout = layout(open, &group, can_grow)?;
                options.push(option("-l", path(open), &layout)?);
            }
            if is_found(path(open), &["ineffective-compression"]) {
                options.push(option("-f", path(open), "NONE")?);
            }
        }
    }
    if options.is_empty() {
        return None;
    }
    // A path that is not UTF-8 cannot be pasted.
    let (old, new) = (file.to_str()?, file.with_extension("repacked.h5"));
    let (old, new) = (quote(old), quote(new.to_str()?));
    Some(format!("h5repack {} {old} {new}", options.join(" ")))
}

/// The findings that other chunks mend.
const CHUNK_FINDINGS: &[&str] = &["large-chunks", "split-rows", "tiny-chunks", "mismatched-chunks"];

/// Returns an option for one dataset; `None` for a path that `h5repack` would split.
fn option(name: &str, path: &str, value: &str) -> Option<String> {
    (!path.contains([',', ':'])).then(|| format!("{name} {}", quote(&format!("{path}:{value}"))))
}

/// Returns the layout that a dataset of a group is to have, as `h5repack` takes it; `None` where a chunk
/// would be larger than any that is read.
fn layout(open: &OpenDataset, group: &[&OpenDataset], can_grow: bool) -> Option<String> {
    let (rows, dataset) = (rows_per_chunk(group), open.rows.dataset());
    let chunk_bytes = rows.checked_mul(row_bytes(open)).filter(|&it| it <= MAX_CHUNK_BYTES)?;
    let is_small = chunk_bytes < TINY_CHUNK && dataset.bytes() <= bytes(group.iter().copied()) / 8;
    if is_small && rows < open.rows.len() && !can_grow {
        return Some("CONTI".to_owned());
    }
    let lengths = std::iter::once(rows).chain(dataset.shape().iter().skip(1).copied());
    let lengths: Vec<_> = lengths.map(|length| length.to_string()).collect();
    Some(format!("CHUNK={}", lengths.join("x")))
}

/// Returns how many rows a chunk of the datasets of a group is to have: a power of two, which divides
/// every larger one, and at most all rows.
fn rows_per_chunk(group: &[&OpenDataset]) -> u64 {
    let largest = group.iter().max_by_key(|open| open.rows.dataset().bytes());
    let row_bytes = largest.map_or(1, |open| row_bytes(open));
    let rows = group.first().map_or(1, |open| open.rows.len());
    1 << (CHUNK_BYTES / row_bytes).clamp(1, rows.max(1)).ilog2()
}

/// Returns the bytes of a row in the file.
fn row_bytes(open: &OpenDataset) -> u64 {
    (open.rows.dataset().bytes() / open.rows.len().max(1)).max(1)
}

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-+=:,@%".contains(c);
    let word = if word.starts_with('-') { format!("./{word}") } else { word.to_owned() };
    if word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
