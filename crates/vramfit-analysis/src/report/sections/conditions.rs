//! What a result depends on, in the same words in text, JSON and page.

use super::{hosts, placeholders, processes};
use crate::analysis::{Bearing, Condition, Evidence, LastExecution, LinkTraffic, RunSummary};
use crate::bytes::Bytes;
use crate::report::Section;
use crate::report::phrases::{at_line, file_name, mebibytes, range};
use crate::run_config::{STEADY_CALLS, StepLimit};
use crate::trace::{CpuProgram, ProcessExit, UncaughtError};

/// The conditions that the headline does not mention.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let verdict = summary.verdict();
    let in_headline = match verdict.fits {
        None => verdict.conditions.first(),
        Some(_) => verdict.outside_pool(),
    };
    let conditions = verdict.conditions.iter();
    let points = conditions.filter(|it| Some(*it) != in_headline).map(clause);
    Section::list("this result depends on", points.collect())
}

/// Puts into a headline what its answer depends on: `fits, if A and if B: REST; C; D`. `each` names the run that
/// was made: `the dry run` or `each dry run`.
pub(in crate::report) fn qualify(
    answer: &str,
    rest: &str,
    conditions: &[Condition],
    each: &str,
) -> String {
    let (assumed, excluded) = (assumed_clause(conditions), excluded_clauses(conditions, each));
    format!("{answer}{assumed}: {rest}{excluded}")
}

/// Returns what an answer assumes, to be appended to it: `, if A and if B`.
pub(in crate::report) fn assumed_clause(conditions: &[Condition]) -> String {
    match assumptions(conditions).join(" and if ") {
        none if none.is_empty() => none,
        assumed => format!(", if {assumed}"),
    }
}

/// Returns what an answer says nothing about, to be appended to it: `; C; D`.
pub(in crate::report) fn excluded_clauses(conditions: &[Condition], each: &str) -> String {
    exclusions(conditions, each).iter().map(|it| format!("; {it}")).collect()
}

/// Returns what an answer assumes, in a clause each. A run that was measured with a pool without a limit also assumes what
/// scratch memory the GPU's has room for.
pub(super) fn assumptions(conditions: &[Condition]) -> Vec<String> {
    let is_assumed = |it: &&Condition| it.bearing() == Bearing::Assumed || it.is_library_scratch();
    conditions.iter().filter(is_assumed).map(|condition| phrase(condition, "")).collect()
}

/// Returns what an answer says nothing about, in a clause each.
pub(super) fn exclusions(conditions: &[Condition], each: &str) -> Vec<String> {
    let conditions = conditions.iter().filter(|it| it.bearing() == Bearing::Excluded);
    conditions.map(|condition| phrase(condition, each)).collect()
}

/// Describes in at most ten words a condition that leaves the answer open.
pub(super) fn short_clause(condition: &Condition) -> String {
    match condition {
        Condition::ProcessFailed { error: Some(error), .. } => {
            format!("the program failed by itself with {}", error.name)
        }
        Condition::ProcessFailed { exit: Some(exit), .. } => {
            format!("the program {}", describe_exit(*exit))
        }
        Condition::ProcessFailed { .. } => "the program failed by itself".to_owned(),
        Condition::TraceEndsEarly { until: Some(event), .. } => {
            format!("this report ends with event {event}, as requested")
        }
        Condition::TraceEndsEarly { .. } => "the trace ends before the program did".to_owned(),
        Condition::HostsDiffer(_) => "hosts execute different programs".to_owned(),
        Condition::PlaceholderDecides { .. } => {
            "a value that was not computed decided what ran".to_owned()
        }
        Condition::RanOnCpu { program, .. } if program.backward => {
            "the training step ran on the CPU".to_owned()
        }
        Condition::RanOnCpu { .. } => "what needs most memory ran on the CPU".to_owned(),
        Condition::OutsidePool { .. } => {
            "constants and code may find no room outside the pool".to_owned()
        }
        other => clause(other),
    }
}

/// Describes a condition as a headline has it: without what is told below.
fn phrase(condition: &Condition, each: &str) -> String {
    match condition {
        Condition::StoppedAtStep { stop, .. } => {
            let times = match stop.calls {
                1 => "1 call".to_owned(),
                calls => format!("{calls} calls"),
            };
            format!(
                "{each} ended after {times} of {}; what comes after them was not measured",
                stop.program
            )
        }
        Condition::LibraryScratch { library, high_bytes, available_bytes, .. } => format!(
            "{library} takes at most {} of scratch memory, of the {} that it may take",
            Bytes(*available_bytes),
            Bytes(*high_bytes)
        ),
        Condition::StillGrowing { step, .. } => {
            format!("the peak was still growing at step {step}")
        }
        Condition::PlaceholderDecides { site, expression, value, other_lines, .. } => {
            placeholders::assumption(site, expression.as_deref(), value.as_deref(), *other_lines)
        }
        Condition::HostMemory { host_bytes, .. } => {
            format!("the host has {} of free memory", Bytes(*host_bytes))
        }
        Condition::RanOnCpu { program, .. } => {
            format!("`{}` ran on the CPU and was not measured", program.name)
        }
        other => clause(other),
    }
}

