//! From the answer of a dry run to its report: which figures are told, in which words.

use super::coverage::not_covered;
use super::record::record;
use super::tables::{callbacks, devices, programs, unknown_reads, variants};
use super::{
    Bar, Body, Figure, Report, Section, Value, advice, bands, owners, processes, run, scratch,
    settings, verdict, warnings,
};
use crate::allocator::Kind;
use crate::analysis::{
    AllocationFailure, AutotuneRange, Condition, DeviceSummary, Evidence, PeakContext, Plan,
    RunSummary,
};
use crate::bytes::Bytes;
use crate::trace::{Header, Purpose};

/// Makes the report of a dry run.
pub(super) fn report(answer: &RunSummary) -> Report {
    let not_covered = not_covered(answer);
    let mut sections = Vec::new();
    if let Some(device) = answer.worst_device() {
        sections.push(section("", Body::Bars(vec![bar(answer, device)])));
        sections.push(section("", Body::Figures(figures(answer, device))));
    }
    sections.extend(verdict::section(answer));
    sections.extend(processes::processes(answer));
    sections.extend(likely_cause(answer));
    sections.extend(owners::summary(answer));
    sections.extend(scratch::section(answer));
    sections.extend(advice::advice(answer));
    sections.extend(settings::section(answer));
    sections.extend(warnings::section(answer));
    sections.extend(run::leaks(answer));
    sections.extend(owners::tree(answer));
    sections.extend(bands::details(answer));
    sections.extend(run::details(answer));
    sections.extend(owners::parts(answer));
    sections.extend(run::compilations(answer));
    sections.extend(devices(answer));
    sections.extend(programs(answer));
    sections.extend(variants(answer));
    sections.extend(unknown_reads(answer));
    sections.extend(callbacks(answer));
    sections.push(section(
        "not covered by these figures",
        Body::Text(not_covered.clone()),
    ));
    Report {
        title: "vramfit dryrun".to_owned(),
        good: answer.fits(),
        answer: sentence(answer),
        sections,
        facts: facts(answer),
        record: record(answer, &not_covered),
    }
}

/// Why the program may have failed, where it read a made-up value before it did.
fn likely_cause(answer: &RunSummary) -> Option<Section> {
    let site = match answer.likely_cause()? {
        "" => "a line that is not known",
        site => site,
    };
    let text = format!(
        "the last made-up value that it read is that at {site}: a likely cause of its failure. A dry \
         run computes small values only; `--fill ones` makes up others"
    );
    let title = "why the program may have failed";
    Some(section(title, Body::Text(vec![text])))
}

pub(super) fn section(title: &str, body: Body) -> Section {
    Section {
        title: title.to_owned(),
        body,
        detail: false,
    }
}

pub(super) fn figure(label: &str, value: Value, note: impl Into<String>) -> Figure {
    Figure {
        label: label.to_owned(),
        value,
        note: note.into(),
    }
}

/// The answer in one sentence.
pub(super) fn sentence(answer: &RunSummary) -> String {
    let verdict = answer.verdict();
    let open = verdict
        .conditions
        .first()
        .filter(|_| verdict.fits.is_none());
    let Some(device) = answer.worst_device() else {
        return match open {
            Some(open) => format!("cannot be told: {}", verdict::words(open)),
            None => "fits: nothing was put on a GPU".to_owned(),
        };
    };
    let on = place(answer, device) + &processes::in_process(answer);
    let others = processes::held_by_others(answer, device);
    if let Some(refusal) = answer.out_of_memory() {
        let when = when(&refusal.moment);
        return match refusal.short_bytes() {
            _ if refusal.fatal.is_some() => {
                format!("does not fit: XLA's own allocator would hang or abort {when}{on}{others}")
            }
            0 => {
                let requested = Bytes(refusal.moment.requested_bytes);
                format!("does not fit: {requested} could not be had {when}{on}{others}")
            }
            short => {
                let range = in_total_range(answer);
                let short = Bytes(short);
                format!("does not fit: short by {short} {when}{on}{range}{others}")
            }
        };
    }
    if let Some(abort) = &answer.abort {
        let after = match &abort.program {
            Some(program) => format!(" after `{program}`"),
            None => String::new(),
        };
        return format!("does not fit: XLA's own allocator would abort the process{after}{on}");
    }
    if let Some(no_context) = &answer.no_context {
        let (context, free) = (
            Bytes(no_context.context_bytes),
            Bytes(no_context.free_bytes),
        );
        return format!(
            "does not fit: no room for the CUDA context{on}, which takes some {context} where \
             {free} are left{others}"
        );
    }
    let (peak, capacity) = (Bytes(device.peak_bytes), Bytes(device.capacity_bytes));
    if let (None, Some(plan)) = (open, answer.plan()) {
        return planned(&plan, &on) + &others;
    }
    if let Some(open) = open {
        let why = verdict::words(open);
        let when = match open {
            Condition::LibraryScratch { .. } => "with the least of it, the peak",
            _ => "the peak until then",
        };
        return format!("cannot be told: {why}; {when} is {peak} of {capacity}{on}{others}");
    }
    let spare = Bytes(device.capacity_bytes.saturating_sub(device.peak_bytes));
    format!("fits: peak {peak} of {capacity}{on}, {spare} to spare{others}")
}

