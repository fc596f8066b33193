//! Which plans to measure: each option of each site and each setting alone, then for a part of the function
//! only and with values in host memory, then the best of them together, with more memory what does not fit otherwise.

use super::chunk::{Chunk, ChunkSearch, MappedFunction};
use super::moves::{Moves, When};
use super::offload::offload_variants;
use super::options::{SiteOption, other_divisions, own_share, site_options};
use super::partial::partial_variants;
use super::plan::{Plan, SitePlan};
use super::row::{Row, pareto_front};
use super::settings::PlanSettings;
use super::site::{Site, SiteKind};
use super::unroll::{unroll_option, unroll_variants};
use crate::allocator::AllocatorKind;
use crate::settings::MAX_FRACTION;

/// Sites whose options are tried.
const MAX_SITES: usize = 4;
/// Plans of one site that are combined with those of another.
const MAX_COMBINED: usize = 3;

/// Policies that all functions get at the same time.
const JOINT_POLICIES: [&str; 2] = ["nothing", "dots-without-batch"];
/// Plans of a joint plan's sites that are tried in its place, for each.
const MAX_REPLACED: usize = 3;

/// Sites of which values are offloaded.
const MAX_OFFLOADED_SITES: usize = 2;

/// Single changes, their variants, combinations, and the variants of those.
const ROUNDS: usize = 4;
/// Rows of which a variant with other settings is measured.
const MAX_VARIANTS: usize = 3;

/// A site, and what can be done at it.
#[derive(Clone, Debug)]
struct SiteOptions {
    site: Site,
    options: Vec<SiteOption>,
}

impl SiteOptions {
    /// Adds options, and returns a plan with each.
    fn add_options(&mut self, options: Vec<SiteOption>) -> Vec<Plan> {
        let new: Vec<SiteOption> =
            options.into_iter().filter(|option| !self.options.contains(option)).collect();
        self.options.extend_from_slice(&new);
        new.into_iter().map(|option| of_sites(vec![option.plan])).collect()
    }
}

/// Proposes plans in rounds; what was measured so far decides the next round.
#[derive(Clone, Debug)]
pub struct Strategy {
    sites: Vec<SiteOptions>,
    /// Plans for all functions at the same time.
    joint: Vec<Plan>,
    chunks: ChunkSearch,
    moves: Moves,
    round: usize,
}

impl Strategy {
    /// Returns the strategy for the sites of a program, and for what it maps.
    pub fn new(sites: &[Site], mapped: &[MappedFunction], moves: Moves) -> Self {
        let mapped = if moves.chunk { mapped } else { &[] };
        let mut relevant: Vec<&Site> = sites.iter().collect();
        relevant.sort_by_key(|site| std::cmp::Reverse(site.made_bytes()));
        let searched = relevant.into_iter().map(|site| {
            let options = if moves.remat { site_options(site) } else { Vec::new() };
            SiteOptions { site: site.clone(), options }
        });
        let can_unroll = |site: &Site| moves.unroll != When::Never && unroll_option(site).is_some();
        let mut sites: Vec<SiteOptions> = searched
            .filter(|searched| !searched.options.is_empty() || can_unroll(&searched.site))
            .collect();
        let joint = joint_plans(&sites);
        sites.truncate(MAX_SITES);
        Strategy { sites, joint, chunks: ChunkSearch::new(mapped), moves, round: 0 }
    }

    /// Returns the share of the operations of the sites that run twice under a plan, from 0 to 1.
    pub fn recomputed_share(&self, plan: &Plan) -> f64 {
        let share = |searched: &SiteOptions| {
            let mut options = searched.options.iter();
            let planned = options.find(|option| plan.sites.contains(&option.plan));
            planned.map_or_else(|| own_share(&searched.site), |option| option.recomputed_share)
        };
        self.sites.iter().map(share).fold(0.0, f64::max)
    }

    /// Returns how much of the mapped functions a plan computes one after the other, from 0 to 1.
    pub fn serial_share(plan: &Plan) -> f64 {
        plan.chunks.iter().map(Chunk::serial_share).fold(0.0, f64::max)
    }

    /// Returns the plans to measure next; none when the search is over.
    pub fn next_round(&mut self, rows: &[Row]) -> Vec<Plan> {
        // They are few.
        let mut plans = self.chunks.next_round(rows);
        plans.extend(self.next_of_sites(rows));
        plans
    }

    fn next_of_sites(&mut self, rows: &[Row]) -> Vec<Plan> {
        while self.round < ROUNDS {
            self.round += 1;
            let mut plans = match self.round {
                1 => [self.joint.clone(), self.single_options()].concat(),
                2 => [self.refinements(rows), self.joint_variants(rows)].concat(),
                3 => [self.unrolled_variants(rows), self.combinations(rows)].concat(),
                _ => Vec::new(),
            };
            // Before the sites, which are many, and again when their best are known.
            // Of two that cost the same the first is recommended: what cures the cause.
            let settings = self.without_fragmentation(rows).into_iter();
            plans.splice(
                0..0,
                settings
                    .chain(self.with_larger_pool(rows))
                    .chain(self.without_xla_remat(rows))
                    .chain(self.without_latency_hiding(rows)),
            );
            plans.retain(|plan| !rows.iter().any(|row| row.plan == *plan));
            if !plans.is_empty() {
                return plans;
            }
        }
        Vec::new()
    }