/// Says what a call moves between GPU and host, and how long that takes at least.
fn link_traffic(traffic: &LinkTraffic) -> String {
    let time = traffic
        .seconds()
        .zip(traffic.link)
        .map(|(seconds, link)| format!(", {seconds:.1} s at the full rate of {}", link.label()));
    format!(
        "each call of `{}` that uses all of its memory moves at least {} over the link{}",
        traffic.program,
        Bytes(traffic.bytes),
        time.unwrap_or_default()
    )
}

/// Describes a condition in a clause.
pub(in crate::report) fn clause(condition: &Condition) -> String {
    match condition {
        Condition::SharedGpu { .. } => processes::clause(condition).unwrap_or_default(),
        Condition::ProcessFailed {
            error: Some(error), after, placeholder_read: Some(_), ..
        } => {
            let (after, cause) = (after_last(after.as_ref()), cause(error));
            format!("the program failed {after} because of a value that was not computed ({cause})")
        }
        Condition::ProcessFailed { exit, error, after, .. } => {
            let after = after_last(after.as_ref());
            match (error, exit) {
                (Some(error), _) => {
                    let cause = cause(error);
                    format!("the program failed with an error of its own {after} ({cause})")
                }
                (None, Some(exit)) => format!("the program {} {after}", describe_exit(*exit)),
                (None, None) => format!("the program failed with an error of its own {after}"),
            }
        }
        Condition::TraceEndsEarly { until: Some(event), .. } => {
            format!("this report covers the run until event {event}, as requested")
        }
        Condition::TraceEndsEarly { after, until: None } => format!(
            "the trace ends {}, before the program did (it was killed, or is still running)",
            after_last(after.as_ref())
        ),
        Condition::TotalRange { total_memory_bytes, max_total_memory_bytes } => format!(
            "the total memory of the GPU: this result is for {}, the lowest total that drivers report \
             for this model; with {}, the highest, the failed request succeeds. XLA may compile \
             differently there, and what the program requests next is unknown: run it with `--total \
             highest`, or with the total of your GPU in bytes",
            mebibytes(*total_memory_bytes),
            mebibytes(*max_total_memory_bytes)
        ),
        Condition::RanOnCpu { program, decides } => ran_on_cpu(program, *decides),
        Condition::HostsDiffer(mismatch) => hosts::mismatch_clause(mismatch),
        Condition::HostMemory { host_bytes, available_bytes: Some(available), .. }
            if host_bytes > available =>
        {
            format!(
                "unified memory would move {} to the host, which has {} free",
                Bytes(*host_bytes),
                Bytes(*available)
            )
        }
        Condition::HostMemory { peak_bytes, host_bytes, gpus, moved, .. } => format!(
            "with `TF_FORCE_UNIFIED_MEMORY`, {} of {} lie in host memory at the peak, which must be free there; {}; \
             estimated times do not contain that",
            Bytes(*host_bytes),
            match gpus {
                1 => Bytes(*peak_bytes).to_string(),
                gpus => format!("what {gpus} GPUs have in use"),
            },
            moved.as_ref().map_or_else(
                || "what a program uses of it moves over the link to the GPU".to_owned(),
                link_traffic
            )
        ),
        Condition::OtherLibraries { libraries } => {
            let names: Vec<String> =
                libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
            let whose = if names.len() == 1 { "its" } else { "their" };
            format!(
                "the program imports {}: {whose} GPU memory is not counted; `--occupied 6GiB`, for example, \
                 counts it",
                names.join(", ")
            )
        }
        Condition::OutsidePool { outside_bytes, available_bytes, is_certain, .. } => {
            let room = match is_certain {
                true => "there is only room for",
                false => "there may only be room for",
            };
            format!(
                "{} of constants and code lie outside the pool, where {room} {}",
                Bytes(*outside_bytes),
                Bytes(*available_bytes)
            )
        }
        Condition::LibraryScratch {
            library,
            routine,
            program,
            site,
            low_bytes,
            high_bytes,
            available_bytes,
        } => {
            let at = at_line(site);
            let comma = if at.is_empty() { "" } else { "," };
            format!(
                "the run fits only if {library} ({routine}) in `{program}`{at}{comma} uses at most {} \
                 of scratch memory; it may use {}",
                Bytes(*available_bytes),
                range(*low_bytes, *high_bytes)
            )
        }
        Condition::StoppedAtStep { steps, stop, evidence, exit } => {
            let site = match stop.site.as_str() {
                "" => String::new(),
                site => format!(" ({})", file_name(site)),
            };
            let why = match steps {
                StepLimit::Calls(_) => String::new(),
                StepLimit::Steady => {
                    format!(", {STEADY_CALLS} calls after the last program that was new")
                }
            };
            let exit = exit.map_or_else(String::new, |exit| {
                format!("; the program then {}", describe_exit(exit))
            });
            format!(
                "`--steps {steps}` stopped the run after call {} of `{}`{site}, the detected training \
                 step ({}){why}; anything after that is not included{exit}",
                stop.calls,
                stop.program,
                reason(*evidence)
            )
        }
        Condition::PlaceholderDecides { replaces_step: true, .. } => format!(
            "{}; the value was not computed, and no program with a backward pass ran: on the cluster it may",
            phrase(condition, "")
        ),
        Condition::PlaceholderDecides { .. } => format!(
            "{}; the value was not computed: where it differs on a GPU, the program may go another way, \
             with arrays of other sizes",
            phrase(condition, "")
        ),
        Condition::StillGrowing { program, step, previous_peak_bytes, peak_bytes } => format!(
            "the peak was still growing at step {step}, from {} to {}, when the run ended: later calls of \
             `{program}` may need more; measure more steps",
            Bytes(*previous_peak_bytes),
            Bytes(*peak_bytes)
        ),
        Condition::NoStepFound { steps, name, found, programs } => {
            no_step(*steps, name.as_deref(), found.as_ref(), programs)
        }
        Condition::CompiledOnly { plan, anything_ran } => {
            let ran = if *anything_ran {
                "it needs more than anything that was executed"
            } else {
                "nothing was executed on the GPU"
            };
            format!(
                "`{}` was compiled but not executed, and {ran}: {} is the sum of its arguments, \
                 outputs and temporaries as XLA planned them and of library scratch, without other arrays and \
                 rounding",
                plan.program,
                Bytes(plan.needed_bytes)
            )
        }
    }
}

