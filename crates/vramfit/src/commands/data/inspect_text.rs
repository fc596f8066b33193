//! A survey of a file as text: the tree, what it costs, what to know.

use std::path::Path;

use vramfit_data::inspect::{Entry, Facts, Finding, Plan, Speed, Statistics, Survey};

use super::inspect_rows::write_rows;
use super::words::{grouped, shown};

/// More attributes than are named of one object.
const MAX_ATTRIBUTES: usize = 6;
/// More labels than are listed with their counts.
const MAX_LABELS: usize = 12;

/// Tells a survey.
pub(super) fn told(file: &Path, survey: &Survey, seed: u64) -> String {
    let mut text = format!(
        "{}: {} on disk, {}\n",
        shown(&file.display().to_string()),
        survey.file_bytes,
        match datasets(survey) {
            0 => "no datasets".to_owned(),
            1 => format!("1 dataset, {} in memory", survey.memory_bytes),
            count => format!("{count} datasets, {} in memory", survey.memory_bytes),
        }
    );
    tree(&mut text, &survey.entries);
    write_rows(&mut text, &survey.entries);
    samples(&mut text, &survey.entries, seed);
    if let Some(plan) = &survey.streaming {
        cost(&mut text, survey, plan);
    }
    speeds(&mut text, &survey.measured);
    for finding in &survey.findings {
        tell(&mut text, finding);
    }
    text
}

fn datasets(survey: &Survey) -> usize {
    let entries = survey.entries.iter();
    entries.filter(|entry| entry.dataset.is_some()).count()
}

