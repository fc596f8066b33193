//! The report of why a program ran out of memory.

use super::{
    Action, AddressMap, Content, Metric, Outcome, Region, Report, Section, Segment, Table, Value,
    json,
};
use crate::allocator::ChunkTag;
use crate::analysis::facts;
use crate::bytes::Bytes;
use crate::explain::{
    Basis, Cause, CauseId, Confidence, Evidence, Explanation, ListedBuffer, LoggedRegion, Verdict,
};
use crate::settings::MAX_FRACTION;

/// Other causes that are named without `--full`.
const MAX_OTHER_CAUSES: usize = 3;

/// `quotes_log`: whether the evidence for the likeliest cause is shown.
pub(super) fn report(explanation: &Explanation, quotes_log: bool) -> Report {
    let (first, others) = match explanation.causes.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, &[][..]),
    };
    let mut sections: Vec<Option<Section>> = Vec::new();
    if let Some(first) = first.filter(|_| quotes_log) {
        sections.push(evidence("evidence", &first.evidence));
    }
    sections.push(first.and_then(|first| largest_buffers(explanation, first)));
    sections.push(what_to_do(explanation, first));
    sections.push(other_causes(others));
    sections.push(Section::list("notes", explanation.notes.clone()));
    sections.push(figures(explanation));
    sections.push(largest_fit(explanation));
    sections.push(need(explanation));
    sections.push(buffers(explanation));
    let holders = facts::array_holders::section(&explanation.array_holders);
    sections.push(holders.map(Section::into_detail));
    for cause in others {
        let title = format!("evidence for: {}", cause.title);
        sections.push(evidence(&title, &cause.evidence).map(Section::into_detail));
    }
    sections.push(bins(explanation));
    sections.push(memory_map(explanation));
    Report {
        title: "vramfit explain".to_owned(),
        outcome: match explanation.verdict() {
            Verdict::Memory => Outcome::Failure,
            Verdict::NotMemory => Outcome::Neutral,
            Verdict::Unrecognized => Outcome::Unknown,
        },
        headline: explanation.headline(),
        cause: first.map(|first| sentences(explanation, first)).unwrap_or_default(),
        sections: sections.into_iter().flatten().collect(),
        metadata: metadata(explanation),
        json: json::explain(explanation),
        ..Report::default()
    }
}

fn sentences(explanation: &Explanation, cause: &Cause) -> Vec<String> {
    let mut sentences = vec![cause.summary.clone()];
    let in_use_bytes = explanation.figures.in_use_bytes;
    sentences.extend(in_use_bytes.and_then(|in_use_bytes| {
        facts::array_holders::sentence(&explanation.array_holders, in_use_bytes)
    }));
    sentences.push(format!("ruled out if {}", cause.falsified_by));
    sentences
}

fn evidence(title: &str, evidence: &[Evidence]) -> Option<Section> {
    const MAX_QUOTE_CHARACTERS: usize = 140;
    let lines = evidence.iter().map(|line| {
        let source = line.source.as_ref().map_or(String::new(), |source| format!("{source}:"));
        let process =
            line.process.as_ref().map_or(String::new(), |process| format!(" [{process}]"));
        let mut text: String = line.text.chars().take(MAX_QUOTE_CHARACTERS).collect();
        if text.len() < line.text.len() {
            text.push_str(" ...");
        }
        format!("{source}{}{process}: {text}", line.line)
    });
    Section::list(title, lines.collect())
}

fn what_to_do(explanation: &Explanation, first: Option<&Cause>) -> Option<Section> {
    let actions = explanation.remedies.iter().map(|remedy| {
        let bytes = remedy.bytes.map(|bytes| format!("{} ({})", Bytes(bytes), basis(remedy.basis)));
        let outcome = Some(remedy.outcome.clone()).filter(|outcome| !outcome.is_empty());
        let effect: Vec<String> = bytes.into_iter().chain(outcome).collect();
        let colon = if effect.is_empty() { "" } else { ": " };
        Action {
            text: format!("{}{colon}{}", remedy.text, effect.join(", ")),
            command: remedy.command.clone(),
        }
    });
    first?;
    let actions: Vec<Action> = actions.collect();
    (!actions.is_empty()).then(|| Section::new("what to do", Content::Actions(actions)))
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Dryrun => "measured in a dry run",
        Basis::Replay => "by replay",
        Basis::Log => "by the log",
        Basis::None => "not measured",
    }
}

