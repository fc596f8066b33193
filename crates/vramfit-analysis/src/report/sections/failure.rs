//! The first request that failed, and why a program may have failed by itself.

use crate::analysis::{AllocationFailure, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::{allocation_phrase, line_or_unknown};
use crate::report::{Content, Metric, Section, Value};

/// Says what was requested, and what was available instead.
pub(in crate::report) fn metrics(summary: &RunSummary, failure: &AllocationFailure) -> Vec<Metric> {
    let requested = Value::Bytes(failure.context.requested_bytes);
    let recovered = if failure.recovered { "the program continued after the failure" } else { "" };
    let in_use = Value::Bytes(failure.pool.in_use_bytes);
    let mut metrics =
        vec![Metric::new("requested", requested, allocation_phrase(&failure.context))];
    metrics.extend(still_to_allocate(failure));
    metrics.push(available(summary, failure));
    metrics.push(Metric::new("in use at failure", in_use, recovered));
    if let Some(fatal) = &failure.fatal {
        let value = Value::Missing("crashes");
        metrics.push(Metric::new("on a real GPU", value, fatal.clone()));
    }
    if summary.failure_count > 1 {
        let note = "in total; this is the first";
        let count = Value::Count(summary.failure_count);
        metrics.push(Metric::new("failed requests", count, note));
    }
    metrics
}

/// What the execution of the request had still to allocate, where that is more than the request.
fn still_to_allocate(failure: &AllocationFailure) -> Option<Metric> {
    let program = failure.context.program.as_ref()?;
    let requested_bytes = failure.context.requested_bytes;
    let is_more = failure.remaining_bytes > requested_bytes.saturating_add(requested_bytes / 100);
    let note = format!("all of `{program}`'s outputs and temporaries that were not allocated yet");
    is_more.then(|| Metric::new("still to allocate", Value::Bytes(failure.remaining_bytes), note))
}

fn available(summary: &RunSummary, failure: &AllocationFailure) -> Metric {
    let available = Value::Bytes(failure.available_bytes());
    let Some(free) = failure.free_bytes() else {
        let note = "estimated free memory of the GPU";
        return Metric::new("available", available, note);
    };
    let growth = failure.growth_bytes.unwrap_or(0);
    let is_growth = growth > failure.pool.largest_free_block_bytes.unwrap_or(0);
    let (label, block) =
        if is_growth { ("available", "by growing the pool; ") } else { ("largest free block", "") };
    let usable = if failure.fatal.is_none() && failure.short_bytes() == 0 {
        ", but only for the other end of the partitioned pool"
    } else if failure.fragmented() {
        ", but fragmented"
    } else {
        ""
    };
    let free = Bytes(free);
    let smaller = smaller_pool(summary, failure).unwrap_or_default();
    let note = format!("{block}{free} free in total{usable}{smaller}");
    Metric::new(label, available, note)
}

/// Says that a preallocated pool is smaller than its limit because the GPU had less.
fn smaller_pool(summary: &RunSummary, failure: &AllocationFailure) -> Option<String> {
    let device = summary.devices.get(failure.device as usize)?;
    let (pool, limit) = device.pool_bytes.zip(device.limit_bytes)?;
    // One that is empty would have been obtained with a smaller request.
    let obtainable = if pool == 0 { failure.growth_bytes.unwrap_or(0) } else { pool };
    (failure.is_preallocated && obtainable < limit).then(|| {
        format!(
            "; the pool got {} of its limit of {}, which the GPU did not have free",
            Bytes(pool),
            Bytes(limit)
        )
    })
}

/// Says why the program failed, where it would not have with other placeholder values.
pub(in crate::report) fn likely_cause(summary: &RunSummary) -> Option<Section> {
    let site = line_or_unknown(summary.likely_cause()?);
    let text = format!(
        "the last placeholder value that the program read, at {site}, is a likely cause of its \
         failure: with 1 in place of 0 it fails otherwise, or not at all. A dry run computes only small \
         values; what was not computed reads as 0, and as 0 and 1 where it becomes a constant of a program"
    );
    let title = "why the program may have failed";
    Some(Section::new(title, Content::List(vec![text])))
}
