//! Which plans to measure: each option of each site alone, then the best of them together.

use super::options::{SiteOption, site_options};
use super::plan::Plan;
use super::row::{Row, pareto_front};
use super::site::{Site, SiteKind};

/// Sites whose options are tried.
const MAX_SITES: usize = 4;
/// Plans of one site that are combined with those of another.
const MAX_COMBINED: usize = 3;

/// Proposes plans in rounds; what was measured so far decides the next round.
#[derive(Clone, Debug)]
pub struct Strategy {
    options: Vec<Vec<SiteOption>>,
    round: usize,
}

impl Strategy {
    /// Returns the strategy for the sites of a program.
    pub fn new(sites: &[Site]) -> Self {
        let mut relevant: Vec<&Site> = sites.iter().filter(|site| site.differentiated).collect();
        relevant.sort_by_key(|site| std::cmp::Reverse(site.made_bytes()));
        let mut options: Vec<Vec<SiteOption>> = Vec::new();
        for site in relevant {
            let own = site_options(site);
            if !own.is_empty() && options.len() < MAX_SITES {
                options.push(own);
            }
        }
        Strategy { options, round: 0 }
    }

    /// Says whether there is anything to try.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    /// Returns the share of the operations of the sites that run twice under a plan, from 0 to 1. A
    /// function that the program rematerializes itself counts as a whole, whatever its policy keeps.
    pub fn recomputed_share(&self, plan: &Plan) -> f64 {
        let share = |options: &Vec<SiteOption>| {
            let planned = options
                .iter()
                .find(|option| plan.sites.contains(&option.plan));
            let is_own = options
                .iter()
                .any(|option| option.plan.kind == SiteKind::Checkpoint);
            planned.map_or(f64::from(u8::from(is_own)), |option| {
                option.recomputed_share
            })
        };
        self.options.iter().map(share).fold(0.0, f64::max)
    }

    /// Returns the plans to measure next; none when the search is over.
    pub fn next_round(&mut self, rows: &[Row]) -> Vec<Plan> {
        self.round += 1;
        let plans = match self.round {
            1 => self
                .options
                .iter()
                .flatten()
                .map(|option| Plan {
                    sites: vec![option.plan.clone()],
                })
                .collect(),
            2 => self.combinations(rows),
            _ => Vec::new(),
        };
        let is_new = |plan: &Plan| !rows.iter().any(|row| row.plan == *plan);
        plans.into_iter().filter(is_new).collect()
    }

    /// Joins the best plans of different sites.
    fn combinations(&self, rows: &[Row]) -> Vec<Plan> {
        let Some(baseline) = rows.iter().find(|row| row.plan.is_empty()) else {
            return Vec::new();
        };
        let best: Vec<Vec<&Row>> = self
            .options
            .iter()
            .map(|options| {
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
                rows.iter()
                    .filter(|row| chosen.contains(&row.plan))
                    .collect()
            })
            .collect();
        let mut plans = Vec::new();
        for (index, first) in best.iter().enumerate() {
            for second in best[index + 1..].iter().flatten() {
                plans.extend(first.iter().map(|row| {
                    let mut sites = row.plan.sites.clone();
                    sites.extend(second.plan.sites.iter().cloned());
                    Plan { sites }
                }));
            }
        }
        plans
    }
}
