//! A verdict in words, the same in text, JSON and page.

use serde_json::{Value as Json, json};

use super::{Body, Section, dryrun, processes};
use crate::analysis::{Condition, Evidence, LastExecution, RunSummary};
use crate::bytes::Bytes;
use crate::trace::{ProgramExit, UncaughtError};

/// Returns what the answer depends on, for the JSON: `fits`, and each condition with its `text`.
pub(super) fn record(answer: &RunSummary) -> Json {
    let verdict = answer.verdict();
    let conditions = verdict.conditions.iter().map(|condition| {
        let mut told = serde_json::to_value(condition).expect("the keys are texts");
        told["text"] = words(condition).into();
        told["leaves_open"] = condition.leaves_open().into();
        told
    });
    let conditions: Vec<Json> = conditions.collect();
    json!({"fits": verdict.fits, "conditions": conditions})
}

/// Returns the conditions that the headline does not say already, where there are any.
pub(super) fn section(answer: &RunSummary) -> Option<Section> {
    let verdict = answer.verdict();
    let in_headline = usize::from(verdict.fits.is_none());
    let points = verdict.conditions.iter().skip(in_headline).map(words);
    let points: Vec<String> = points.collect();
    let title = "what this answer depends on";
    (!points.is_empty()).then(|| dryrun::section(title, Body::Text(points)))
}

/// Puts a condition into a clause.
pub(super) fn words(condition: &Condition) -> String {
    match condition {
        Condition::SharedGpu { .. } => processes::words(condition).unwrap_or_default(),
        Condition::ProgramFailed {
            exit, error, after, ..
        } => {
            let after = last(after.as_ref());
            match (error, exit) {
                (Some(error), _) => {
                    let cause = cause(error);
                    format!("the program stopped by its own error {after} ({cause})")
                }
                (None, Some(exit)) => format!("the program {} {after}", ended(*exit)),
                (None, None) => format!("the program stopped by its own error {after}"),
            }
        }
        Condition::TraceEndsEarly { after } => format!(
            "the trace ends {}, before the program did (it was killed, or still runs)",
            last(after.as_ref())
        ),
        Condition::TotalRange {
            total_memory_bytes,
            max_total_memory_bytes,
        } => format!(
            "the driver's total: {} decides, the lowest that is reported for such a GPU; with {}, the \
             highest, the request that was refused is met. XLA may compile otherwise there, and what \
             the program asks for after it is not known: run it with `--total highest`, or with the \
             total of your GPU in bytes",
            mebibytes(*total_memory_bytes),
            mebibytes(*max_total_memory_bytes)
        ),
        Condition::LibraryScratch {
            library,
            routine,
            program,
            site,
            low_bytes,
            high_bytes,
            available_bytes,
        } => {
            let at = match site.is_empty() {
                true => String::new(),
                false => format!(", at {site},"),
            };
            let range = match low_bytes {
                0 => format!("up to {}", Bytes(*high_bytes)),
                low => format!("{} to {}", Bytes(*low), Bytes(*high_bytes)),
            };
            format!(
                "it fits only if {library} ({routine}) in `{program}`{at} takes no more than {} of \
                 scratch memory; it may take {range}",
                Bytes(*available_bytes)
            )
        }
        Condition::CutAtStep {
            steps,
            cut,
            evidence,
            exit,
        } => {
            let (program, calls) = (&cut.program, cut.calls);
            let at = match cut.site.is_empty() {
                true => String::new(),
                false => format!(" ({})", cut.site),
            };
            let why = why(*evidence);
            let exit = exit.map_or_else(String::new, |exit| {
                format!("; the program then {}", ended(exit))
            });
            format!(
                "the run was cut after call {calls} of `{program}`{at}, as `--steps {steps}` asks: \
                 it was taken for the training step, since {why}; what would come after it is not \
                 in this answer{exit}"
            )
        }
        Condition::NoStepFound {
            steps,
            name,
            found,
            programs,
        } => no_step(*steps, name.as_deref(), found.as_ref(), programs),
        Condition::PlanOnly { plan, anything_ran } => {
            let ran = match anything_ran {
                true => "it needs more than anything that ran",
                false => "nothing ran on the GPU",
            };
            format!(
                "`{}` was compiled and did not run, and {ran}: {} are the arguments, results and \
                 temporaries of its plan, alone on the GPU and without rounding",
                plan.program,
                Bytes(plan.needed_bytes)
            )
        }
    }
}

fn why(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Named => "`--step` names it",
        Evidence::StateReturned => "its results come back as its arguments",
        Evidence::BackwardPass => "it has a backward pass",
        Evidence::MostMemory => "it needed most",
    }
}

fn no_step(
    steps: u64,
    name: Option<&str>,
    found: Option<&LastExecution>,
    programs: &[String],
) -> String {
    let whole = format!("`--steps {steps}` did not cut the run, which was followed to its end");
    let names = match programs {
        [] => String::new(),
        names => format!("; repeatedly ran: `{}`", names.join("`, `")),
    };
    match (name, found) {
        (_, Some(found)) => {
            let times = match found.call {
                1 => "once".to_owned(),
                calls => format!("{calls} times"),
            };
            format!(
                "{whole}: the training step, `{}`, ran {times}",
                found.program
            )
        }
        (Some(name), None) => format!("{whole}: no program called `{name}` ran{names}"),
        (None, None) => format!(
            "{whole}: no program was found to be a training step, one whose results come back as its \
             arguments; `--step NAME` names it{names}"
        ),
    }
}

/// Writes a total in whole MiB: totals of one kind of GPU are told apart by a few of them.
pub(super) fn mebibytes(bytes: u64) -> String {
    let digits = (bytes >> 20).to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " MiB"
}

fn last(after: Option<&LastExecution>) -> String {
    match after {
        None => "before anything was executed".to_owned(),
        Some(last) => format!("after call {} of `{}`", last.call, last.program),
    }
}

fn cause(error: &UncaughtError) -> String {
    let at = match error.site.is_empty() {
        true => String::new(),
        false => format!(" at {}", error.site),
    };
    let message = match error.message.is_empty() {
        true => String::new(),
        false => format!(": {}", error.message),
    };
    format!("{}{at}{message}", error.name)
}

fn ended(exit: ProgramExit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
        (None, None) => "did not end properly".to_owned(),
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
