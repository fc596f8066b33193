//! The course of a run: what grows, what is compiled again, how full the pool was, what lay where.

use super::dryrun::{described, purpose, section};
use super::picture::{AddressMap, Line, Mark, Piece, Span, Timeline};
use super::{Body, Section, Table, Value};
use crate::analysis::{
    ArraySummary, CompilationSummary, DeviceSummary, LayoutSummary, LeakSummary, PieceSummary,
    RunSummary, TimelinePoint,
};
use crate::bytes::Bytes;
use crate::trace::Purpose;

/// Suspects and functions that are listed.
const POINTS_SHOWN: usize = 5;
/// Groups of arrays that are listed.
const ARRAYS_SHOWN: usize = 20;

/// What grew from step to step, where anything did.
pub(super) fn leaks(answer: &RunSummary) -> Option<Section> {
    let first = answer.leaks.first()?;
    let here = answer
        .leaks
        .iter()
        .filter(|leak| leak.device == first.device);
    let mut points: Vec<_> = here.clone().take(POINTS_SHOWN).map(leak_point).collect();
    let here = here.count();
    if here > POINTS_SHOWN {
        points.push(format!("{} more in the JSON", here - POINTS_SHOWN));
    }
    let elsewhere = answer.leaks.len() - here;
    if elsewhere > 0 {
        points.push(format!(
            "this is GPU {}; other GPUs have {elsewhere} such lines, which are in the JSON",
            first.device
        ));
    }
    points.extend(room(answer, first.device));
    let title = "what grows from step to step and never shrinks";
    Some(section(title, Body::Text(points)))
}

fn leak_point(leak: &LeakSummary) -> String {
    let bytes = Bytes(leak.bytes_per_step());
    let line = match leak.site.is_empty() {
        true => "a line that is not known",
        false => &leak.site,
    };
    let what = match (&leak.program, leak.purpose) {
        (Some(program), purpose) => format!("{} of `{program}`", self::purpose(purpose)),
        (None, purpose) => self::purpose(purpose).to_owned(),
    };
    let mean = match leak.bytes % leak.steps.max(1) {
        0 => "",
        _ => "on average ",
    };
    let steps = leak.steps;
    format!(
        "grows by {mean}{bytes} a step: {line}, {what}; in each of the last {steps} steps, {} in all",
        arrays(leak.arrays)
    )
}

fn arrays(count: u64) -> String {
    match count {
        0 => "in size only".to_owned(),
        1 => "1 array".to_owned(),
        count => format!("{count} arrays"),
    }
}

/// For how many more steps there is room, if all goes on as it did.
fn room(answer: &RunSummary, device: u32) -> Option<String> {
    let state = answer.devices.get(device as usize)?;
    let here = answer.leaks.iter().filter(|leak| leak.device == device);
    let a_step: u64 = here.map(|leak| leak.held_bytes / leak.steps.max(1)).sum();
    let spare = state.capacity_bytes.checked_sub(state.peak_bytes)?;
    let steps = spare
        .checked_div(a_step)
        .filter(|_| answer.fits() == Some(true))?;
    Some(format!(
        "at that rate there is room for about {steps} more steps"
    ))
}

/// What was compiled more often than anybody wants, where there is such a thing.
pub(super) fn compilations(answer: &RunSummary) -> Option<Section> {
    let told = answer.compilations.iter();
    let told: Vec<_> = told.filter(|one| one.is_worth_telling()).collect();
    let mut points: Vec<_> = told
        .iter()
        .take(POINTS_SHOWN)
        .map(|one| compilation_point(one))
        .collect();
    if told.len() > POINTS_SHOWN {
        points.push(format!("{} more in the JSON", told.len() - POINTS_SHOWN));
    }
    let title = "compiled again and again";
    (!points.is_empty()).then(|| section(title, Body::Text(points)))
}

fn compilation_point(one: &CompilationSummary) -> String {
    let with = match one.argument_sizes {
        1 => "always with the same size of arguments".to_owned(),
        sizes => format!("with {sizes} different sizes of arguments"),
    };
    let loaded = match one.loaded {
        0 => String::new(),
        loaded => format!(" ({loaded} from a cache)"),
    };
    let after = match one.after_first_step {
        0 => String::new(),
        after => format!(", {after} of them after the first step"),
    };
    let at = match &one.sites[..] {
        [] => String::new(),
        [only] => format!(", at {only}"),
        [first, rest @ ..] => format!(", at {first} and {} more lines", rest.len()),
    };
    format!(
        "`{}` {} times{loaded} {with}{after}{at}",
        one.name, one.count
    )
}

