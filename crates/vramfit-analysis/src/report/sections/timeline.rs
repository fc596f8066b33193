//! Memory over the run, on the critical device.

use crate::analysis::{AllocationFailure, DeviceSummary, RunSummary, TimelinePoint};
use crate::bytes::Bytes;
use crate::report::phrases::gpu_suffix;
use crate::report::{Content, FailedRequest, Marker, Section, Series, Timeline};

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let title = format!("memory over the run{}", gpu_suffix(summary, device.device));
    let timeline = timeline(summary, device);
    Some(Section::detail(title, Content::Timeline(timeline)))
}

fn timeline(summary: &RunSummary, device: &DeviceSummary) -> Timeline {
    let points = &device.timeline;
    let series = |label: &str, value: &dyn Fn(&TimelinePoint) -> Option<u64>| {
        let bytes: Option<Vec<_>> = points.iter().map(value).collect();
        bytes.map(|bytes| Series { label: label.to_owned(), bytes })
    };
    let series = [
        series("in use", &|point| Some(point.state.in_use_bytes)),
        series("pool", &|point| {
            let free = point.state.free_bytes?;
            Some(point.state.in_use_bytes.saturating_add(free))
        }),
        series("largest free block", &|point| point.state.largest_free_block_bytes),
    ];
    Timeline {
        unit: "events",
        positions: points.iter().map(|point| point.event).collect(),
        series: series.into_iter().flatten().collect(),
        steps: summary.step().map_or_else(Vec::new, |step| step.call_events.clone()),
        markers: markers(summary, device),
        limit_bytes: device.limit(),
        failed_request: failure(summary, device).map(|failure| FailedRequest {
            position: failure.context.event,
            in_use_bytes: failure.pool.in_use_bytes,
            requested_bytes: failure.context.requested_bytes,
        }),
    }
}

/// Returns the first request that failed on a device.
fn failure<'a>(summary: &'a RunSummary, device: &DeviceSummary) -> Option<&'a AllocationFailure> {
    let mut failures = summary.failures.iter();
    failures.find(|failure| failure.device == device.device)
}

fn markers(summary: &RunSummary, device: &DeviceSummary) -> Vec<Marker> {
    let mut markers = Vec::new();
    let mut mark = |position: u64, label: String| markers.push(Marker { position, label });
    if let Some((step, (_, event))) = summary.step().and_then(|s| Some((s, s.call_events.first()?)))
    {
        mark(*event, format!("end of startup: first call of `{}`", step.name));
    }
    let failure = failure(summary, device);
    if let Some(peak) = &device.peak {
        let label = match failure {
            Some(_) => "most in use before the failure",
            None => "peak",
        };
        mark(peak.event, label.to_owned());
    }
    if let Some(failure) = failure {
        let bytes = Bytes(failure.context.requested_bytes);
        mark(failure.context.event, format!("request for {bytes} failed"));
    }
    markers.sort_by_key(|marker| marker.position);
    markers
}