fn other_causes(others: &[Cause]) -> Option<Section> {
    let shown = others
        .iter()
        .take(MAX_OTHER_CAUSES)
        .map(|cause| format!("{} ({}): {}", cause.title, cause.confidence.label(), cause.summary));
    // Beside a certain cause there is only what is certain, too.
    let title = match others.first().map(|cause| cause.confidence) {
        Some(Confidence::Sure) => "also certain",
        _ => "other possible causes",
    };
    Section::list(title, shown.collect())
}

fn figures(explanation: &Explanation) -> Option<Section> {
    let figures = &explanation.figures;
    let mut metrics = Vec::new();
    let mut add = |label: &str, bytes: Option<u64>, note: &str| {
        metrics.extend(bytes.map(|bytes| Metric::new(label, Value::Bytes(bytes), note)));
    };
    let exact = if figures.requested_is_exact { "" } else { "rounded in the log" };
    add("requested", figures.requested_bytes, exact);
    let needed = figures.needed_bytes.filter(|bytes| figures.requested_bytes < Some(*bytes));
    let in_use_at = match figures.in_use_is_at_end {
        true => "when the program ended",
        false => "at the failure",
    };
    let needed_note = match figures.needed_is_least {
        true => "at least, by the log",
        false if figures.needed_is_of_program => "by one program alone, as XLA compiled it",
        false if figures.needed_is_most => "at most: peak in use, and the request",
        false => "at the failure",
    };
    add("needed", needed, needed_note);
    add("in use", figures.in_use_bytes, in_use_at);
    add("peak in use", figures.peak_in_use_bytes, "");
    add("limit of the pool", figures.limit_bytes, "");
    add("pool", figures.pool_bytes, "obtained from the driver");
    add("free in the pool", figures.free_bytes, "total");
    add("largest free block", figures.largest_free_block_bytes, "that the request could have had");
    add("GPU memory", figures.gpu_total_bytes, figures.gpu.unwrap_or("total"));
    add("GPU memory free", figures.gpu_free_bytes, "by the driver, at the failure");
    (!metrics.is_empty()).then(|| Section::new("figures", Content::Metrics(metrics)))
}

fn largest_fit(explanation: &Explanation) -> Option<Section> {
    let fits = &explanation.figures.fits;
    fits.now?;
    let raised = format!("fresh pool with {} of the GPU", MAX_FRACTION);
    let rows = [
        ("the pool as it was", fits.now),
        ("by taking more from the driver", fits.by_growing.filter(|bytes| *bytes > 0)),
        ("all free memory in one piece", fits.without_fragmentation),
        ("fresh pool, preallocated", fits.preallocated),
        ("fresh pool, growing", fits.growing),
        ("fresh pool, partitioned (JAX 0.11 and later)", fits.partitioned),
        (raised.as_str(), fits.raised_fraction),
    ];
    let rows = rows.into_iter().filter_map(|(label, bytes)| {
        let bytes = bytes?;
        Some(vec![Value::Text(label.to_owned()), Value::Bytes(bytes), Value::Count(bytes)])
    });
    let note = match fits.is_exact {
        true => "fresh pools hold the same live blocks, placed in the order of their addresses",
        false => "rounded in the log, which does not list every block",
    };
    let table = Table::new(&["largest request that fits", "", "bytes"], rows.collect(), note);
    Some(Section::detail("", Content::Table(table)))
}

fn need(explanation: &Explanation) -> Option<Section> {
    let need = explanation.figures.need?;
    let metric = |label, bytes, note| Metric::new(label, Value::Bytes(bytes), note);
    let metrics = vec![
        metric("arguments", need.argument_bytes, ""),
        metric("outputs", need.live_out_bytes, "donated arguments are among them"),
        metric("temporaries", need.temp_bytes, ""),
        metric("total", need.total_bytes, ""),
    ];
    Some(Section::detail("what the program needs, by XLA", Content::Metrics(metrics)))
}