/// Says with which total a run does not fit, where another one decides otherwise.
fn in_total_range(answer: &RunSummary) -> String {
    match answer.total_range {
        Some(range) if range.is_met => format!(
            " with {}; with {} this request is met",
            verdict::mebibytes(answer.header.total_memory_bytes),
            verdict::mebibytes(range.max_total_memory_bytes)
        ),
        _ => String::new(),
    }
}

/// The answer about a program that was compiled and did not run.
fn planned(plan: &Plan, on: &str) -> String {
    let (program, needed) = (&plan.program, Bytes(plan.needed_bytes));
    let capacity = Bytes(plan.capacity_bytes);
    match plan.capacity_bytes.checked_sub(plan.needed_bytes) {
        Some(spare) => format!(
            "fits by its plan: `{program}`, which did not run, needs {needed} of {capacity}{on}, {} \
             to spare",
            Bytes(spare)
        ),
        None => format!(
            "does not fit by its plan: `{program}`, which did not run, needs {needed}, and there are \
             {capacity}{on}"
        ),
    }
}

/// Where: the card, and which of several.
fn place(answer: &RunSummary, device: &DeviceSummary) -> String {
    let header = &answer.header;
    let (gpu, number) = (&header.gpu, header.gpu_of(device.device));
    let is_each = header.devices > 1 && !answer.is_refused() && peaks_are_equal(answer);
    match (header.devices, header.machine_gpu_count()) {
        (_, 0 | 1) => format!(" on {gpu}"),
        (devices, count) if is_each && devices == count => format!(" on each of {count} x {gpu}"),
        (devices, count) if is_each => format!(" on each of {devices} of {count} x {gpu}"),
        (_, count) => format!(" on GPU {number} of {count} x {gpu}"),
    }
}

fn peaks_are_equal(answer: &RunSummary) -> bool {
    let devices = answer.devices.iter();
    let mut figures = devices.map(|device| (device.peak_bytes, device.capacity_bytes));
    let first = figures.next();
    figures.all(|figure| Some(figure) == first)
}

/// Says how many, in words that agree.
fn executions(count: u64) -> String {
    match count {
        1 => "1 execution".to_owned(),
        count => format!("{count} executions"),
    }
}

/// When: in which program, or between which.
pub(super) fn when(moment: &PeakContext) -> String {
    match &moment.program {
        Some(program) => format!("in `{program}`"),
        None if moment.site.is_empty() => "between programs".to_owned(),
        None => format!("at {}", moment.site),
    }
}

pub(super) fn bar(answer: &RunSummary, device: &DeviceSummary) -> Bar {
    // What a refused request needed counts as if it had been met.
    let wanted = answer
        .attribution
        .as_ref()
        .filter(|attribution| attribution.refused);
    let wanted = wanted.filter(|attribution| attribution.device == device.device);
    Bar {
        label: match answer.header.devices {
            0 | 1 => String::new(),
            _ => format!("GPU {}", answer.header.gpu_of(device.device)),
        },
        part_bytes: wanted.map_or(device.peak_bytes, |attribution| attribution.total_bytes),
        whole_bytes: device.capacity_bytes,
    }
}

