//! What the figures of a dry run leave out, and what about them is not exact.

use crate::bytes::Bytes;
use crate::gpu::{self, Certainty};
use crate::trace::Answer;

/// Returns one sentence for each thing that the figures do not cover.
pub(super) fn not_covered(answer: &Answer) -> Vec<String> {
    let header = &answer.header;
    let mut points = Vec::new();
    if !answer.complete {
        points.push(
            "the rest of the run: it was cut off, and the figures are those up to there".to_owned(),
        );
    }
    points.extend(made_up_shapes(answer));
    points.push(
        "memory of cuBLAS, cuDNN, NCCL and CUDA graphs, which lies outside the pool; the context \
         above is an estimate"
            .to_owned(),
    );
    if let Some(device) = answer.worst_device() {
        let pool = device.pool_bytes.unwrap_or(device.peak_bytes);
        let beside = header
            .context_bytes
            .saturating_add(device.outside_bytes)
            .saturating_add(header.taken_bytes);
        if pool.saturating_add(beside) > header.total_memory_bytes {
            let over = Bytes(pool.saturating_add(beside) - header.total_memory_bytes);
            points.push(format!(
                "what lies outside the pool does not fit beside it: {over} too much; take a \
                 smaller share for the pool"
            ));
        }
    }
    points.push(autotuning(answer));
    let other: Vec<_> = answer
        .programs
        .iter()
        .filter(|program| !program.rung.is_empty())
        .collect();
    if let Some(first) = other.first() {
        let count = other.len();
        points.push(format!(
            "{count} of {} programs did not compile with the compiler's default choices; `{}` did \
             with `{}`",
            answer.programs.len(),
            first.name,
            first.rung
        ));
    }
    if let Some(model) = answer.allocator_model {
        points.push(format!(
            "the allocator `{}` is a model: {model}",
            header.allocator
        ));
    }
    let card = gpu::all().iter().find(|gpu| gpu.name == header.gpu);
    if card.is_some_and(|gpu| gpu.memory_certainty == Certainty::Estimated) {
        points.push(format!(
            "the total memory of {}: no driver's report of it is known, {} is an estimate",
            header.gpu,
            Bytes(header.total_memory_bytes)
        ));
    }
    points
}

/// Where the program goes on with arrays that have another size on a card.
fn made_up_shapes(answer: &Answer) -> Option<String> {
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

/// What is not known of the kernels that a card's autotuner would choose.
fn autotuning(answer: &Answer) -> String {
    let kernels = if answer.header.autotune_results {
        "autotuning: kernels that are not in the results given are the compiler's default ones"
    } else {
        "autotuning: without a card the compiler takes its default kernels"
    };
    let rest = match &answer.bracket {
        None => "other choices moved the peak of whole programs by up to 12 % in tests; \
                 `--bracket` measures what they do to this one"
            .to_owned(),
        Some(bracket) => {
            let unmeasured = match bracket.unmeasured {
                0 => String::new(),
                count => format!("; {count} large programs could not be compiled another way"),
            };
            format!("the bracket leaves out convolutions and workspaces of cuDNN{unmeasured}")
        }
    };
    format!("{kernels}; {rest}")
}
