//! The report of `vramfit data inspect` as text: the tree, memory, findings.

use std::collections::HashMap;
use std::path::Path;

use vramfit_data::inspect::{
    AlikeMembers, DatasetInfo, Entry, FileReport, Finding, ReadSpeed, Statistics, StreamingPlan,
};

use super::inspect_rows::write_rows;
use super::numbers::{describe_chunks, grouped, grouped_list, shown};

/// Attributes that are listed per object.
const MAX_ATTRIBUTES: usize = 6;
/// The kind of an entry that stands for several.
const ALIKE: &str = "alike";
/// Labels that are listed with their counts.
const MAX_LABELS: usize = 12;

pub(super) fn render_report(file: &Path, report: &FileReport, seed: u64, is_full: bool) -> String {
    let mut text = format!(
        "{}: {} on disk, {}\n",
        shown(&file.display().to_string()),
        report.file_bytes,
        match datasets(report) {
            0 => "no datasets".to_owned(),
            1 => format!("1 dataset, {} in memory", report.memory_bytes),
            count => format!("{count} datasets, {} in memory", report.memory_bytes),
        }
    );
    match is_full {
        true => write_tree(&mut text, &report.entries, &[]),
        false => write_tree(&mut text, &report.entries, &report.alike),
    }
    write_rows(&mut text, &report.entries);
    write_samples(&mut text, &report.entries, seed);
    if let Some(plan) = &report.streaming {
        write_cost(&mut text, report, plan);
    }
    write_speeds(&mut text, &report.measured);
    for finding in &report.findings {
        write_finding(&mut text, finding);
    }
    if let Some(command) = &report.h5repack_command {
        // On a line of its own, so that it can be copied.
        let command = shown(command);
        text.push_str(&format!(
            "\nThis rewrites the file so that rows are read well:\n  {command}\n"
        ));
    }
    text
}

fn datasets(report: &FileReport) -> usize {
    let entries = report.entries.iter();
    entries.filter(|entry| entry.dataset.is_some()).count()
}