    fn single_options(&self) -> Vec<Plan> {
        let options = self.sites.iter().flat_map(|searched| &searched.options);
        let plans = options.map(|option| of_sites(vec![option.plan.clone()]));
        plans.collect()
    }

    /// Rematerializes only a part of a function, divides the one that saves most in other ways where nothing fits, and
    /// keeps values of the largest sites in memory of the host.
    fn refinements(&mut self, rows: &[Row]) -> Vec<Plan> {
        let lowest = rows.iter().min_by_key(|row| row.peak_bytes);
        let lowest = lowest.and_then(|row| match &row.plan.sites[..] {
            [only] => Some(only),
            _ => None,
        });
        let is_met = is_met(rows);
        let is_offload_wanted = self.moves.offload.is_wanted(is_met);
        let is_unroll_wanted = self.moves.unroll.is_wanted(is_met);
        let mut plans = Vec::new();
        for (index, searched) in self.sites.iter_mut().enumerate() {
            let mut options = partial_variants(&searched.site, &searched.options, rows);
            let mut own = searched.options.iter();
            if let Some(lowest) = lowest.filter(|_| !is_met)
                && own.any(|option| option.plan == *lowest)
            {
                options.extend(other_divisions(&searched.site, lowest));
            }
            if is_offload_wanted && index < MAX_OFFLOADED_SITES {
                options.extend(offload_variants(&searched.options, rows));
            }
            if is_unroll_wanted {
                options.extend(unroll_option(&searched.site));
            }
            plans.extend(searched.add_options(options));
        }
        plans
    }

    /// Rematerializes in loops that are unrolled, where that alone saves something.
    fn unrolled_variants(&mut self, rows: &[Row]) -> Vec<Plan> {
        let sites = self.sites.iter_mut();
        let variants = sites
            .flat_map(|searched| searched.add_options(unroll_variants(&searched.options, rows)));
        variants.collect()
    }

