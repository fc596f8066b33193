//! What can be done at one site.

use super::plan::SitePlan;
use super::segments::divide;
use super::selection::expensive_groups;
use super::site::{Equation, Site, SiteKind};

/// One way to rematerialize at a site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteOption {
    /// What the plan says.
    pub plan: SitePlan,
    /// Share of the site's operations that are computed twice, from 0 to 1.
    pub recomputed_share: f64,
}

/// Ways to divide one function that are worth measuring, and how many more are if those do not save enough.
const MAX_DIVISIONS: usize = 3;
/// Sets of chosen values for one division.
const MAX_SELECTIONS: usize = 4;

/// Returns what can be done at a site, the largest saving expected first.
pub fn site_options(site: &Site) -> Vec<SiteOption> {
    let whole = vec![(0, site.equations.len())];
    let divisions = match site.kind {
        SiteKind::Grad | SiteKind::ShardMap => {
            divide(site, MAX_DIVISIONS).into_iter().map(|division| division.segments).collect()
        }
        // A body with a function that the program rematerializes has a site of its own for that.
        SiteKind::Scan if site.equations.iter().any(|equation| equation.barrier) => Vec::new(),
        SiteKind::Scan | SiteKind::Checkpoint if site.equations.is_empty() => Vec::new(),
        SiteKind::Scan | SiteKind::Checkpoint => vec![whole],
    };
    let mut options: Vec<SiteOption> = Vec::new();
    if matches!(site.kind, SiteKind::Grad | SiteKind::ShardMap) {
        // Without the boundaries of calls XLA keeps fewer values, and computes nothing twice.
        options.push(SiteOption { plan: SitePlan::new(site, &[], None), recomputed_share: 0.0 });
    }
    for (index, segments) in divisions.iter().enumerate() {
        let mut plans = vec![SitePlan::new(site, segments, Some("nothing"))];
        let mut selections = selections(site, segments);
        if index == 0 {
            // All of them are what the policies below keep.
            selections.retain(|plan| !keeps_all_products(site, plan));
        }
        plans.extend(selections);
        if index == 0 {
            plans.push(SitePlan::new(site, segments, Some("dots-without-batch")));
            let is_other = |one: &Equation| dots_keeps(one) && !dots_without_batch_keeps(one);
            if site.equations.iter().any(is_other) {
                plans.push(SitePlan::new(site, segments, Some("dots")));
            }
        }
        if site.kind == SiteKind::Checkpoint {
            plans.push(SitePlan::new(site, segments, Some("everything")));
        }
        options.extend(
            plans
                .into_iter()
                .map(|plan| SiteOption { recomputed_share: recomputed_share(site, &plan), plan }),
        );
    }
    options
}

/// Returns the most promising other ways to divide a function where the plan with the lowest peak does not save enough:
/// that plan with the segment that was left out, and other divisions. An estimate of bytes has decided which come
/// first, and is not exact.
pub(super) fn other_divisions(site: &Site, lowest: &SitePlan) -> Vec<SiteOption> {
    if !matches!(site.kind, SiteKind::Grad | SiteKind::ShardMap) {
        return Vec::new();
    }
    let mut plans = Vec::new();
    if let Some(&(_, start)) = lowest.segments.last() {
        let rest = &site.equations[start..];
        let barrier = rest.iter().position(|equation| equation.barrier);
        let stop = start + barrier.unwrap_or(rest.len());
        if start < stop {
            let mut plan = lowest.clone();
            plan.segments.push((start, stop));
            plans.push(plan);
        }
    }
    let others = divide(site, 2 * MAX_DIVISIONS);
    plans.extend(
        others
            .iter()
            .skip(MAX_DIVISIONS)
            .map(|division| SitePlan::new(site, &division.segments, Some("nothing"))),
    );
    plans
        .into_iter()
        .map(|plan| SiteOption { recomputed_share: recomputed_share(site, &plan), plan })
        .collect()
}

/// Returns plans that keep growing sets of expensive values.
fn selections(site: &Site, segments: &[(usize, usize)]) -> Vec<SitePlan> {
    let groups = expensive_groups(site, segments);
    let total: u64 = groups.iter().map(|group| group.flops).sum();
    let mut plans = Vec::new();
    let (mut saved, mut flops) = (Vec::new(), 0);
    for group in &groups {
        saved.extend(&group.equations);
        flops += group.flops;
        // A set that spares as many operations as the one before is not worth a compilation.
        if flops * (MAX_SELECTIONS as u64 + 1) < total * (plans.len() as u64 + 1) {
            continue;
        }
        let mut plan = SitePlan::new(site, segments, None);
        plan.saved = saved.clone();
        plan.saved.sort_unstable();
        plan.kept_lines = kept_lines(site, &plan.saved);
        plans.push(plan);
        if plans.len() == MAX_SELECTIONS {
            break;
        }
    }
    plans
}

/// Returns the lines whose values are kept, each once.
fn kept_lines(site: &Site, saved: &[usize]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for &index in saved {
        let line = &site.equations[index].line;
        if !line.is_empty() && !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    lines
}

/// Returns `true` if a plan keeps every value that `jax.checkpoint_policies.dots_saveable` keeps.
fn keeps_all_products(site: &Site, plan: &SitePlan) -> bool {
    let mut inside = plan.segments.iter().flat_map(|&(start, stop)| start..stop);
    inside.all(|index| !dots_keeps(&site.equations[index]) || plan.saved.contains(&index))
}

/// Returns `true` if `jax.checkpoint_policies.dots_with_no_batch_dims_saveable` keeps a value.
fn dots_without_batch_keeps(equation: &Equation) -> bool {
    equation.name == "dot_general" && !equation.batched
}

/// Returns `true` if `jax.checkpoint_policies.dots_saveable` keeps a value.
fn dots_keeps(equation: &Equation) -> bool {
    matches!(equation.name.as_str(), "dot_general" | "conv_general_dilated")
}

/// Returns the share of the site's operations that run twice in the program as it is, from 0 to 1.
pub(super) fn own_share(site: &Site) -> f64 {
    if site.kind != SiteKind::Checkpoint {
        return 0.0;
    }
    let recomputed = site.equations.iter().filter(|equation| !equation.kept);
    recomputed.map(|equation| equation.flops).sum::<u64>() as f64 / site.flops().max(1) as f64
}

/// Returns the share of the site's operations that run twice under a plan, from 0 to 1.
pub(super) fn recomputed_share(site: &Site, plan: &SitePlan) -> f64 {
    let is_kept = |index: usize| match plan.save.as_deref() {
        Some("everything") => true,
        Some("dots") => dots_keeps(&site.equations[index]),
        Some("dots-without-batch") => dots_without_batch_keeps(&site.equations[index]),
        _ => plan.saved.contains(&index) || plan.offloaded.contains(&index),
    };
    let recomputed: u64 = plan
        .segments
        .iter()
        .flat_map(|&(start, stop)| start..stop)
        .filter(|index| !is_kept(*index))
        .map(|index| site.equations[index].flops)
        .sum();
    recomputed as f64 / site.flops().max(1) as f64
}
