//! What the figures of a dry run or a replay leave out, and what about them is not exact.

use super::{processes, scratch};
use crate::analysis::{Comparison, RunSummary};
use crate::bytes::Bytes;
use crate::gpu::{self, Certainty};

/// Programs whose values were not computed that are named; JSON has them all.
const NOT_COMPUTED_TOLD: usize = 3;

/// Returns one sentence for each thing that the figures of a dry run do not cover.
pub(super) fn not_covered(answer: &RunSummary) -> Vec<String> {
    let mut points = Vec::new();
    points.extend(cut_off(answer));
    points.extend(made_up_shapes(answer));
    points.extend(not_computed(answer));
    points.push(
        "memory of NCCL, of CUDA graphs and of the handles of cuBLAS and cuDNN, which lies outside \
         the pool; the context above is an estimate"
            .to_owned(),
    );
    points.extend(scratch::not_covered(answer));
    points.extend(beside_the_pool(answer));
    points.extend(processes::not_covered(answer));
    points.push(autotuning(answer));
    points.extend(other_choices(answer));
    points.extend(model(answer));
    points.extend(card(answer));
    points
}

/// Returns one sentence for each thing that the figures of a replay do not cover.
pub(super) fn not_replayed(comparison: &Comparison) -> Vec<String> {
    let after = &comparison.after;
    let mut points = Vec::new();
    if comparison.ends_at_refusal {
        points.push(
            "what the program does after the request that is not met: the run had it met, so the \
             figures after the change are those up to there"
                .to_owned(),
        );
    }
    if comparison.met.is_some() {
        points.push(
            "what the program does after the request that is met now: the run was refused it, so \
             the figures after the change are those up to there; a dry run with these settings \
             tells"
                .to_owned(),
        );
    }
    points.extend(compiled_anew(comparison));
    points.extend(shared_card(comparison));
    points.extend(cut_off(after));
    points.push(format!(
        "memory of NCCL, of CUDA graphs and of the handles of cuBLAS and cuDNN, which lies outside \
         the pool; the context is taken to be {}, an estimate",
        Bytes(after.header.context_bytes)
    ));
    points.extend(scratch::not_covered(after));
    points.extend(beside_the_pool(after));
    points.extend(model(after));
    points.extend(card(after));
    points
}

/// What XLA would have compiled otherwise.
fn compiled_anew(comparison: &Comparison) -> Option<String> {
    let before = comparison.before.as_ref()?;
    let limit = |answer: &RunSummary| answer.devices.first().and_then(|device| device.limit_bytes);
    let what = if before.header.gpu != comparison.after.header.gpu {
        "on another card the compiler takes other kernels and fits programs into another limit"
    } else if limit(before) != limit(&comparison.after) {
        "XLA fits programs into the limit (it reorders and recomputes), and this is another one"
    } else {
        return None;
    };
    Some(format!(
        "other temporaries: {what}; the replay has those of the run; a dry run with these settings \
         compiles anew"
    ))
}

/// Says so when nothing was changed and the figures are others all the same.
fn shared_card(comparison: &Comparison) -> Option<String> {
    let (before, after) = (comparison.before.as_ref()?, &comparison.after);
    let pools = |answer: &RunSummary| -> Vec<_> {
        let devices = answer.devices.iter();
        devices.map(|device| device.pool_bytes).collect()
    };
    let held = before.devices.iter().map(|one| one.held_by_others_bytes);
    if let Some(held) = held.max().filter(|held| *held > 0) {
        return Some(format!(
            "other processes on the GPU: in the run they held up to {}, here nobody shares the \
             card; `--occupied` counts what others hold",
            Bytes(held)
        ));
    }
    (before.header == after.header && pools(before) != pools(after)).then(|| {
        "what the card itself granted: other processes or another driver answered in the run, here \
         a card that nobody shares"
            .to_owned()
    })
}

fn cut_off(answer: &RunSummary) -> Option<String> {
    let text = "the rest of the run: it was cut off, and the figures are those up to there";
    (!answer.complete).then(|| text.to_owned())
}