    /// Tries other options of each site of the best joint plan, where no plan of one site saves as much: so of
    /// several functions those are recomputed that must be.
    fn joint_variants(&self, rows: &[Row]) -> Vec<Plan> {
        let is_joint = |row: &&Row| self.joint.contains(&row.plan);
        let lowest = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.peak_bytes).min();
        let others = lowest(&mut rows.iter().filter(|row| !is_joint(row)));
        let best = rows.iter().filter(is_joint).min_by_key(|row| row.peak_bytes);
        let Some(best) = best.filter(|best| Some(best.peak_bytes) < others) else {
            return Vec::new();
        };
        let mut plans = Vec::new();
        for searched in &self.sites {
            let options = searched.options.iter().map(|option| &option.plan);
            let own: Vec<&SitePlan> = options.collect();
            let Some(at) = best.plan.sites.iter().position(|site| own.contains(&site)) else {
                continue;
            };
            let mut without = best.plan.clone();
            without.sites.remove(at);
            plans.push(without);
            let replacements = own.into_iter().filter(|option| **option != best.plan.sites[at]);
            plans.extend(replacements.take(MAX_REPLACED).map(|option| {
                let mut plan = best.plan.clone();
                plan.sites[at] = option.clone();
                plan
            }));
        }
        plans.retain(|plan| !plan.is_empty());
        plans
    }

    /// Gives the pool more of the GPU where nothing fits: the fastest plans worth choosing.
    fn with_larger_pool(&self, rows: &[Row]) -> Vec<Plan> {
        let Some(pool_bytes) = self.moves.larger_pool_bytes.filter(|_| !is_met(rows)) else {
            return Vec::new();
        };
        variants(
            rows,
            |row| row.peak_bytes <= pool_bytes,
            |settings| settings.memory_fraction = Some(MAX_FRACTION),
        )
    }

    /// Preallocates the pool where nothing fits because a pool that grows is fragmented; where the pool is
    /// preallocated, uses the allocator of CUDA, which maps free pages to one block. The fastest plans.
    fn without_fragmentation(&self, rows: &[Row]) -> Vec<Plan> {
        if is_met(rows) {
            return Vec::new();
        }
        let mut fragmented: Vec<&Row> = rows.iter().filter(|row| row.is_fragmented).collect();
        fragmented.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let plans = fragmented.into_iter().filter_map(|row| {
            let mut plan = row.plan.clone();
            let settings = &mut plan.settings;
            if self.moves.preallocation && settings.preallocate.is_none() {
                settings.preallocate = Some(true);
            } else if self.moves.allocator && settings.allocator.is_none() {
                settings.allocator = Some(AllocatorKind::CudaAsync);
            } else {
                return None;
            }
            Some(plan)
        });
        let new = plans.filter(|plan| !rows.iter().any(|row| row.plan == *plan));
        new.take(MAX_VARIANTS).collect()
    }

    /// Turns off XLA's own pass where it has changed programs that are worth choosing.
    fn without_xla_remat(&self, rows: &[Row]) -> Vec<Plan> {
        if !self.moves.compiler {
            return Vec::new();
        }
        variants(rows, |row| row.xla_remat, |settings| settings.xla_remat = Some(false))
    }

    /// Turns off the scheduler that takes memory for speed, where nothing fits.
    fn without_latency_hiding(&self, rows: &[Row]) -> Vec<Plan> {
        if !self.moves.scheduler || is_met(rows) {
            return Vec::new();
        }
        variants(
            rows,
            |row| row.plan.settings.latency_hiding.is_none(),
            |settings| settings.latency_hiding = Some(false),
        )
    }

    /// Joins the best plans of different sites.
    fn combinations(&self, rows: &[Row]) -> Vec<Plan> {
        let Some(baseline) = rows.iter().find(|row| row.plan.is_empty()) else {
            return Vec::new();
        };
        let best: Vec<Vec<&Row>> = self
            .sites
            .iter()
            .map(|SiteOptions { options, .. }| {
                let own: Vec<Row> = rows
                    .iter()
                    .filter(|row| {
                        row.peak_bytes < baseline.peak_bytes
                            && matches!(&row.plan.sites[..], [only]
                                if options.iter().any(|option| option.plan == *only))
                    })
                    .cloned()
                    .collect();
                let front = pareto_front(&own);
                let chosen: Vec<Plan> = front
                    .into_iter()
                    .take(MAX_COMBINED)
                    .map(|index| own[index].plan.clone())
                    .collect();
                rows.iter().filter(|row| chosen.contains(&row.plan)).collect()
            })
            .collect();
        let mut plans = Vec::new();
        for (index, first) in best.iter().enumerate() {
            for (other, second) in best.iter().enumerate().skip(index + 1) {
                // What an inner function computes is part of what the outer one does.
                if self.sites[index].site.depth != self.sites[other].site.depth {
                    continue;
                }
                for second in second {
                    plans.extend(
                        first.iter().map(|row| {
                            of_sites([&row.plan.sites[..], &second.plan.sites].concat())
                        }),
                    );
                }
            }
        }
        plans
    }
}

/// Returns plans for all functions of a program at the same time; none where it has only one. Of a function with loops
/// or functions that it rematerializes itself it is those.
fn joint_plans(sites: &[SiteOptions]) -> Vec<Plan> {
    let is_nested = |site: &Site| matches!(site.kind, SiteKind::Scan | SiteKind::Checkpoint);
    let has_nested = |inside: &str| {
        let mut nested = sites.iter().filter(|other| is_nested(&other.site));
        nested.any(|other| other.site.inside == inside)
    };
    let chosen = || {
        let sites = sites.iter().filter(|one| one.site.depth == 0);
        sites.filter(|one| is_nested(&one.site) || !has_nested(&one.site.inside))
    };
    if chosen().count() < 2 {
        return Vec::new();
    }
    let mut plans: Vec<Plan> = Vec::new();
    for policy in JOINT_POLICIES {
        let of_site = |one: &SiteOptions| {
            let mut options = one.options.iter().map(|option| &option.plan);
            options.find(|plan| plan.save.as_deref() == Some(policy)).cloned()
        };
        let plan = of_sites(chosen().filter_map(of_site).collect());
        if plan.sites.len() > 1 && !plans.contains(&plan) {
            plans.push(plan);
        }
    }
    plans
}

fn of_sites(sites: Vec<SitePlan>) -> Plan {
    Plan { sites, ..Plan::default() }
}

/// Returns `true` if a plan fits that was measured.
fn is_met(rows: &[Row]) -> bool {
    rows.iter().any(Row::fits)
}

/// Returns some of the plans that are worth choosing with other settings: the program as it is, and the
/// fastest.
fn variants(
    rows: &[Row],
    is_wanted: impl Fn(&Row) -> bool,
    change: impl Fn(&mut PlanSettings),
) -> Vec<Plan> {
    let front = pareto_front(rows);
    let fastest = front.iter().rev().map(|&index| &rows[index]);
    let baseline = rows.iter().filter(|row| row.plan.is_empty());
    let mut plans: Vec<Plan> = Vec::new();
    for row in baseline.chain(fastest).filter(|row| is_wanted(row)) {
        let mut plan = row.plan.clone();
        change(&mut plan.settings);
        if !plans.contains(&plan) {
            plans.push(plan);
        }
    }
    plans.truncate(MAX_VARIANTS);
    plans
}
