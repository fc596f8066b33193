//! The result of a run in one sentence.

use super::{conditions, hosts, processes};
use crate::analysis::{
    AllocationFailure, Bearing, Condition, DeviceSummary, NoContextSummary, ProgramNeed,
    RunSummary, Verdict,
};
use crate::bytes::Bytes;
use crate::report::phrases::{mebibytes, time_phrase};
use crate::trace::CompilerWarning;

pub(in crate::report) fn headline(summary: &RunSummary) -> String {
    let verdict = summary.verdict();
    let unknown = verdict.conditions.first().filter(|_| verdict.fits.is_none());
    let Some(device) = summary.critical_device() else {
        return match unknown {
            Some(condition) => format!("unknown: {}", conditions::clause(condition)),
            None => "fits: nothing was allocated on a GPU".to_owned(),
        };
    };
    let on = location(summary, device) + &hosts::on_host(summary) + &processes::in_process(summary);
    let used = processes::used_by_others(summary, device);
    let (answer, rest) = if let Some(failure) = summary.out_of_memory() {
        ("does not fit", refused(summary, failure, &on) + &used)
    } else if let Some(abort) = &summary.abort {
        let after = match &abort.program {
            Some(program) => format!(" after `{program}`"),
            None => String::new(),
        };
        // Nothing that others use changes it.
        let rest = format!("XLA's allocator would abort the process{after}{on}");
        ("does not fit", rest)
    } else if let Some(no_context) = &summary.no_context {
        ("does not fit", no_room_for_context(no_context, &on) + &used)
    } else if let Some(condition) = verdict.outside_pool() {
        ("does not fit", conditions::clause(condition) + &on + &used)
    } else if let Some(condition) = unknown {
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
    } else {
        let (answer, rest) = match summary.plan() {
            Some(plan) => planned(&plan, &on),
            None => ("fits", in_host_memory(&verdict, &on).unwrap_or_else(|| peak_of(device, &on))),
        };
        (answer, rest + &used)
    };
    let conditions = verdict.conditions.into_iter();
    // That something does not fit is true whatever was left out, but not whatever was assumed.
    let conditions = conditions
        .filter(|condition| verdict.fits == Some(true) || condition.bearing() == Bearing::Assumed);
    conditions::qualify(
        answer,
        &(rest + &without_owners(summary)),
        &conditions.collect::<Vec<_>>(),
        "the dry run",
    )
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
    let when = time_phrase(&failure.context);
    match failure.short_bytes() {
        _ if failure.fatal.is_some() => {
            format!("XLA's allocator would hang or abort {when}{on}")
        }
        0 => {
            let requested = Bytes(failure.context.requested_bytes);
            format!("a request for {requested} failed {when}{on}")
        }
        short => {
            let range = total_range(summary);
            format!("short by {} {when}{on}{range}", Bytes(short))
        }
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
        Bytes(no_context.context_bytes),
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