/// The largest buffers in a line each, where the program is too large for its pool.
fn largest_buffers(explanation: &Explanation, first: &Cause) -> Option<Section> {
    const MAX_BUFFERS: usize = 3;
    let is_of_program = matches!(first.id, CauseId::PoolTooSmall | CauseId::RequestLargerThanGpu);
    let mut buffers: Vec<&ListedBuffer> = explanation.buffers.iter().collect();
    buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
    let lines = buffers.into_iter().take(MAX_BUFFERS).map(|buffer| {
        let site = match buffer.site.as_str() {
            "" => String::new(),
            site => format!("({site})"),
        };
        let size = Bytes(buffer.bytes).to_string();
        // One line each in 80 columns, behind the mark of the list; the line of the program matters most.
        const MAX_CHARACTERS: usize = 76;
        let others = size.len() + buffer.shape.len() + site.len() + 3;
        let maker = maker(buffer);
        let maker = maker.chars().take(MAX_CHARACTERS.saturating_sub(others));
        let words = [size, buffer.shape.clone(), maker.collect(), site];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ")
    });
    is_of_program
        .then(|| Section::list("largest buffers of the program", lines.collect()))
        .flatten()
}

/// Returns what makes a buffer: the last scopes of a name say what it is; the first are the same for all.
fn maker(buffer: &ListedBuffer) -> String {
    if buffer.is_argument {
        return "argument".to_owned();
    }
    let scopes: Vec<&str> = buffer.operation.rsplit('/').take(2).collect();
    scopes.into_iter().rev().collect::<Vec<_>>().join("/")
}

fn buffers(explanation: &Explanation) -> Option<Section> {
    let rows: Vec<Vec<Value>> = explanation
        .buffers
        .iter()
        .map(|buffer| {
            vec![
                Value::Text(buffer.shape.clone()),
                Value::Bytes(buffer.bytes),
                Value::Text(maker(buffer)),
                Value::Text(buffer.site.clone()),
            ]
        })
        .collect();
    let table = Table::new(&["largest buffers", "size", "made by", "line"], rows, "");
    (!explanation.buffers.is_empty()).then(|| Section::detail("", Content::Table(table)))
}

fn bins(explanation: &Explanation) -> Option<Section> {
    let bins = explanation.figures.bins.iter().filter(|bin| bin.chunks > 0);
    let rows: Vec<Vec<Value>> = bins
        .map(|bin| {
            vec![
                Value::Text(Bytes(bin.min_bytes).to_string()),
                Value::Count(bin.chunks_in_use),
                Value::Count(bin.chunks - bin.chunks_in_use.min(bin.chunks)),
                Value::Bytes(bin.bytes_in_use),
                Value::Bytes(bin.bytes.saturating_sub(bin.bytes_in_use)),
            ]
        })
        .collect();
    let columns = ["chunks from", "in use", "free", "bytes in use", "bytes free"];
    let has_rows = !rows.is_empty();
    let table = Table::new(&columns, rows, "by size; rounded as in the log");
    has_rows.then(|| Section::detail("chunks of the pool", Content::Table(table)))
}

fn memory_map(explanation: &Explanation) -> Option<Section> {
    let regions = &explanation.regions;
    let map = AddressMap {
        caption: String::new(),
        regions: regions.iter().map(region).collect(),
        failed_request_bytes: explanation.figures.requested_bytes,
    };
    (!regions.is_empty())
        .then(|| Section::detail("memory map at the failure", Content::AddressMap(map)))
}

fn region(region: &LoggedRegion) -> Region {
    let segments = region.chunks.iter().map(|chunk| {
        let (kind, label) = match (chunk.in_use, chunk.tag) {
            (true, ChunkTag::Upper) => ("other", "in use by the upper end"),
            (true, _) => ("temporaries", "in use"),
            (false, ChunkTag::Gap) => ("free", "free between both ends"),
            (false, ChunkTag::Upper) => ("free", "free for the upper end"),
            (false, ChunkTag::Lower) => ("free", "free"),
        };
        Segment { bytes: chunk.bytes, kind, label: label.to_owned() }
    });
    Region {
        address: region.chunks.first().map_or(0, |chunk| chunk.address),
        bytes: region.bytes,
        segments: segments.collect(),
    }
}

fn metadata(explanation: &Explanation) -> Vec<Metric> {
    let figures = &explanation.figures;
    let mut metadata = Vec::new();
    if let Some((major, minor, patch)) = figures.jax {
        metadata.push(Metric::text("jax", format!("{major}.{minor}.{patch}")));
    }
    metadata.extend(figures.gpu.map(|gpu| Metric::text("gpu", gpu)));
    metadata.extend(figures.program.as_ref().map(|name| Metric::text("program", name.as_str())));
    metadata
}
