//! What takes the memory, in a few lines below the headline.

use super::devices;
use crate::analysis::{
    AttributionEntry, Cause, CauseGroup, CreatedArrays, EntryKind, LeakSummary, ReplicatedArrays,
    RunSummary, UndividedBatch, ValueSize, facts,
};
use crate::bytes::Bytes;
use crate::program::memory::Owner;
use crate::report::phrases::{file_name, largest_argument, line_or_unknown};

/// Lines of one group that are named.
const MAX_LINES: usize = 2;

/// Constants that are less than one in this many of the bytes in use are not named.
const MIN_CONSTANTS_FRACTION: u64 = 10;
/// Nor are smaller ones.
const MIN_CONSTANT_BYTES: u64 = 1 << 20;

/// Returns what takes the memory, the most important first: at most three sentences.
pub(in crate::report) fn sentences(summary: &RunSummary) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(fragmentation(summary));
    sentences.extend(summary.leaks.first().filter(|it| summary.is_relevant(it)).map(leak));
    sentences.extend(unused_gpus(summary));
    sentences.extend(whole_batch(summary));
    let attribution = summary.attribution.as_ref();
    let replicated = attribution.and_then(|attribution| attribution.replicated.as_ref());
    match undivided_batch(summary) {
        Some(batch) => sentences.push(batch.describe()),
        None => sentences.extend(replicated.map(ReplicatedArrays::describe)),
    }
    if let Some(cause) = Cause::of(summary) {
        let first = &cause.groups[0];
        sentences.push(format!("largest part: {}", group(first, cause.total_bytes, summary)));
        sentences.extend(describe_holder(summary, cause.total_bytes));
        sentences.extend(update_outside(summary, cause.total_bytes));
        sentences.extend(constants(summary, cause.total_bytes));
        // What was measured says more than what would remain.
        let remainder = remainder(&cause, summary);
        sentences.extend(remainder.filter(|_| summary.measured_edits.is_empty()));
    }
    sentences.truncate(3);
    sentences
}

pub(super) fn fragmentation(summary: &RunSummary) -> Option<String> {
    let failure = summary.out_of_memory().filter(|it| it.fragmented())?;
    let largest = failure.pool.largest_free_block_bytes?;
    Some(format!(
        "fragmented: {} are free in total, but the largest free block has {}",
        Bytes(failure.free_bytes()?),
        Bytes(largest)
    ))
}

/// Names the GPUs that could take a part.
fn unused_gpus(summary: &RunSummary) -> Option<String> {
    let unused = devices::unused(summary)?;
    let verb = if unused.starts_with("GPUs") { "are" } else { "is" };
    Some(format!(
        "{unused} {verb} not used: the program puts no array there; `jax.device_put` with a `NamedSharding` divides the \
         batch or the state among GPUs"
    ))
}

/// Says that XLA has not kept the batch divided, where keeping it so was measured and helps.
pub(super) fn whole_batch(summary: &RunSummary) -> Option<String> {
    let needed_bytes = summary.needed_bytes();
    let mut measured = summary.measured_edits.iter();
    measured.find(|edit| edit.kinds == ["constrain_batch"] && edit.helps(needed_bytes))?;
    Some(summary.program_memory.as_ref()?.whole_batch.as_ref()?.describe())
}

/// Returns the batch that each GPU has in full, where all of them compute the same in the program of the peak.
pub(super) fn undivided_batch(summary: &RunSummary) -> Option<&UndividedBatch> {
    let program = summary.program_memory.as_ref()?;
    let is_of_peak = Some(program.program) == summary.attribution.as_ref()?.program;
    program.undivided_batch.as_ref().filter(|_| is_of_peak)
}

/// Names what holds most of the arrays, where memory ran out or grows.
fn describe_holder(summary: &RunSummary, total_bytes: u64) -> Option<String> {
    match shows_holders(summary) {
        true => facts::array_holders::sentence(&summary.array_holders, total_bytes),
        false => None,
    }
}

/// Returns `true` if it matters who holds arrays.
pub(in crate::report) fn shows_holders(summary: &RunSummary) -> bool {
    summary.is_refused() || summary.has_relevant_leak()
}

pub(super) fn leak(leak: &LeakSummary) -> String {
    let kind = if leak.is_training { "possible memory leak" } else { "memory grows" };
    format!("{kind}: {}, from {}", leak.describe_growth(), file_name(line_or_unknown(&leak.site)))
}