/// The figures of the device that decides.
fn figures(answer: &RunSummary, device: &DeviceSummary) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(refusal) = answer.out_of_memory() {
        figures.extend(refused(answer, refusal));
    }
    if let Some(abort) = answer.abort.as_ref().filter(|_| answer.refusal_count == 0) {
        let note = format!("after {}: {}", executions(abort.executions), abort.message);
        figures.push(figure("on a real card", Value::Missing("dies"), note));
    }
    figures.extend(total_range(answer));
    let header = &answer.header;
    figures.push(limit(header, device));
    if let Some(pool) = device.pool_bytes {
        let note = match header.preallocate {
            _ if pool == 0 => "not taken, since nothing was allocated",
            false => "grown as needed",
            true if device.limit_bytes.is_some_and(|limit| pool < limit) => {
                "taken at the first allocation; the card had no more"
            }
            true => "taken at the first allocation",
        };
        figures.push(figure("pool", Value::Bytes(pool), note));
    }
    figures.extend(processes::held_figure(device));
    figures.push(figure(
        "peak in use",
        Value::Bytes(device.peak_bytes),
        device.peak.as_ref().map_or_else(String::new, described),
    ));
    figures.extend(autotune_range(answer, device));
    figures.extend(scratch::figure(answer, device));
    let state = device.at_peak;
    if let Some((free, largest)) = state.free_bytes.zip(state.largest_free_block_bytes) {
        let share = Value::Share(state.fragmentation().unwrap_or(0.0));
        let note = format!("of {} free at the peak, {share} fragmented", Bytes(free));
        figures.push(figure("largest free block", Value::Bytes(largest), note));
    }
    figures.push(figure(
        "held between steps",
        Value::Bytes(device.steady_state_bytes),
        held(answer),
    ));
    let outside = header.context_bytes.saturating_add(device.outside_bytes);
    let note = format!(
        "context {} (estimate), programs {}",
        Bytes(header.context_bytes),
        Bytes(device.outside_bytes)
    );
    figures.push(figure("outside the pool", Value::Bytes(outside), note));
    figures
}

/// What the allocator may take.
fn limit(header: &Header, device: &DeviceSummary) -> Figure {
    let total = Bytes(header.total_memory_bytes);
    let is_async = header.allocator == Kind::CudaAsync.name();
    let Some(limit) = device.limit().filter(|_| header.total_memory_bytes > 0) else {
        let why = match is_async {
            true => format!(
                "`cuda_async` keeps nothing without preallocation and takes what the card has, \
                 {total}; JAX reports a `bytes_limit` of 0"
            ),
            false => format!("`{}` asks the card, which has {total}", header.allocator),
        };
        return figure("limit", Value::Missing("none"), why);
    };
    let share = limit as f64 / header.total_memory_bytes as f64;
    let mut note = format!("{} of the card's {total}", Value::Share(share));
    if header.occupied_bytes > 0 {
        note += &format!(", of which others hold {}", Bytes(header.occupied_bytes));
    }
    if let Some(asked) = header.asked_limit_bytes.filter(|asked| *asked != limit) {
        note += &format!("; {asked} bytes were asked for, {limit} are had");
    }
    if is_async {
        note += "; what `cuda_async` keeps, and no cap: it takes more when it needs more";
        return figure("release threshold", Value::Bytes(limit), note);
    }
    figure("limit", Value::Bytes(limit), note)
}

/// What the request that was refused comes to where the driver reports the highest total.
fn total_range(answer: &RunSummary) -> Option<Figure> {
    let range = answer.total_range?;
    let value = if range.is_met { "met" } else { "refused" };
    let total = verdict::mebibytes(range.max_total_memory_bytes);
    let note = format!("this request with {total}, the highest total that drivers report");
    Some(figure(
        "at the highest total",
        Value::Text(value.to_owned()),
        note,
    ))
}

/// Between which peaks the choice of kernels may put the run.
fn autotune_range(answer: &RunSummary, device: &DeviceSummary) -> Option<Figure> {
    let autotune_range = answer.autotune_range.as_ref()?;
    let (label, variant) = ("peak range", &autotune_range.variant);
    let small = small_programs(autotune_range);
    if autotune_range.measured == 0 {
        let note = format!("no program of 1 % of the pool compiles another way{small}");
        return Some(figure(label, Value::Missing("none"), note));
    }
    let other = autotune_range
        .peak_bytes
        .get(device.device as usize)
        .copied()?;
    let (low, high) = (device.peak_bytes.min(other), device.peak_bytes.max(other));
    let ends = [low, high].map(|end| Bytes(end).to_string());
    let value = match ends[0] == ends[1] {
        true => Value::Bytes(high),
        false => Value::Text(ends.join(" to ")),
    };
    let note = match autotune_range.fits {
        Some(false) if !answer.is_refused() => format!("does not fit {variant}"),
        None => format!("{variant} the request that was refused would be met"),
        _ if low == high => format!("the same {variant}"),
        _ if other == high => format!("{} more {variant}", Bytes(high - low)),
        _ => format!("{} less {variant}", Bytes(high - low)),
    };
    let note = format!("{note}; autotuning on a card decides{small}");
    Some(figure(label, value, note))
}

