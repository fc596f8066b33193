//! Measures plans, several at a time, and keeps what each came to.

use vramfit_core::planning::{CostKind, Moves, Plan, Row, Strategy};
use vramfit_core::settings::{Version, XlaFlags};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::search::{Found, FoundRow, SearchSpec};
use super::trial::{Measurement, TrialSpec};
use crate::context::Context;
use crate::interruption;
use crate::output::Output;
use crate::parallel::map_dry_runs;

/// A search under way.
pub(super) struct Measuring<'a> {
    pub(super) spec: &'a SearchSpec,
    pub(super) context: &'a Context,
    pub(super) output: &'a mut Output,
    /// What was found so far.
    pub(super) found: Found,
}

impl Measuring<'_> {
    /// Measures a command as it is, and finds its sites.
    pub(super) fn begin(&mut self, command: usize) -> Result<(Strategy, usize)> {
        let trial = self.spec.trial(command);
        let (context, output) = (self.context, self.output.quiet());
        let chosen = &self.spec.commands[command].values;
        let name = if chosen.is_empty() {
            String::new()
        } else {
            format!(" with {}", chosen.join(", "))
        };
        self.output
            .info(&format!("dry run of the program as it is{name}"));
        let (plain, traced) = std::thread::scope(|scope| {
            let output = &output;
            let sites = scope.spawn(|| trial.find_sites(context, output));
            (
                trial.measure(&Plan::default(), context, output),
                sites.join(),
            )
        });
        let plain = plain?;
        self.found.trials += 2;
        self.output.info(&format!(
            "  peak {}{}",
            Bytes(plain.peak_bytes),
            fits_text(&plain)
        ));
        self.found.jax.clone_from(&plain.jax);
        if self.found.rows.is_empty() {
            self.found.cost = match plain.time.is_some_and(|time| time.is_comparable()) {
                false => CostKind::RecomputedShare,
                true if self.spec.has_several_batches() => CostKind::SampleTime,
                true => CostKind::StepTime,
            };
        }
        let sites = match traced {
            Ok(Ok(sites)) => sites,
            Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => Vec::new(),
            Ok(Err(error)) => {
                self.output.verbose(&format!("{error}"));
                self.note_failure(&format!(
                    "its functions could not be traced: {}",
                    error.message()
                ));
                Vec::new()
            }
            Err(_) => return Err(Error::new(ErrorKind::Internal, "a thread has panicked")),
        };
        if command == 0 {
            for edit in plain.edits.clone() {
                let measured = edit.measure(&trial, context, self.output);
                if interruption::received().is_some() {
                    break;
                }
                self.found.edits.push(measured);
                self.found.trials += 1;
            }
        }
        let moves = Moves {
            scheduler: self.spec.moves.scheduler && has_latency_hiding_scheduler(&plain.jax),
            preallocation: self.spec.moves.preallocation && !plain.is_preallocated,
            ..self.spec.moves
        };
        let strategy = Strategy::new(&sites, moves);
        let share = strategy.recomputed_share(&Plan::default());
        self.add_row(Plan::default(), command, share, &plain);
        Ok((strategy, sites.len()))
    }

    /// Measures the plans that a strategy proposes. Says whether there were trials for all.
    pub(super) fn follow(&mut self, command: usize, mut strategy: Strategy) -> bool {
        let mut is_complete = true;
        loop {
            let rows: Vec<Row> = self
                .found
                .rows
                .iter()
                .filter(|found| found.command == command)
                .map(|found| Row {
                    fits: vec![self.spec.is_met(&found.row)],
                    ..found.row.clone()
                })
                .collect();
            let mut plans = strategy.next_round(&rows);
            if plans.is_empty() || interruption::received().is_some() {
                return is_complete;
            }
            // Each command gets an equal part.
            let allowed = self.spec.max_trials * (command + 1) / self.spec.commands.len();
            let left = allowed.saturating_sub(self.found.trials);
            is_complete &= plans.len() <= left;
            plans.truncate(left);
            let trial = self.spec.trial(command);
            for (plan, measured) in self.measure_all(&trial, plans) {
                match measured {
                    Ok(measured) => {
                        let share = strategy.recomputed_share(&plan);
                        self.add_row(plan, command, share, &measured);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.output.verbose(&format!("{error}"));
                        self.note_failure(error.message());
                    }
                }
            }
        }
    }

    /// Measures plans, several at a time.
    fn measure_all(
        &mut self,
        trial: &TrialSpec,
        plans: Vec<Plan>,
    ) -> Vec<(Plan, Result<Measurement>)> {
        self.found.trials += plans.len();
        let quiet = self.output.quiet();
        map_dry_runs(plans, self.spec.jobs, self.output, |plan| {
            if interruption::received().is_some() {
                return None;
            }
            let result = trial.measure(&plan, self.context, &quiet);
            Some((plan, result))
        })
    }

    /// Measures the program as it is and the rows worth choosing on the other GPUs.
    pub(super) fn measure_elsewhere(&mut self, front: &[usize]) {
        let mut wanted = front.to_vec();
        if !wanted.contains(&0) {
            wanted.insert(0, 0);
        }
        for gpus in &self.spec.others {
            for &index in &wanted {
                let found = self.found.rows[index].clone();
                let trial = TrialSpec {
                    gpus: gpus.clone(),
                    calibration: None,
                    ..self.spec.trial(found.command)
                };
                let mut measured = self.measure_all(&trial, vec![found.row.plan.clone()]);
                let found = &mut self.found.rows[index];
                match measured.pop() {
                    Some((_, Ok(measured))) => {
                        found.row.fits.push(measured.fits);
                        found.limits.push(measured.limit_bytes);
                        found.peaks.push(measured.peak_bytes);
                    }
                    Some((_, Err(error))) if error.kind() == ErrorKind::Interrupted => {}
                    Some((_, Err(error))) => {
                        found.row.fits.push(false);
                        let text = error.message().to_owned();
                        self.note_failure(&text);
                    }
                    None => {}
                }
            }
        }
    }

    fn add_row(
        &mut self,
        plan: Plan,
        command: usize,
        recomputed_share: f64,
        measured: &Measurement,
    ) {
        let model_us = measured.time.map_or(f64::INFINITY, |time| time.model_us);
        let batch = self.spec.commands[command].batch().unwrap_or(1);
        let cost = match self.found.cost {
            CostKind::StepTime => model_us,
            CostKind::SampleTime => model_us / batch as f64,
            CostKind::RecomputedShare => recomputed_share,
        };
        self.found.rows.push(FoundRow {
            recomputed_share,
            time: measured.time,
            row: Row {
                plan,
                peak_bytes: measured.peak_bytes,
                cost,
                host_memory_bytes: measured.host_memory_bytes,
                fits: vec![measured.fits],
                is_fragmented: measured.is_fragmented(),
                xla_remat: measured.xla_remat.is_some_and(|it| it.recomputed_us > 0.0),
            },
            xla_remat: measured.xla_remat,
            largest: measured.largest.clone(),
            command,
            limits: vec![measured.limit_bytes],
            peaks: vec![measured.peak_bytes],
            conditions: measured.conditions.clone(),
        });
    }

    fn note_failure(&mut self, text: &str) {
        match self
            .found
            .failures
            .iter_mut()
            .find(|(known, _)| known == text)
        {
            Some((_, count)) => *count += 1,
            None => self.found.failures.push((text.to_owned(), 1)),
        }
    }
}

/// Says whether XLA's latency-hiding scheduler may be on: the environment says so, or the compiler decides,
/// as it does since JAX 0.11.2.
fn has_latency_hiding_scheduler(jax: &str) -> bool {
    let flags = std::env::var("XLA_FLAGS").unwrap_or_default();
    let is_set = XlaFlags::parse(&flags).bool("xla_gpu_enable_latency_hiding_scheduler");
    is_set.unwrap_or_else(|| {
        let version: Result<Version> = jax.parse();
        version.is_ok_and(|version| version >= Version::new(0, 11, 2))
    })
}

fn fits_text(measured: &Measurement) -> String {
    let limit = Bytes(measured.limit_bytes);
    match measured.fits {
        true => format!(", fits in {limit}"),
        false => format!(", does not fit in {limit}"),
    }
}