/// Says that gradients are arrays, since the update is no part of the program that computes them.
fn update_outside(summary: &RunSummary, total_bytes: u64) -> Option<String> {
    let bytes = summary.gradient_array_bytes()?;
    (bytes * MIN_CONSTANTS_FRACTION >= total_bytes).then(|| {
        format!(
            "the update runs outside the `jit` that computes the gradients: {} are gradients, arrays of their \
             own beside old and new parameters",
            Bytes(bytes)
        )
    })
}

/// Names the program with the most constants, which lie outside of the pool.
fn constants(summary: &RunSummary, total_bytes: u64) -> Option<String> {
    let programs = summary.programs.iter().filter(|program| program.calls > 0);
    let program = programs.max_by_key(|program| program.sizes.constant_bytes)?;
    let bytes = program.sizes.constant_bytes;
    (bytes * MIN_CONSTANTS_FRACTION >= total_bytes && bytes >= MIN_CONSTANT_BYTES).then(|| {
        format!(
            "outside the pool: {} are constants of `{}`, values that its function captured; pass them as \
             arguments",
            Bytes(bytes),
            program.name
        )
    })
}

/// Describes a group: how much of the whole, what it is, and from which lines.
fn group(group: &CauseGroup, total_bytes: u64, summary: &RunSummary) -> String {
    let bytes = format!("{} of {}", Bytes(group.bytes), Bytes(total_bytes));
    let largest = &group.largest;
    if group.is_values() {
        return format!("{bytes} are {}{}", values(group), from_lines(&group.lines));
    }
    if let Some(name) = group.workspace() {
        return format!("{bytes} are the {name}{}", from_lines(&group.lines));
    }
    let count = match group.count {
        1 => "one array".to_owned(),
        count => format!("{count} arrays"),
    };
    let kind = largest.kind.label();
    if let Some(created) = created(group, summary) {
        return format!("{bytes} are {}", created.describe(group.count, group.bytes));
    }
    match largest.kind {
        EntryKind::Arrays => format!("{bytes} are {count}{}", origin(group)),
        EntryKind::OtherArrays if summary.script_keeps_arrays() => {
            format!("{bytes} are {count} that the script keeps{}", origin(group))
        }
        EntryKind::OtherArrays => format!("{bytes} are {count}{}", origin(group)),
        EntryKind::Program(Owner::Outputs) => match undonated(summary) {
            Some(which) => format!("{bytes} are outputs: {}", replacements(&which, summary)),
            None => format!("{bytes} are outputs{}", named(group)),
        },
        _ => format!("{bytes} are {kind}{}", named(group)),
    }
}

/// Returns the arrays of a group, where a line creates them one after the other.
pub(super) fn created<'a>(
    group: &CauseGroup,
    summary: &'a RunSummary,
) -> Option<&'a CreatedArrays> {
    let are_arrays = matches!(group.largest.kind, EntryKind::Arrays | EntryKind::OtherArrays);
    summary.created_at(&group.largest.site).filter(|_| are_arrays)
}

/// Describes values that a program computes, without their bytes.
fn values(group: &CauseGroup) -> String {
    let AttributionEntry { kind, stacked, .. } = &group.largest;
    let stacked = match stacked {
        true => ", one slice per iteration of a loop",
        false => "",
    };
    let like = |size: &ValueSize| format!("as large as `{}`", size.shape);
    let all = match &group.sizes[..] {
        [only] if only.count == 1 => {
            format!("one buffer of the {}, `{}`", kind.label(), only.shape)
        }
        [only] => format!("{} {}", buffers(only.count), like(only)),
        [first, second] => format!(
            "{} {} and {} {}",
            buffers(first.count),
            like(first),
            count_word(second.count),
            like(second)
        ),
        [first, rest @ ..] => format!(
            "{} {} and {} smaller ones with as many elements",
            buffers(first.count),
            like(first),
            // Of at least two sizes.
            count_word(rest.iter().map(|size| size.count).sum::<u64>())
        ),
        [] => buffers(group.count),
    };
    format!("{all}{stacked}")
}

fn buffers(count: u64) -> String {
    match count {
        1 => "one buffer".to_owned(),
        count => format!("{} buffers", count_word(count)),
    }
}

