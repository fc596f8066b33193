//! What will be slow, and why: one function a rule, each with the number that it is decided by.

use std::path::Path;

use serde::Serialize;
use vramfit_core::Bytes;

use super::plan::{band_rows, groups};
use super::{Entry, Open};
use crate::read::Storage;

/// Below this a read from a disk costs as much as one of this size (`docs/concepts/row-order.md`).
const TINY_CHUNK: u64 = 16 << 10;
/// Above this a pool holds too few pieces to mix them well in any usual budget.
const LARGE_BAND: u64 = 8 << 20;

/// Something to know about a file before a run is begun.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// A stable name.
    pub id: &'static str,
    /// The dataset that it is about; several have commas between them.
    pub dataset: String,
    /// What it is, with the number.
    pub message: String,
    /// One thing to do.
    pub cure: String,
    /// A command that does it, to be pasted into a shell.
    pub command: Option<String>,
}

/// Returns the command that cures a finding by writing the file anew, where that does.
pub(super) fn command(file: &Path, id: &str) -> Option<String> {
    let options = match id {
        "large-chunks" | "divided-rows" | "tiny-chunks" | "unequal-chunks" => "",
        "idle-compression" => " --compression none",
        _ => return None,
    };
    // A path that is no text cannot be pasted.
    let (old, new) = (file.to_str()?, file.with_extension("repacked.h5"));
    let (old, new) = (quoted(old), quoted(new.to_str()?));
    Some(format!("vramfit data repack {old} {new}{options}"))
}

/// Returns a path as a shell takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-+=:,@%".contains(c);
    let path = match path.starts_with('-') {
        true => format!("./{path}"),
        false => path.to_owned(),
    };
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Goes through the rules that need no row.
pub(super) fn findings(entries: &[Entry], readable: &[Open]) -> Vec<Finding> {
    let rules = [
        large_band,
        divided_rows,
        tiny_chunks,
        idle_compression,
        wide_numbers,
    ];
    let mut findings = Vec::new();
    for open in readable {
        let entry = &entries[open.entry];
        findings.extend(rules.iter().filter_map(|rule| rule(entry, open)));
    }
    findings.extend(unequal_chunks(entries, readable));
    findings
}

/// To read one row, all chunks that share it are decoded: too much of the file for one row.
fn large_band(entry: &Entry, open: &Open) -> Option<Finding> {
    let Storage::Chunked { grid, .. } = open.rows.dataset().storage() else {
        return None;
    };
    let rows = grid.chunk().first().copied()?.min(open.rows.len());
    let across: u64 = grid.lengths().iter().skip(1).product();
    let bytes = Bytes(grid.chunk_bytes().saturating_mul(across));
    if bytes.0 <= LARGE_BAND || rows <= 1 {
        return None;
    }
    let what = match (grid.count(), across) {
        (1, _) => format!("one chunk holds all {rows} rows, so each row costs decoding {bytes}"),
        (_, 1) => format!("chunks of {rows} rows have {bytes} each, all of which one row costs"),
        _ => format!(
            "each row is divided among {across} chunks, which share {rows} rows: one row costs \
             decoding {bytes}"
        ),
    };
    Some(Finding {
        id: "large-chunks",
        dataset: entry.path.clone(),
        message: what,
        cure: "rewrite it in smaller chunks of whole rows".to_owned(),
        command: None,
    })
}

/// A row in many chunks: a batch needs all of them, and threads cannot share the work by rows.
fn divided_rows(entry: &Entry, open: &Open) -> Option<Finding> {
    let Storage::Chunked { grid, .. } = open.rows.dataset().storage() else {
        return None;
    };
    let across: u64 = grid.lengths().iter().skip(1).product();
    if across < 8 || large_band(entry, open).is_some() {
        return None;
    }
    Some(Finding {
        id: "divided-rows",
        dataset: entry.path.clone(),
        message: format!(
            "each row is divided among {across} chunks, all of which it takes to read it"
        ),
        cure: "rewrite it in chunks of whole rows".to_owned(),
        command: None,
    })
}

fn tiny_chunks(entry: &Entry, open: &Open) -> Option<Finding> {
    let Storage::Chunked { grid, table, .. } = open.rows.dataset().storage() else {
        return None;
    };
    if grid.chunk_bytes() >= TINY_CHUNK || table.len() <= 256 {
        return None;
    }
    Some(Finding {
        id: "tiny-chunks",
        dataset: entry.path.clone(),
        message: format!(
            "{} chunks of only {} each: every one is found and read by itself",
            table.len(),
            Bytes(grid.chunk_bytes())
        ),
        cure: "rewrite it in chunks of about 256 KiB".to_owned(),
        command: None,
    })
}

fn idle_compression(entry: &Entry, open: &Open) -> Option<Finding> {
    let facts = entry.dataset.as_ref()?;
    let (memory, stored) = (open.rows.dataset().bytes(), facts.stored_bytes?.0);
    let compresses = facts
        .filters
        .iter()
        .any(|name| !matches!(name.as_str(), "shuffle" | "fletcher32"));
    if !compresses
        || facts.chunks_unwritten != Some(0)
        || memory < 1 << 20
        || stored < memory / 20 * 19
    {
        return None;
    }
    Some(Finding {
        id: "idle-compression",
        dataset: entry.path.clone(),
        message: format!(
            "compression saves nothing ({} stored for {} of numbers), and is undone in every epoch",
            Bytes(stored),
            Bytes(memory)
        ),
        cure: "rewrite it without compression".to_owned(),
        command: None,
    })
}

fn wide_numbers(entry: &Entry, open: &Open) -> Option<Finding> {
    let name = open.rows.scalar().name();
    if !matches!(name, "float64" | "int64" | "uint64") || open.rows.dataset().bytes() < 1 << 20 {
        return None;
    }
    let half = Bytes(open.rows.dataset().bytes() / 2);
    Some(Finding {
        id: "wide-numbers",
        dataset: entry.path.clone(),
        message: format!(
            "JAX makes 32 bits of {name} unless x64 is enabled: {half} are read for nothing"
        ),
        cure: "store 32 bits where they are enough".to_owned(),
        command: None,
    })
}

/// Datasets that are read together, with chunks whose borders do not meet.
fn unequal_chunks(entries: &[Entry], readable: &[Open]) -> Option<Finding> {
    let groups = groups(readable);
    let chunked: Vec<(&Open, u64)> = (groups.first()?.iter())
        .filter_map(|open| Some((*open, band_rows(open.rows.dataset())?.min(open.rows.len()))))
        .collect();
    let most = chunked.iter().map(|(_, rows)| *rows).max()?;
    if chunked.iter().all(|(_, rows)| most % rows == 0) {
        return None;
    }
    let told = |(open, rows): &(&Open, u64)| format!("`{}` {rows}", entries[open.entry].path);
    let list: Vec<String> = chunked.iter().map(told).collect();
    let paths: Vec<&str> = chunked
        .iter()
        .map(|(open, _)| entries[open.entry].path.as_str())
        .collect();
    Some(Finding {
        id: "unequal-chunks",
        dataset: paths.join(","),
        message: format!(
            "rows in a chunk do not divide each other ({}), so that chunks are decoded more than once",
            list.join(", ")
        ),
        cure: "rewrite them with equally many rows in a chunk".to_owned(),
        command: None,
    })
}
