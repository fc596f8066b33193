//! What `vramfit explain --json` prints.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;

use crate::explain::{Cause, Explanation, Figures, Remedy, Verdict};
use crate::settings::MAX_FRACTION;

pub(in crate::report) fn explain(explanation: &Explanation) -> Value {
    let verdict = match explanation.verdict() {
        Verdict::Memory => "memory",
        Verdict::NotMemory => "not-memory",
        Verdict::Unrecognized => "unrecognized",
    };
    let buffers = explanation.buffers.iter().map(|buffer| {
        json!({
            "bytes": buffer.bytes,
            "shape": buffer.shape,
            "operation": non_empty(&buffer.operation),
            "site": non_empty(&buffer.site),
            "is_argument": buffer.is_argument,
        })
    });
    json!({
        "schema": JSON_SCHEMA,
        "verdict": verdict,
        "causes": explanation.causes.iter().map(cause).collect::<Vec<_>>(),
        "figures": figures(&explanation.figures),
        "remedies": explanation.remedies.iter().map(remedy).collect::<Vec<_>>(),
        "buffers": buffers.collect::<Vec<_>>(),
        "array_holders": explanation.array_holders,
        "later_error": explanation.later_error.as_ref().map(|error| json!({
            "class": error.class,
            "evidence": error.evidence,
        })),
        "recovery": explanation.recovery.map(|recovery| {
            let (kind, line) = recovery.label_and_line();
            json!({"kind": kind, "line": line})
        }),
        "notes": explanation.notes,
    })
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn cause(cause: &Cause) -> Value {
    json!({
        "id": cause.id.id(),
        "confidence": cause.confidence.label(),
        "summary": cause.summary,
        "evidence": cause.evidence,
        "falsified_by": cause.falsified_by,
        "next_command": non_empty(&cause.next_command),
    })
}

fn remedy(remedy: &Remedy) -> Value {
    json!({
        "id": remedy.id,
        "text": remedy.text,
        "command": non_empty(&remedy.command),
        "bytes": remedy.bytes,
        "basis": remedy.basis.label(),
        "outcome": non_empty(&remedy.outcome),
    })
}

fn figures(figures: &Figures) -> Value {
    let fits = &figures.fits;
    json!({
        "requested_bytes": figures.requested_bytes,
        "requested_is_exact": figures.requested_is_exact,
        "rounded_bytes": figures.rounded_bytes,
        "program": figures.program,
        "in_use_bytes": figures.in_use_bytes,
        "in_use_is_at_end": figures.in_use_is_at_end,
        "peak_in_use_bytes": figures.peak_in_use_bytes,
        "limit_bytes": figures.limit_bytes,
        "pool_bytes": figures.pool_bytes,
        "free_bytes": figures.free_bytes,
        "largest_free_block_bytes": figures.largest_free_block_bytes,
        "largest_fit": {
            "is_exact": fits.is_exact,
            "now_bytes": fits.now,
            "by_growing_bytes": fits.by_growing,
            "without_fragmentation_bytes": fits.without_fragmentation,
            "preallocated_bytes": fits.preallocated,
            "growing_bytes": fits.growing,
            "partitioned_bytes": fits.partitioned,
            "raised_fraction": MAX_FRACTION,
            "raised_fraction_bytes": fits.raised_fraction,
        },
        "bins": figures.bins,
        "program_need": figures.need,
        "needed_bytes": figures.needed_bytes,
        "needed_is_least": figures.needed_is_least,
        "needed_is_most": figures.needed_is_most,
        "gpu": figures.gpu,
        "gpu_total_bytes": figures.gpu_total_bytes,
        "gpu_free_bytes": figures.gpu_free_bytes,
        "jax": figures.jax.map(|(major, minor, patch)| format!("{major}.{minor}.{patch}")),
    })
}