fn count_word(count: u64) -> String {
    const WORDS: [&str; 9] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let word = usize::try_from(count).ok().and_then(|count| WORDS.get(count.checked_sub(1)?));
    word.map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

/// Names the largest entry of an owner.
fn named(group: &CauseGroup) -> String {
    let largest = &group.largest;
    let name = match (largest.path.as_str(), largest.shape.as_str()) {
        ("", "") => return from_lines(&group.lines),
        ("", shape) => format!("`{shape}`{}", from_lines(&group.lines)),
        (path, "") => format!("`{path}`"),
        (path, shape) => format!("`{path}`, `{shape}`"),
    };
    // Counters and the table of outputs beside one large array are not worth a word.
    let is_nearly_all = largest.count == 1 && largest.bytes >= group.bytes - group.bytes / 100;
    match is_nearly_all {
        true => format!(": {name}"),
        false => format!(" in {} arrays, the largest {name}", group.count),
    }
}

/// Says where arrays come from; where no line is known, what made them.
fn origin(group: &CauseGroup) -> String {
    match (group.lines.is_empty(), group.largest.made_by.as_str()) {
        (true, "") => String::new(),
        (true, "upload") => ", copied from the host".to_owned(),
        (true, program) => format!(", made by `{program}`"),
        (false, _) => from_lines(&group.lines),
    }
}

/// Says from which lines something comes.
fn from_lines(lines: &[(String, u64)]) -> String {
    let shown: Vec<&str> = lines.iter().take(MAX_LINES).map(|(line, _)| file_name(line)).collect();
    let more = match lines.len().saturating_sub(MAX_LINES) {
        0 => String::new(),
        1 => " and 1 more line".to_owned(),
        more => format!(" and {more} more lines"),
    };
    match shown[..] {
        [] => String::new(),
        [one] => format!(", from {one}"),
        [first, second] if more.is_empty() => format!(", from {first} and {second}"),
        _ => format!(", from {}{more}", shown.join(", ")),
    }
}

/// Names the arguments that outputs replace, where most of the bytes of the outputs are theirs, up to "are returned".
pub(super) fn undonated(summary: &RunSummary) -> Option<String> {
    let attribution = summary.attribution.as_ref()?;
    let program = summary.program_memory.as_ref()?;
    let memory = &program.memory;
    let kept = memory
        .undonated
        .iter()
        .filter(|one| !one.is_donated() && Some(program.program) == attribution.program);
    let (bytes, which) = largest_argument(kept)?;
    (bytes * 2 >= memory.bytes_of(Owner::Outputs)).then(|| format!("{which} returned"))
}

/// Returns the peak with these arguments donated, where that was measured and brings nothing.
pub(super) fn useless_donation(summary: &RunSummary) -> Option<u64> {
    let needed_bytes = summary.needed_bytes();
    let edits = summary.measured_edits.iter().filter(|edit| edit.kinds == ["donate"]);
    let mut useless = edits.filter(|edit| !edit.helps(needed_bytes));
    useless.find_map(|edit| edit.peak_bytes)
}

/// Says of outputs which arguments they replace, and what follows.
fn replacements(arguments: &str, summary: &RunSummary) -> String {
    match useless_donation(summary) {
        None => format!("{arguments} updated and not donated"),
        Some(peak_bytes) => format!(
            "{arguments} updated; with them donated it is {}, measured: XLA computes them in new buffers, as it does \
             the stacked outputs of a `lax.scan`, whose carry it updates in place",
            Bytes(peak_bytes)
        ),
    }
}

/// Says what would remain without the largest part, or what comes next.
fn remainder(cause: &Cause, summary: &RunSummary) -> Option<String> {
    let Some(next) = &cause.next_peak else {
        let second = cause.groups.get(1)?;
        let is_large = second.bytes * 4 >= cause.total_bytes;
        return is_large.then(|| format!("then: {}", group(second, cause.total_bytes, summary)));
    };
    let device = summary.critical_device()?;
    let limit = Bytes(device.capacity_bytes);
    let (without, enough) = match (summary.is_refused(), next.total_bytes > device.capacity_bytes) {
        (true, true) => ("even without", format!(", still more than {limit}")),
        (true, false) => ("without", format!(", less than {limit}")),
        (false, _) => ("even without", String::new()),
    };
    let them = if cause.groups.first()?.count == 1 { "it" } else { "them" };
    let what = match next.group.workspace() {
        _ if next.group.is_values() => {
            format!("{}{}", values(&next.group), from_lines(&next.group.lines))
        }
        Some(name) => format!("the {name}"),
        None => next.group.largest.kind.label().to_owned(),
    };
    Some(format!(
        "{without} {them} the peak would be about {}{enough}; {} of it: {what}",
        Bytes(next.total_bytes),
        Bytes(next.group.bytes)
    ))
}