/// How many programs the range of the peak leaves out because they are small, and what they could change.
fn small_programs(autotune_range: &AutotuneRange) -> String {
    let temporaries = Bytes(autotune_range.small_temp_bytes);
    match autotune_range.small {
        0 => String::new(),
        1 => format!(
            "; 1 program below 1 % of the pool is left out, with {temporaries} of temporaries"
        ),
        count => format!(
            "; {count} programs below 1 % of the pool are left out, with {temporaries} of \
             temporaries in all"
        ),
    }
}

/// What was asked for and could not be had.
pub(super) fn refused(answer: &RunSummary, refusal: &AllocationFailure) -> Vec<Figure> {
    let moment = &refusal.moment;
    let free = refusal
        .pool
        .free_bytes
        .unwrap_or(0)
        .saturating_add(refusal.growth_bytes.unwrap_or(0));
    let how = match refusal.pool.free_bytes {
        None => "left on the card, going by its size".to_owned(),
        Some(_) if refusal.fatal.is_some() => format!("in one piece, of {} free", Bytes(free)),
        Some(_) if refusal.short_bytes() == 0 => {
            "in one piece, but for the other end of the partitioned pool".to_owned()
        }
        Some(_) if refusal.fragmented() => format!(
            "in one piece; {} were free in all, too scattered to be used",
            Bytes(free)
        ),
        Some(_) => format!("in one piece, of {} free in all", Bytes(free)),
    };
    let mut figures = vec![
        figure(
            "asked for",
            Value::Bytes(moment.requested_bytes),
            described(moment),
        ),
        figure("to be had", Value::Bytes(refusal.available_bytes()), how),
        figure(
            "in use then",
            Value::Bytes(refusal.pool.in_use_bytes),
            if refusal.recovered {
                "the program went on after it"
            } else {
                ""
            },
        ),
    ];
    if let Some(fatal) = &refusal.fatal {
        figures.push(figure(
            "on a real card",
            Value::Missing("dies"),
            fatal.clone(),
        ));
    }
    if answer.refusal_count > 1 {
        let note = "requests in all; this is the first";
        figures.push(figure("refused", Value::Count(answer.refusal_count), note));
    }
    figures
}

pub(super) fn described(moment: &PeakContext) -> String {
    let site = match moment.site.is_empty() {
        true => String::new(),
        false => format!(", at {}", moment.site),
    };
    format!("{}{site}", what_for(moment))
}

/// What bytes were for, and in which step.
fn what_for(moment: &PeakContext) -> String {
    let what = purpose(moment.purpose);
    match &moment.program {
        Some(program) => format!("{what} of `{program}`, call {}", moment.call),
        None if moment.call == 0 => format!("{what}, before anything was executed"),
        None => format!("{what}, after {}", executions(moment.call)),
    }
}

pub(super) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Upload => "an upload",
        Purpose::Output => "an output",
        Purpose::Temporary => "temporaries",
        Purpose::Tuple => "the output table",
        Purpose::Copy => "a copy",
        Purpose::Constant => "constants",
        Purpose::Scratch => "library scratch",
    }
}

fn held(answer: &RunSummary) -> String {
    let searched = answer.step_search.is_some();
    let guessed = match answer.step_evidence {
        Some(Evidence::MostMemory | Evidence::BackwardPass) if searched => {
            ", which needed most; no training step was seen"
        }
        _ => "",
    };
    match answer.step() {
        Some(step) if step.calls > 1 => {
            let (before, last) = (step.calls - 1, step.calls);
            format!(
                "between calls {before} and {last} of `{}`{guessed}",
                step.name
            )
        }
        Some(step) => format!("in use when `{}` began, which ran once", step.name),
        None => "nothing was executed".to_owned(),
    }
}

fn facts(answer: &RunSummary) -> Vec<Figure> {
    let header = &answer.header;
    let text = |text: String| Value::Text(text);
    let pool = match header.allocator.as_str() {
        "platform" | "address" => String::new(),
        _ => {
            let how = match (header.preallocate, header.spatial_partitioning) {
                (true, true) => "preallocated, partitioned",
                (true, false) => "preallocated",
                (false, _) => "growing",
            };
            // It is a 32-bit number that was widened; 0.9 would be shown as 0.8999999761581421.
            format!(", fraction {}, {how}", header.memory_fraction as f32)
        }
    };
    vec![
        figure("command", text(header.command.join(" ")), ""),
        figure(
            "card",
            text(format!(
                "{} x {} ({})",
                header.devices, header.gpu, header.gpu_description
            )),
            "",
        ),
        figure("allocator", text(format!("{}{pool}", header.allocator)), ""),
        figure(
            "jax",
            text(format!("{} (PJRT {})", header.jax, header.plugin)),
            "",
        ),
        figure("executions", Value::Count(answer.executions), ""),
    ]
}
