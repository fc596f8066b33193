//! Loops without a loop: the iterations of a short `jax.lax.scan`, one after the other in its program. What a loop
//! carries and stacks for the backward pass is then no array of all iterations, and is freed one by one.

use super::options::SiteOption;
use super::plan::SitePlan;
use super::row::Row;
use super::site::{Site, SiteKind};

/// More iterations take too long to compile.
const MAX_ITERATIONS: u64 = 16;

/// Returns the option to unroll the loop whose body a site is. A part of its iterations saves nothing: the arrays of all
/// of them remain.
pub(super) fn unroll_option(site: &Site) -> Option<SiteOption> {
    let iterations = site.iterations.filter(|count| (2..=MAX_ITERATIONS).contains(count))?;
    if site.kind != SiteKind::Scan {
        return None;
    }
    let plan = SitePlan { unroll: Some(iterations), ..SitePlan::new(site, &[], None) };
    Some(SiteOption { plan, recomputed_share: 0.0 })
}

/// Returns variants of the measured options of one site with its loop unrolled, where that alone has lowered the peak:
/// of that with the lowest peak, and of the fastest.
pub(super) fn unroll_variants(options: &[SiteOption], rows: &[Row]) -> Vec<SiteOption> {
    let row_of = |plan: &SitePlan| {
        let mut plain = rows.iter().filter(|row| row.plan.settings.is_default());
        plain.find(|row| matches!(&row.plan.sites[..], [only] if only == plan))
    };
    let as_it_is = rows.iter().find(|row| row.plan.is_empty());
    let unrolled = options.iter().filter(|option| option.plan.unroll.is_some());
    let unrolled = unrolled.filter_map(|option| Some((option, row_of(&option.plan)?))).next();
    let (Some(as_it_is), Some((unrolled, row))) = (as_it_is, unrolled) else {
        return Vec::new();
    };
    if row.peak_bytes >= as_it_is.peak_bytes {
        return Vec::new();
    }
    let measured: Vec<(&SiteOption, &Row)> = options
        .iter()
        .filter(|option| option.plan.unroll.is_none())
        .filter_map(|option| Some((option, row_of(&option.plan)?)))
        .collect();
    let lowest = measured.iter().min_by_key(|(_, row)| row.peak_bytes);
    let fastest = measured.iter().min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
    let mut variants: Vec<SiteOption> = Vec::new();
    for (option, _) in lowest.into_iter().chain(fastest) {
        let mut variant = (*option).clone();
        variant.plan.unroll = unrolled.plan.unroll;
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    variants
}
