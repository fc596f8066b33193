//! The result of a run in one sentence.

use super::main_cause::{self, CauseKind, MainCause};
use super::{cause, conditions, hosts, processes};
use crate::analysis::{
    AbortInfo, AllocationFailure, Bearing, Condition, DeviceSummary, NoContextSummary, ProgramNeed,
    RunSummary, Verdict,
};
use crate::bytes::Bytes;
use crate::report::phrases::{mebibytes, part_of, time_phrase};
use crate::report::short_headline::{MAX_WORDS, ShortHeadline, count_words};
use crate::trace::CompilerWarning;

/// What decides whether a run fits.
enum Decision<'a> {
    /// A request was refused.
    Refused(&'a AllocationFailure),
    Aborted(&'a AbortInfo),
    NoContext(&'a NoContextSummary),
    /// There is no room outside the pool.
    OutsidePool(&'a Condition),
    /// Nobody can tell.
    Open(&'a Condition),
    /// The plan of a program that did not run.
    Planned(ProgramNeed),
    /// Nothing: the run came to its end.
    Peak,
}

impl Decision<'_> {
    fn of<'a>(summary: &'a RunSummary, verdict: &'a Verdict) -> Decision<'a> {
        let open = verdict.conditions.first().filter(|_| verdict.fits.is_none());
        if let Some(failure) = summary.out_of_memory() {
            Decision::Refused(failure)
        } else if let Some(abort) = &summary.abort {
            Decision::Aborted(abort)
        } else if let Some(no_context) = &summary.no_context {
            Decision::NoContext(no_context)
        } else if let Some(condition) = verdict.outside_pool() {
            Decision::OutsidePool(condition)
        } else if let Some(condition) = open {
            Decision::Open(condition)
        } else {
            summary.plan().map_or(Decision::Peak, Decision::Planned)
        }
    }
}

pub(in crate::report) fn headline(summary: &RunSummary) -> String {
    let verdict = summary.verdict();
    let decision = Decision::of(summary, &verdict);
    let Some(device) = summary.critical_device() else {
        return match decision {
            Decision::Open(condition) => format!("unknown: {}", conditions::clause(condition)),
            _ => NOTHING_ALLOCATED.to_owned(),
        };
    };
    let on = place(summary, device);
    let used = processes::used_by_others(summary, device);
    let (answer, rest) = match decision {
        Decision::Refused(failure) => {
            let recovery = describe_recovery(summary, failure, device);
            let recovery = recovery.map_or_else(String::new, |recovery| format!("; {recovery}"));
            let leak = find_leak(summary).map_or_else(String::new, |leak| leak.text + "; ");
            ("does not fit", leak + &refused(summary, failure, &on) + &recovery + &used)
        }
        // Nothing that others use changes it.
        Decision::Aborted(abort) => ("does not fit", aborted(abort) + &on),
        Decision::NoContext(no_context) => {
            ("does not fit", no_room_for_context(no_context, &on) + &used)
        }
        Decision::OutsidePool(condition) => {
            ("does not fit", conditions::clause(condition) + &on + &used)
        }
        Decision::Open(condition) => {
            let peak = match condition {
                Condition::LibraryScratch { .. } => "the minimum peak",
                _ => "the peak so far",
            };
            return format!(
                "unknown: {}; {peak} is {} of {}{on}{used}",
                conditions::clause(condition),
                Bytes(device.peak_bytes),
                Bytes(device.capacity_bytes)
            );
        }
        Decision::Planned(plan) => {
            let (answer, rest) = planned(&plan, &on);
            (answer, rest + &used)
        }
        Decision::Peak => {
            ("fits", in_host_memory(&verdict, &on).unwrap_or_else(|| peak_of(device, &on)) + &used)
        }
    };
    let rest = rest + &without_owners(summary);
    conditions::qualify(answer, &rest, &of_headline(verdict), "the dry run")
}

/// Returns the sentences of the cause that the headline does not begin with.
pub(in crate::report) fn further_causes(summary: &RunSummary) -> Vec<String> {
    let said = find_leak(summary).and_then(|leak| leak.cause_sentence);
    cause::sentences(summary).into_iter().filter(|it| Some(it) != said.as_ref()).collect()
}

/// Returns why memory ran out, if it grows from step to step.
fn find_leak(summary: &RunSummary) -> Option<MainCause> {
    main_cause::main_cause(summary).filter(|it| it.kind == CauseKind::Leak)
}

const NOTHING_ALLOCATED: &str = "fits: nothing was allocated on a GPU";

/// Returns the conditions that belong to a headline with an answer.
fn of_headline(verdict: Verdict) -> Vec<Condition> {
    let fits = verdict.fits == Some(true);
    let conditions = verdict.conditions.into_iter();
    // That something does not fit is true whatever was left out, but not whatever was assumed.
    conditions.filter(|it| fits || it.bearing() == Bearing::Assumed).collect()
}

/// The headline in at most 25 words, the cause first.
pub(in crate::report) fn short(summary: &RunSummary) -> ShortHeadline {
    let verdict = summary.verdict();
    let decision = Decision::of(summary, &verdict);
    let Some(device) = summary.critical_device() else {
        return match decision {
            Decision::Open(condition) => cannot_tell(condition),
            _ => ShortHeadline::new(NOTHING_ALLOCATED),
        };
    };
    let on = place(summary, device);
    let used = processes::used_by_others(summary, device);
    let peak = part_of(device.peak_bytes, device.capacity_bytes);
    let assumptions = conditions::assumptions(&of_headline(verdict.clone()));
    let answer = |answer: &str, rest: &str| match &assumptions[..] {
        [] => ShortHeadline::new(&format!("{answer}: {rest}")),
        [only] if count_words(answer) + count_words(only) + count_words(rest) < MAX_WORDS => {
            ShortHeadline::new(&format!("{answer}, if {only}: {rest}"))
        }
        all => {
            let what = match all.len() {
                1 => "the assumption below holds",
                _ => "all assumptions below hold",
            };
            let headline = ShortHeadline::new(&format!("{answer}, if {what}: {rest}"));
            all.iter().fold(headline, |it, one| it.and_below(format!("assumed: {one}")))
        }
    };
    let headline = match decision {
        Decision::Refused(failure) => match main_cause::main_cause(summary) {
            Some(cause) => {
                let headline = answer("does not fit", &cause.text);
                let missing = match cause.kind {
                    CauseKind::Fragmentation => String::new(),
                    CauseKind::Leak => format!("limit {}", Bytes(device.capacity_bytes)),
                    _ => format!("short by {}", Bytes(failure.short_bytes())),
                };
                let headline = ShortHeadline { cause_sentence: cause.cause_sentence, ..headline };
                headline.with("; ", &missing).with(" ", &on).with("; ", &total_range(summary))
            }
            None => {
                let without_range = refused_without_range(failure);
                answer("does not fit", &without_range)
                    .with(" ", &on)
                    .with("; ", &total_range(summary))
            }
        }
        .with("; ", &describe_recovery(summary, failure, device).unwrap_or_default()),
        Decision::Aborted(abort) => answer("does not fit", &aborted(abort)).with(" ", &on),
        Decision::NoContext(no_context) => {
            answer("does not fit", &no_room_for_context(no_context, "")).with(" ", &on)
        }
        Decision::OutsidePool(condition) => {
            answer("does not fit", &no_room_outside(condition)).with(" ", &on)
        }
        Decision::Open(Condition::LibraryScratch { library, low_bytes, high_bytes, .. }) => {
            let more = Bytes(high_bytes.saturating_sub(*low_bytes));
            let text = format!("cannot tell: {peak}, and {library} may take 0 to {more} more");
            let detail = verdict.conditions.first().map(conditions::clause).unwrap_or_default();
            ShortHeadline::new(&text).with(" ", &on).and_below(detail)
        }
        Decision::Open(condition) => {
            cannot_tell(condition).with("; ", &format!("the peak so far is {peak}")).with(" ", &on)
        }
        Decision::Planned(plan) => {
            let (verdict, rest) = planned(&plan, "");
            answer(verdict, &rest).with(" ", &on)
        }
        Decision::Peak => match in_host_memory(&verdict, "") {
            Some(peak) => answer("fits", &peak).with(" ", &on),
            None => {
                let spare = Bytes(device.capacity_bytes.saturating_sub(device.peak_bytes));
                answer("fits", &format!("peak {peak}"))
                    .with(" ", &on)
                    .with(", ", &format!("{spare} to spare"))
            }
        },
    };
    let excluded = conditions::exclusions(&of_headline(verdict), "the dry run");
    let headline = excluded.iter().fold(headline, |it, one| it.with("; ", one));
    headline.with("; ", &used).with("; ", &without_owners(summary))
}

/// Says why nobody can tell, in full below.
fn cannot_tell(condition: &Condition) -> ShortHeadline {
    let headline =
        ShortHeadline::new(&format!("cannot tell: {}", conditions::short_clause(condition)));
    headline.and_below(conditions::clause(condition))
}

fn no_room_outside(condition: &Condition) -> String {
    match condition {
        Condition::OutsidePool { outside_bytes, available_bytes, .. } => format!(
            "{} of constants and code, but outside the pool only {} are free",
            Bytes(*outside_bytes),
            Bytes(*available_bytes)
        ),
        other => conditions::clause(other),
    }
}

fn place(summary: &RunSummary, device: &DeviceSummary) -> String {
    location(summary, device) + &hosts::on_host(summary) + &processes::in_process(summary)
}

fn aborted(abort: &AbortInfo) -> String {
    let after = match &abort.program {
        Some(program) => format!(" after `{program}`"),
        None => String::new(),
    };
    format!("XLA's allocator would abort the process{after}")
}

/// Says that the breakdown below has no owners, where the program of the peak could not be attributed.
fn without_owners(summary: &RunSummary) -> String {
    let program = summary.attribution.as_ref().and_then(|it| it.program);
    let Some(program) = program.and_then(|at| summary.programs.get(at)) else {
        return String::new();
    };
    let mut warnings = summary.compiler_warnings.iter();
    let warning = warnings.find(|warning| {
        warning.source == CompilerWarning::NOT_ATTRIBUTED && warning.program == program.name
    });
    warning.map_or_else(String::new, |warning| {
        format!("; owners are off for `{}`: {}", program.name, warning.text)
    })
}

/// Says how much lies in host memory, which the pool's limit says nothing of.
fn in_host_memory(verdict: &Verdict, on: &str) -> Option<String> {
    let mut conditions = verdict.conditions.iter();
    conditions.find_map(|condition| match *condition {
        Condition::HostMemory { peak_bytes, host_bytes, gpus, .. } => {
            let whose = match gpus {
                1 => "it".to_owned(),
                gpus => format!("the peaks of {gpus} GPUs"),
            };
            Some(format!(
                "peak {}{on}, {} of {whose} in host memory, so it runs slowly",
                Bytes(peak_bytes),
                Bytes(host_bytes)
            ))
        }
        _ => None,
    })
}

fn peak_of(device: &DeviceSummary, on: &str) -> String {
    format!(
        "peak {} of {}{on}, {} to spare",
        Bytes(device.peak_bytes),
        Bytes(device.capacity_bytes),
        Bytes(device.capacity_bytes.saturating_sub(device.peak_bytes))
    )
}

fn refused(summary: &RunSummary, failure: &AllocationFailure, on: &str) -> String {
    let is_short = failure.fatal.is_none() && failure.short_bytes() > 0;
    let range = if is_short { total_range(summary) } else { String::new() };
    refused_without_range(failure) + on + &range
}

/// Says that the program handled the failure, as one that tries a smaller batch does, and needed less afterwards.
fn describe_recovery(
    summary: &RunSummary,
    failure: &AllocationFailure,
    device: &DeviceSummary,
) -> Option<String> {
    let succeeded = summary.process_exit.is_some_and(|exit| exit.is_success());
    let went_on = failure.recovered && failure.fatal.is_none();
    (went_on && succeeded && summary.uncaught_error.is_none()).then(|| {
        format!(
            "the program handled that and ran to its end, at a peak of {}",
            Bytes(device.peak_bytes)
        )
    })
}

fn refused_without_range(failure: &AllocationFailure) -> String {
    let when = time_phrase(&failure.context);
    match failure.short_bytes() {
        _ if failure.fatal.is_some() => format!("XLA's allocator would hang or abort {when}"),
        0 => {
            let requested = Bytes(failure.context.requested_bytes);
            format!("a request for {requested} failed {when}")
        }
        short => format!("short by {} {when}", Bytes(short)),
    }
}

/// Says with which total memory a run does not fit, where it fits with another.
fn total_range(summary: &RunSummary) -> String {
    match summary.total_range {
        Some(range) if range.is_met => format!(
            " with {} in total; with {} this request succeeds",
            mebibytes(summary.header.total_memory_bytes()),
            mebibytes(range.max_total_memory_bytes)
        ),
        _ => String::new(),
    }
}

fn no_room_for_context(no_context: &NoContextSummary, on: &str) -> String {
    format!(
        "the CUDA context needs about {}, but only {} are free{on}",
        Bytes(no_context.context_bytes).estimated(),
        Bytes(no_context.free_bytes)
    )
}

/// The result for a program that was compiled and not executed: the answer, and what it rests on.
fn planned(plan: &ProgramNeed, on: &str) -> (&'static str, String) {
    let needed = format!(
        "`{}`, compiled but not executed, needs {}",
        plan.program,
        Bytes(plan.needed_bytes)
    );
    let capacity = Bytes(plan.capacity_bytes);
    match plan.capacity_bytes.checked_sub(plan.needed_bytes) {
        Some(spare) => {
            ("expected to fit", format!("{needed} of {capacity}{on}, {} to spare", Bytes(spare)))
        }
        None => ("does not fit", format!("{needed}, but only {capacity} are available{on}")),
    }
}

/// Names the GPU, and which of several.
fn location(summary: &RunSummary, device: &DeviceSummary) -> String {
    let header = &summary.header;
    let (gpu, number) = (&header.gpu().name, header.gpu_of(device.device));
    let is_each = header.devices > 1 && !summary.is_refused() && peaks_are_equal(summary);
    match (header.devices, header.machine_gpu_count()) {
        (_, 0 | 1) => format!(" on {gpu}"),
        (devices, count) if is_each && devices == count => format!(" on each of {count} x {gpu}"),
        (devices, count) if is_each => format!(" on each of {devices} of {count} x {gpu}"),
        (_, count) => format!(" on GPU {number} of {count} x {gpu}"),
    }
}

fn peaks_are_equal(summary: &RunSummary) -> bool {
    let peak = |device: &DeviceSummary| (device.peak_bytes, device.capacity_bytes);
    let mut pairs = summary.devices.windows(2);
    pairs.all(|pair| peak(&pair[0]) == peak(&pair[1]))
}
