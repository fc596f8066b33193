//! The pool of the critical device by address.

use crate::analysis::{LayoutSummary, PieceSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::{allocation_phrase, gpu_suffix};
use crate::report::{AddressMap, Content, Region, Section, Segment};
use crate::trace::Purpose;

pub(in crate::report) fn at_peak(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let peak = device.peak.as_ref().map_or_else(String::new, allocation_phrase);
    section(summary, "at the peak", peak, &device.layout_at_peak)
}

/// The pool when the first request failed, and the request beside it.
pub(in crate::report) fn at_failure(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let failure = summary.out_of_memory()?;
    let context = &failure.context;
    let caption = format!(
        "{} were requested, {}; the largest free segment has {}",
        Bytes(context.requested_bytes),
        allocation_phrase(context),
        Bytes(failure.pool.largest_free_block_bytes?)
    );
    let mut section = section(summary, "at the failure", caption, &device.layout_at_failure)?;
    if let Content::AddressMap(map) = &mut section.content {
        map.failed_request_bytes = Some(context.requested_bytes);
    }
    Some(section)
}

pub(in crate::report) fn at_end(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    section(summary, "at the end", String::new(), &device.layout_at_end)
}

fn section(
    summary: &RunSummary,
    when: &str,
    caption: String,
    layout: &LayoutSummary,
) -> Option<Section> {
    let gpu = gpu_suffix(summary, summary.critical_device()?.device);
    let regions = layout.regions.iter().map(|region| Region {
        address: region.address,
        bytes: region.bytes,
        segments: region.pieces.iter().map(segment).collect(),
    });
    let map = AddressMap { caption, regions: regions.collect(), failed_request_bytes: None };
    let title = format!("memory map {when}{gpu}");
    (!layout.regions.is_empty()).then(|| Section::detail(title, Content::AddressMap(map)))
}

fn segment(piece: &PieceSummary) -> Segment {
    let mut parts = Vec::new();
    parts.extend(piece.program.as_ref().map(|name| format!("`{name}`")));
    if !piece.site.is_empty() {
        parts.push(piece.site.clone());
    }
    if piece.blocks > 1 {
        parts.push(format!("{} blocks", piece.blocks));
    }
    if piece.purpose.is_some() && piece.free_bytes > 0 {
        parts.push(format!("{} of it free", Bytes(piece.free_bytes)));
    }
    Segment {
        bytes: piece.bytes,
        kind: piece.purpose.map_or("free", Purpose::label),
        label: parts.join(", "),
    }
}