/// Draws the tree: branch and name, then columns for type, size and storage.
fn write_tree(text: &mut String, entries: &[Entry], alike: &[AlikeMembers]) {
    let entries = &fold_alike(entries, alike);
    let branches = branches(entries);
    let mut lines: Vec<[String; 4]> = Vec::new();
    let mut notes_below: Vec<Vec<String>> = Vec::new();
    for (entry, (branch, indent)) in entries.iter().zip(&branches) {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        let name = match entry.kind {
            "group" => format!("{branch}{}/", shown(name)),
            _ => format!("{branch}{}", shown(name)),
        };
        let [kind, sizes, storage] = columns(entry);
        lines.push([name, kind, sizes, storage]);
        let mut notes = Vec::new();
        if let Some(problem) = &entry.problem {
            notes.push(format!("{indent}  ! cannot be read: {}", shown(&problem.message)));
            let hint = problem.hint.iter();
            notes.extend(hint.map(|hint| format!("{indent}    {}", shown(hint))));
        }
        if !entry.attributes.is_empty() {
            notes.push(format!("{indent}  @ {}", attributes(&entry.attributes)));
        }
        notes_below.push(notes);
    }
    // A single long name must not push the columns of all others off the screen.
    let width = |column: usize| {
        let lengths = lines.iter().filter(|line| !line[1].is_empty());
        let lengths = lengths.map(|line| line[column].chars().count());
        lengths.filter(|&length| length <= 48).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    for (line, notes) in lines.iter().zip(notes_below) {
        let row = format!(
            "{:a$}  {:b$}  {:c$}  {}",
            line[0],
            line[1],
            line[2],
            line[3],
            a = widths[0],
            b = widths[1],
            c = widths[2]
        );
        text.push_str(row.trim_end());
        text.push('\n');
        for note in notes {
            text.push_str(&note);
            text.push('\n');
        }
    }
}

/// Returns the entries without members that are alike, and one that stands for these after the first of them.
fn fold_alike(entries: &[Entry], alike: &[AlikeMembers]) -> Vec<Entry> {
    let mut is_hidden = vec![false; entries.len()];
    let mut notes: HashMap<usize, Vec<&AlikeMembers>> = HashMap::new();
    for members in alike {
        members.hidden.iter().for_each(|hidden| is_hidden[hidden.clone()].fill(true));
        notes.entry(members.shown.end).or_default().push(members);
    }
    let mut folded = Vec::new();
    for number in 0..=entries.len() {
        // The innermost group ends first.
        for members in notes.get(&number).into_iter().flatten().rev() {
            if !is_hidden[members.shown.start] {
                folded.push(stand_for(members));
            }
        }
        if number < entries.len() && !is_hidden[number] {
            folded.push(entries[number].clone());
        }
    }
    folded
}

/// Returns an entry that stands for members that are alike, but the first.
fn stand_for(members: &AlikeMembers) -> Entry {
    let parent = members.pattern.rsplit_once('/').map_or("", |(parent, _)| parent);
    let count = grouped(members.count as u64 - 1);
    let rows = match members.rows {
        None => String::new(),
        Some((least, most)) if least == most => format!(" ({} rows each)", grouped(least)),
        Some((least, most)) => format!(" ({} to {} rows)", grouped(least), grouped(most)),
    };
    Entry {
        path: format!("{parent}/... {}", members.last),
        kind: ALIKE,
        attributes: Vec::new(),
        target: Some(format!("{count} more {}s like `{}`{rows}", members.kind, members.first)),
        dataset: None,
        problem: None,
    }
}

/// Returns the prefix of each entry's name, and of the lines below it.
///
/// Entries are visited from the end, so that it is known whether a sibling follows.
fn branches(entries: &[Entry]) -> Vec<(String, String)> {
    let depth = |entry: &Entry| match entry.path.as_str() {
        "/" => 0,
        path => path.matches('/').count(),
    };
    let mut follows: Vec<bool> = Vec::new();
    let mut branches: Vec<_> = (entries.iter().rev())
        .map(|entry| {
            let depth = depth(entry);
            follows.resize(depth + 1, false);
            let above: String = (follows.iter().take(depth).skip(1))
                .map(|&follows| if follows { "|  " } else { "   " })
                .collect();
            let (branch, indent) = match (depth, follows[depth]) {
                (0, _) => ("", ""),
                (_, true) => ("|- ", "|  "),
                (_, false) => ("`- ", "   "),
            };
            follows[depth] = true;
            (format!("{above}{branch}"), format!("{above}{indent}"))
        })
        .collect();
    branches.reverse();
    branches
}

fn columns(entry: &Entry) -> [String; 3] {
    if let Some(to) = entry.target.as_ref().filter(|_| entry.kind == ALIKE) {
        return [shown(to), String::new(), String::new()];
    }
    if let Some(to) = &entry.target {
        return [format!("-> {}", shown(to)), String::new(), String::new()];
    }
    let Some(info) = &entry.dataset else {
        return Default::default();
    };
    let sizes = match (info.memory_bytes, info.stored_bytes) {
        (Some(memory), Some(stored)) if memory != stored => format!("{memory} ({stored} on disk)"),
        (Some(memory), _) => memory.to_string(),
        (None, _) => "size unknown".to_owned(),
    };
    let kind = match &info.shape[..] {
        [] => format!("{}, scalar", info.dtype),
        shape => format!("{} [{}]", info.dtype, grouped_list(shape)),
    };
    [kind, sizes, storage(info)]
}

fn storage(info: &DatasetInfo) -> String {
    let Some(chunk) = &info.chunk else {
        return info.layout.to_owned();
    };
    let each = info.chunk_bytes.unwrap_or_default();
    let mut text = format!("{}, {each}", describe_chunks(chunk, &info.shape));
    if !info.filters.is_empty() {
        text.push_str(&format!("; {}", info.filters.join(" + ")));
    }
    if let Some(unwritten @ 1..) = info.chunks_unwritten {
        let all = info.chunks.unwrap_or_default();
        text.push_str(&format!("; {} of {} not written", grouped(unwritten), grouped(all)));
    }
    text
}

fn attributes(names: &[String]) -> String {
    let named: Vec<String> = names.iter().take(MAX_ATTRIBUTES).map(|name| shown(name)).collect();
    match names.len().saturating_sub(MAX_ATTRIBUTES) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn write_samples(text: &mut String, entries: &[Entry], seed: u64) {
    let sampled: Vec<(&str, &Statistics)> = (entries.iter())
        .filter_map(|entry| Some((entry.path.as_str(), entry.dataset.as_ref()?.sample.as_ref()?)))
        .collect();
    if sampled.is_empty() {
        return;
    }
    text.push_str(&format!("\nSampled rows, evenly spread (seed {seed}):\n"));
    let width = sampled.iter().map(|(path, _)| path.chars().count()).max().unwrap_or(0);
    for (path, statistics) in sampled {
        let mut parts = vec![format!("{} rows", grouped(statistics.rows))];
        if let (Some(min), Some(max), Some(mean)) =
            (statistics.min, statistics.max, statistics.mean)
        {
            parts.push(format!("min {}, max {}, mean {}", number(min), number(max), number(mean)));
        }
        for (count, what) in [(statistics.nan, "NaN"), (statistics.infinite, "infinite")] {
            if count > 0 {
                parts.push(format!(
                    "{} of {} are {what}",
                    grouped(count),
                    grouped(statistics.values)
                ));
            }
        }
        if let Some(labels) = statistics.labels.as_ref().filter(|labels| labels.len() <= MAX_LABELS)
        {
            let rows = statistics.rows as f64 / 100.0;
            let counts: Vec<String> = (labels.iter())
                .map(|label| format!("{}: {:.0} %", label.value, label.rows as f64 / rows))
                .collect();
            parts.push(counts.join(", "));
        }
        text.push_str(&format!("  {:width$}  {}\n", shown(path), parts.join("; ")));
    }
}

/// Formats a number with as many digits as are useful.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        format!("{value}")
    } else if (1e-3..1e6).contains(&size) {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

fn write_cost(text: &mut String, report: &FileReport, plan: &StreamingPlan) {
    let paths: Vec<String> = plan.datasets.iter().map(|path| shown(path)).collect();
    text.push_str(&format!(
        "\nLoaded as a whole, the arrays need {} of memory, not counting copies.\n",
        report.memory_bytes
    ));
    let (paths, rows) = (paths.join(", "), grouped(plan.rows));
    let budget = plan.budget_bytes;
    match plan.engine {
        Some(engine) => {
            let remark = if plan.memory_bytes <= budget { ", more than their size" } else { "" };
            text.push_str(&format!(
                "Streamed, {paths} ({rows} rows) need at most {budget}{remark}.\n\
                 Shuffle engine: {engine}; {}.\n",
                plan.reason
            ));
        }
        None => text.push_str(&format!(
            "{paths} ({rows} rows) cannot be streamed with {budget}: {}.\n",
            plan.reason
        )),
    }
    if let Some(warning) = &plan.warning {
        text.push_str(&format!("  ! {warning}\n"));
    }
}

fn write_speeds(text: &mut String, measured: &[ReadSpeed]) {
    if measured.is_empty() {
        return;
    }
    text.push_str("\nRead speed measured with one thread, from disk or page cache:\n");
    for speed in measured {
        let pattern = match speed.pattern {
            "blocks" => format!("random blocks of {} rows", grouped(speed.rows_per_read)),
            "rows" => "random single rows".to_owned(),
            _ => "sequential rows".to_owned(),
        };
        let rate = speed.megabytes_per_second();
        text.push_str(&format!("  {pattern:32}  {rate:>8.1} MB/s ({} read)\n", speed.bytes));
    }
}

fn write_finding(text: &mut String, finding: &Finding) {
    text.push_str(&format!(
        "\n{} [{}]: {}\n  {}\n",
        shown(&finding.dataset.replace(',', ", ")),
        finding.id,
        finding.message,
        finding.fix
    ));
}