/// Says so when pool and what lies outside of it do not go together on the card.
fn beside_the_pool(answer: &RunSummary) -> Option<String> {
    let header = &answer.header;
    let device = answer.worst_device()?;
    let pool = device.pool_bytes.unwrap_or(device.peak_bytes);
    let beside = header
        .context_bytes
        .saturating_add(device.outside_bytes)
        .saturating_add(header.occupied_bytes);
    let over = pool.saturating_add(beside);
    let over = over.checked_sub(header.total_memory_bytes)?;
    (over > 0).then(|| {
        format!(
            "what lies outside the pool does not fit beside it: {} too much; take a smaller share \
             for the pool",
            Bytes(over)
        )
    })
}

/// Names the programs that the compiler did not compile as it would by default.
fn other_choices(answer: &RunSummary) -> Option<String> {
    let programs = answer.programs.iter();
    let other: Vec<_> = programs
        .filter(|program| !program.compile_attempt.is_empty())
        .collect();
    let first = other.first()?;
    Some(format!(
        "{} of {} programs did not compile with the compiler's default choices; `{}` did with `{}`",
        other.len(),
        answer.programs.len(),
        first.name,
        first.compile_attempt
    ))
}

fn model(answer: &RunSummary) -> Option<String> {
    let model = answer.allocator_model?;
    let name = &answer.header.allocator;
    Some(format!("the allocator `{name}` is a model: {model}"))
}

fn card(answer: &RunSummary) -> Option<String> {
    let header = &answer.header;
    let card = gpu::all().iter().find(|gpu| gpu.name == header.gpu)?;
    (card.memory_certainty == Certainty::Estimated).then(|| {
        format!(
            "the total memory of {}: no driver's report of it is known, {} is an estimate",
            header.gpu,
            Bytes(header.total_memory_bytes)
        )
    })
}

/// Where the program goes on with arrays that have another size on a card.
fn made_up_shapes(answer: &RunSummary) -> Option<String> {
    let shapes: u64 = answer.unknown_reads.iter().map(|reads| reads.shapes).sum();
    let first = answer.unknown_reads.first().filter(|_| shapes > 0)?;
    let at = match first.site.is_empty() {
        true => String::new(),
        false => format!(", at {}", first.site),
    };
    let more = match shapes {
        1 => String::new(),
        count => format!(" and {} more like it", count - 1),
    };
    Some(format!(
        "a shape that depends on values which are not known here{at}{more}: the arrays made so, and \
         what is made of them, have other sizes on a card, and so has the peak if they are in it"
    ))
}

/// Which values were not computed any more, and why.
fn not_computed(answer: &RunSummary) -> Vec<String> {
    if answer.not_computed.iter().any(|row| row.reason == "off") {
        let text = "values that programs compute: none was computed, as asked (`--no-values`), and \
                    every one reads as made up";
        return vec![text.to_owned()];
    }
    let rows = answer.not_computed.iter().take(NOT_COMPUTED_TOLD).map(|row| {
        let seconds = row.spent_ms as f64 / 1000.0;
        let why = match row.reason.as_str() {
            "run_budget" => "computing values had used up the budget of the whole run".to_owned(),
            _ if row.spent_ms == 0 => "computing them would have taken too long".to_owned(),
            _ => format!("computing them had taken {seconds:.1} s, all that one program may take"),
        };
        format!(
            "values of `{}`, made up from some call on: {why}; `VRAMFIT_VALUES_BUDGET` gives more \
             seconds, `--no-values` none",
            row.program
        )
    });
    let mut points: Vec<_> = rows.collect();
    match answer.not_computed.len().saturating_sub(NOT_COMPUTED_TOLD) {
        0 => {}
        more => points.push(format!(
            "values of {more} more programs, for the same reasons"
        )),
    }
    points
}

/// What is not known of the kernels that a card's autotuner would choose.
fn autotuning(answer: &RunSummary) -> String {
    let kernels = if answer.header.autotune_results {
        "autotuning: kernels that are not in the results given are the compiler's default ones"
    } else {
        "autotuning: without a card the compiler takes its default kernels"
    };
    let rest = match &answer.autotune_range {
        None => "other choices moved the peak of whole programs by up to 12 % in tests; \
                 `--autotune-range` measures what they do to this one"
            .to_owned(),
        Some(autotune_range) => {
            let unmeasured = match autotune_range.unmeasured {
                0 => String::new(),
                count => format!("; {count} large programs could not be compiled another way"),
            };
            format!("the range of the peak leaves out convolutions{unmeasured}")
        }
    };
    format!("{kernels}; {rest}")
}