/// What only a full report shows, for the device that decides.
pub(super) fn details(answer: &RunSummary) -> Vec<Section> {
    let Some(device) = answer.worst_device() else {
        return Vec::new();
    };
    let on = match answer.devices.len() {
        0 | 1 => String::new(),
        _ => format!(", GPU {}", device.device),
    };
    let mut sections = vec![(
        format!("memory over the run{on}"),
        Body::Timeline(timeline(answer, device)),
    )];
    let moments = [
        ("at the peak", &device.arrays_at_peak),
        ("when the last step began", &device.arrays_between_steps),
        ("at the end", &device.arrays_at_end),
    ];
    for (moment, arrays) in moments {
        if !arrays.is_empty() {
            let title = format!("arrays {moment}, by the line that made them{on}");
            sections.push((title, Body::Table(array_table(arrays))));
        }
    }
    let peak = device.peak.as_ref().map_or_else(String::new, described);
    let maps = [
        (
            "at the peak",
            format!("at the peak: {peak}"),
            &device.layout_at_peak,
        ),
        ("at the end", "at the end".to_owned(), &device.layout_at_end),
    ];
    for (title, moment, layout) in maps {
        if !layout.regions.is_empty() {
            let map = address_map(moment, layout);
            sections.push((format!("what lies where {title}{on}"), Body::Map(map)));
        }
    }
    let detail = |(title, body): (String, Body)| Section {
        detail: true,
        ..section(&title, body)
    };
    sections.into_iter().map(detail).collect()
}

fn timeline(answer: &RunSummary, device: &DeviceSummary) -> Timeline {
    let points = &device.timeline;
    let line = |label: &str, value: &dyn Fn(&TimelinePoint) -> Option<u64>| {
        let bytes: Option<Vec<_>> = points.iter().map(value).collect();
        bytes.map(|bytes| Line {
            label: label.to_owned(),
            bytes,
        })
    };
    let lines = [
        line("in use", &|point| Some(point.state.in_use_bytes)),
        line("pool", &|point| {
            let free = point.state.free_bytes?;
            Some(point.state.in_use_bytes.saturating_add(free))
        }),
        line("largest free block", &|point| {
            point.state.largest_free_block_bytes
        }),
    ];
    let mut marks = Vec::new();
    let mut mark = |at: u64, label: String| marks.push(Mark { at, label });
    if let Some((step, at)) = answer.step().and_then(|s| Some((s, s.first_call_event?))) {
        mark(at, format!("end of set-up: first call of `{}`", step.name));
    }
    if let Some(peak) = &device.peak {
        mark(peak.event, "peak".to_owned());
    }
    let mut refusals = answer.refusals.iter();
    if let Some(refusal) = refusals.find(|refusal| refusal.device == device.device) {
        let bytes = Bytes(refusal.moment.requested_bytes);
        mark(refusal.moment.event, format!("{bytes} refused"));
    }
    marks.sort_by_key(|mark| mark.at);
    Timeline {
        unit: "events",
        at: points.iter().map(|point| point.event).collect(),
        lines: lines.into_iter().flatten().collect(),
        marks,
        limit_bytes: device.limit(),
    }
}

fn array_table(arrays: &[ArraySummary]) -> Table {
    let rows = arrays.iter().take(ARRAYS_SHOWN).map(|array| {
        let line = match array.site.is_empty() {
            true => "a line that is not known".to_owned(),
            false => array.site.clone(),
        };
        let made = match &array.program {
            Some(program) => format!("{} of {program}", kind(Some(array.purpose))),
            None => kind(Some(array.purpose)).to_owned(),
        };
        // One column, which is the one that is cut to the width of a terminal.
        vec![
            Value::Text(format!("{made}, {line}")),
            Value::Count(array.count),
            Value::Bytes(array.bytes),
            Value::Bytes(array.held_bytes),
        ]
    });
    let rest = arrays.get(ARRAYS_SHOWN..).unwrap_or_default();
    let sum: u64 = rest.iter().map(|array| array.held_bytes).sum();
    let more = match rest.len() {
        0 => String::new(),
        more => format!("{more} more with {}; ", Bytes(sum)),
    };
    let columns = ["made as, and where", "arrays", "asked for", "in the pool"];
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: format!("{more}the last column includes rounding and adds up to the bytes in use"),
    }
}

fn address_map(moment: String, layout: &LayoutSummary) -> AddressMap {
    let spans = layout.regions.iter().map(|region| Span {
        address: region.address,
        bytes: region.bytes,
        pieces: region.pieces.iter().map(piece).collect(),
    });
    AddressMap {
        moment,
        spans: spans.collect(),
    }
}

fn piece(piece: &PieceSummary) -> Piece {
    let mut words: Vec<String> = Vec::new();
    if let Some(program) = &piece.program {
        words.push(format!("`{program}`"));
    }
    if !piece.site.is_empty() {
        words.push(piece.site.clone());
    }
    if piece.blocks > 1 {
        words.push(format!("{} blocks", piece.blocks));
    }
    if piece.purpose.is_some() && piece.free_bytes > 0 {
        words.push(format!("{} of it free", Bytes(piece.free_bytes)));
    }
    Piece {
        bytes: piece.bytes,
        kind: kind(piece.purpose),
        label: words.join(", "),
    }
}

/// Returns the word for the kind of a piece or an array, the same in all pictures.
fn kind(purpose: Option<Purpose>) -> &'static str {
    match purpose {
        None => "free",
        Some(Purpose::Upload) => "upload",
        Some(Purpose::Output) => "output",
        Some(Purpose::Temporary) => "temporary",
        Some(Purpose::Tuple) => "table",
        Some(Purpose::Copy) => "copy",
        Some(Purpose::Constant) => "constant",
        Some(Purpose::Scratch) => "scratch",
    }
}
