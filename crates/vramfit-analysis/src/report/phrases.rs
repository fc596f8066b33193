//! Phrases about runs that several sections use, and those of [`crate::section`].

use crate::analysis::{RequestContext, RunSummary};
use crate::program::memory::Undonated;
pub(super) use crate::section::phrases::{
    at_line, estimated_range, estimated_time, file_name, line_or_unknown, mebibytes, more_in_json,
    part_of, range, short_line,
};

/// Returns the bytes of some arguments, and names the largest, as the subject of a sentence: "`x` is", "`x` and 3 more
/// arguments are".
pub(super) fn largest_argument<'a>(
    arguments: impl Iterator<Item = &'a Undonated> + Clone,
) -> Option<(u64, String)> {
    let bytes = arguments.clone().map(|one| one.bytes).sum();
    let largest = arguments.clone().max_by_key(|one| one.bytes)?;
    let which = match arguments.count() - 1 {
        0 => format!("{} is", largest.label()),
        1 => format!("{} and 1 more argument are", largest.label()),
        more => format!("{} and {more} more arguments are", largest.label()),
    };
    Some((bytes, which))
}

/// Returns `true` if a run fits.
pub(super) fn fits_phrase(fits: Option<bool>) -> &'static str {
    match fits {
        Some(true) => "fits",
        Some(false) => "does not fit",
        None => "unknown",
    }
}

/// Says in which program, or between which.
pub(super) fn time_phrase(context: &RequestContext) -> String {
    match &context.program {
        Some(program) => format!("in `{program}`"),
        None if context.site.is_empty() => "between programs".to_owned(),
        None => format!("at {}", file_name(&context.site)),
    }
}

/// Says what was allocated, by which call of which program, and at which line.
pub(super) fn allocation_phrase(context: &RequestContext) -> String {
    let what = context.purpose.label();
    let site = at_line(&context.site);
    match &context.program {
        Some(program) => format!("{what} of `{program}`, call {}{site}", context.call),
        None if context.call == 0 => format!("{what}, before the first execution{site}"),
        None => format!("{what}, after {}{site}", executions(context.call)),
    }
}

pub(super) fn executions(count: u64) -> String {
    match count {
        1 => "1 execution".to_owned(),
        count => format!("{count} executions"),
    }
}

/// Returns `, GPU N` where the process sees several.
pub(super) fn gpu_suffix(summary: &RunSummary, device: u32) -> String {
    match summary.devices.len() {
        0 | 1 => String::new(),
        _ => format!(", GPU {}", summary.header.gpu_of(device)),
    }
}