/// Draws the tree: branch and name, then a column each for type, sizes and storage.
fn tree(text: &mut String, entries: &[Entry]) {
    let branches = branches(entries);
    let mut lines: Vec<[String; 4]> = Vec::new();
    let mut below: Vec<Vec<String>> = Vec::new();
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
            notes.push(format!(
                "{indent}  ! cannot be read: {}",
                shown(&problem.message)
            ));
            let hint = problem.hint.iter();
            notes.extend(hint.map(|hint| format!("{indent}    {}", shown(hint))));
        }
        if !entry.attributes.is_empty() {
            notes.push(format!("{indent}  @ {}", attributes(&entry.attributes)));
        }
        below.push(notes);
    }
    // A single long name must not push the columns of all others off the screen.
    let width = |column: usize| {
        let lengths = lines.iter().filter(|line| !line[1].is_empty());
        let lengths = lengths.map(|line| line[column].chars().count());
        lengths.filter(|&length| length <= 48).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    for (line, notes) in lines.iter().zip(below) {
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

/// Returns for each entry what stands before its name, and before a line below it.
///
/// From the end to the beginning: whether a sibling follows is known when an entry is reached.
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
    if let Some(to) = &entry.leads_to {
        return [format!("-> {}", shown(to)), String::new(), String::new()];
    }
    let Some(facts) = &entry.dataset else {
        return Default::default();
    };
    let shape: Vec<String> = facts.shape.iter().map(|&n| grouped(n)).collect();
    let sizes = match (facts.memory_bytes, facts.stored_bytes) {
        (Some(memory), Some(stored)) if memory == stored => format!("{memory}"),
        (Some(memory), Some(stored)) => format!("{memory} ({stored} on disk)"),
        (Some(memory), None) => format!("{memory}"),
        (None, _) => "size unknown".to_owned(),
    };
    let kind = match shape.is_empty() {
        true => format!("{}, a single value", facts.dtype),
        false => format!("{} [{}]", facts.dtype, shape.join(", ")),
    };
    [kind, sizes, storage(facts)]
}

fn storage(facts: &Facts) -> String {
    let Some(chunk) = &facts.chunk else {
        return facts.layout.to_owned();
    };
    // Chunks of whole rows are what one wants; others are told in full.
    let whole = chunk
        .iter()
        .zip(&facts.shape)
        .skip(1)
        .all(|(chunk, length)| chunk >= length);
    let each = facts.chunk_bytes.unwrap_or_default();
    let mut text = match (whole, chunk.first()) {
        (true, Some(rows)) => format!("chunks of {} rows, {each}", grouped(*rows)),
        _ => {
            let lengths: Vec<String> = chunk.iter().map(|&n| grouped(n)).collect();
            format!("chunks of [{}], {each}", lengths.join(", "))
        }
    };
    if !facts.filters.is_empty() {
        text.push_str(&format!("; {}", facts.filters.join(" + ")));
    }
    if let Some(unwritten @ 1..) = facts.chunks_unwritten {
        let all = facts.chunks.unwrap_or_default();
        text.push_str(&format!(
            "; {} of {} never written",
            grouped(unwritten),
            grouped(all)
        ));
    }
    text
}

fn attributes(names: &[String]) -> String {
    let named: Vec<String> = names
        .iter()
        .take(MAX_ATTRIBUTES)
        .map(|name| shown(name))
        .collect();
    match names.len().saturating_sub(MAX_ATTRIBUTES) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn samples(text: &mut String, entries: &[Entry], seed: u64) {
    let sampled: Vec<(&str, &Statistics)> = (entries.iter())
        .filter_map(|entry| {
            Some((
                entry.path.as_str(),
                entry.dataset.as_ref()?.sample.as_ref()?,
            ))
        })
        .collect();
    if sampled.is_empty() {
        return;
    }
    text.push_str(&format!(
        "\nRows that were sampled, evenly spread (seed {seed}):\n"
    ));
    let width = sampled
        .iter()
        .map(|(path, _)| path.chars().count())
        .max()
        .unwrap_or(0);
    for (path, statistics) in sampled {
        let mut parts = vec![format!("{} rows", grouped(statistics.rows))];
        if let (Some(min), Some(max), Some(mean)) =
            (statistics.min, statistics.max, statistics.mean)
        {
            parts.push(format!(
                "{} to {}, mean {}",
                number(min),
                number(max),
                number(mean)
            ));
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
        if let Some(labels) = statistics
            .labels
            .as_ref()
            .filter(|labels| labels.len() <= MAX_LABELS)
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

/// Writes a number with as many digits as say something.
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

fn cost(text: &mut String, survey: &Survey, plan: &Plan) {
    let paths: Vec<String> = plan.datasets.iter().map(|path| shown(path)).collect();
    text.push_str(&format!(
        "\nLoaded as a whole, the arrays take {} of memory, before any copy is made.\n",
        survey.memory_bytes
    ));
    let (paths, rows) = (paths.join(", "), grouped(plan.rows));
    let budget = plan.budget_bytes;
    match plan.engine {
        Some(engine) => {
            let small = plan.memory_bytes <= budget;
            let remark = if small {
                ", which is more than they are"
            } else {
                ""
            };
            text.push_str(&format!(
                "Streamed, {paths} ({rows} rows) take {budget} at most{remark}.\n\
                 Order when shuffled: {engine}; {}.\n",
                plan.reason
            ));
        }
        None => text.push_str(&format!(
            "{paths} ({rows} rows) cannot be streamed in {budget}: {}.\n",
            plan.reason
        )),
    }
    if let Some(warning) = &plan.warning {
        text.push_str(&format!("  ! {warning}\n"));
    }
}

fn speeds(text: &mut String, measured: &[Speed]) {
    if measured.is_empty() {
        return;
    }
    text.push_str(
        "\nRead just now by one thread, from the disk or what the system had of it in memory:\n",
    );
    for speed in measured {
        let way = match speed.way {
            "blocks" => format!("blocks of {} rows, anywhere", grouped(speed.rows_at_once)),
            "rows" => "single rows, anywhere".to_owned(),
            _ => "one row after the other".to_owned(),
        };
        let rate = speed.megabytes_per_second();
        text.push_str(&format!(
            "  {way:32}  {rate:>8.1} MB/s ({} read)\n",
            speed.bytes
        ));
    }
}

fn tell(text: &mut String, finding: &Finding) {
    text.push_str(&format!(
        "\n{} [{}]: {}\n  {}",
        shown(&finding.dataset.replace(',', ", ")),
        finding.id,
        finding.message,
        finding.cure
    ));
    // On a line of its own, so that it is pasted and nothing else.
    match &finding.command {
        Some(command) => text.push_str(&format!(":\n  {}\n", shown(command))),
        None => text.push('\n'),
    }
}