fn ran_on_cpu(program: &CpuProgram, decides: bool) -> String {
    let name = format!("`{}`{}", program.name, at_line(&program.site));
    let selected_by = match program.selected_by.as_str() {
        "" => String::new(),
        selected_by => format!(" ({selected_by})"),
    };
    let needed = Bytes(program.needed_bytes);
    match (decides, program.backward) {
        (true, true) => format!("the training step ran on the CPU{selected_by}: {name}"),
        (true, false) => {
            format!("what needs most memory ran on the CPU{selected_by}: {name}, with {needed}")
        }
        (false, _) => format!(
            "{name} ran on the CPU{selected_by}, where it needs {needed}; nothing of it is in this result"
        ),
    }
}

fn reason(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Named => "selected by `--step`",
        Evidence::StateReturned => "its outputs come back as its arguments",
        Evidence::BackwardPass => "it has a backward pass",
        Evidence::MostMemory => "it needs most memory",
    }
}

fn no_step(
    steps: u64,
    name: Option<&str>,
    found: Option<&LastExecution>,
    programs: &[String],
) -> String {
    let whole = format!("`--steps {steps}` did not stop the run, which was simulated to its end");
    let names = match programs {
        [] => String::new(),
        names => format!("; programs that ran repeatedly: `{}`", names.join("`, `")),
    };
    match (name, found) {
        (_, Some(found)) => {
            let times = match found.call {
                1 => "once".to_owned(),
                calls => format!("{calls} times"),
            };
            let program = &found.program;
            format!("{whole}: the training step, `{program}`, ran only {times}")
        }
        (Some(name), None) => format!("{whole}: no program named `{name}` ran{names}"),
        (None, None) => format!(
            "{whole}: no training step was detected, a program with outputs that come back as its \
             arguments; select one with `--step NAME`{names}"
        ),
    }
}

fn after_last(execution: Option<&LastExecution>) -> String {
    match execution {
        None => "before the first execution".to_owned(),
        Some(last) => format!("after call {} of `{}`", last.call, last.program),
    }
}

fn cause(error: &UncaughtError) -> String {
    let at = match error.site.as_str() {
        "" => String::new(),
        site => format!(" at {}", file_name(site)),
    };
    let message = match error.message.as_str() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    format!("{}{at}{message}", error.name)
}

fn describe_exit(exit: ProcessExit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
        (None, None) => "ended abnormally".to_owned(),
    }
}

/// Returns the name of a signal of Linux that ends programs; their numbers are the same on every
/// architecture that has a CUDA driver.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
