//! To rematerialize only a part of a function: fewer bytes are saved, and less is computed twice.

use super::options::{SiteOption, recomputed_share};
use super::row::{Row, pareto_front};
use super::site::Site;

/// Parts of what the segments make that the backward pass finds in memory; with 0 only that of the last
/// segment, which often holds a large product that takes long to compute again.
const KEPT_THIRDS: [u64; 3] = [0, 1, 2];

/// Returns variants of the measured options of one site that rematerialize only the first of their
/// segments: of the one with the lowest peak, and of the fastest that is worth choosing.
///
/// The backward pass begins with what the last segments made, and has freed it when it computes the first
/// segments again, so keeping the last ones costs least.
pub(super) fn partial_variants(
    site: &Site,
    options: &[SiteOption],
    rows: &[Row],
) -> Vec<SiteOption> {
    let option_of = |row: &Row| {
        let is_plain = row.plan.settings.is_default();
        let mut own = options.iter().filter(|option| {
            is_plain && option.plan.segments.len() > 1 && !option.plan.is_offloading()
        });
        own.find(|option| row.plan.sites == [option.plan.clone()])
    };
    let front = pareto_front(rows);
    let mut worth: Vec<&SiteOption> =
        front.iter().filter_map(|&index| option_of(&rows[index])).collect();
    // By bytes, so the last is the fastest.
    if worth.len() > 2 {
        worth.drain(1..worth.len() - 1);
    }
    let mut variants: Vec<SiteOption> = Vec::new();
    for option in worth {
        for thirds in KEPT_THIRDS {
            let variant = with_first_segments(site, option, thirds);
            variants.extend(variant.filter(|variant| !variants.contains(variant)));
        }
    }
    variants
}

/// Leaves out the last segments, as long as they make at most this many thirds of all bytes; at least one of
/// them, and not all.
fn with_first_segments(site: &Site, option: &SiteOption, thirds: u64) -> Option<SiteOption> {
    let made = |segment: &(usize, usize)| site.segment_bytes(segment);
    let mut plan = option.plan.clone();
    let total: u64 = plan.segments.iter().map(made).sum();
    let mut kept = made(&plan.segments.pop()?);
    while let [.., _, last] = plan.segments[..]
        && (kept + made(&last)) * 3 <= total * thirds
    {
        kept += made(&last);
        plan.segments.pop();
    }
    let end = plan.segments.last()?.1;
    plan.saved.retain(|&index| index < end);
    Some(SiteOption { recomputed_share: recomputed_share(site, &plan), plan })
}
