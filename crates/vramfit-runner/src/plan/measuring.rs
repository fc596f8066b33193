//! Measures plans, several at a time, and keeps what each came to.

use vramfit_analysis::planning::{
    CostKind, Moves, Plan, RecordedSites, Row, Strategy, SuggestedEdit,
};
use vramfit_base::{Bytes, Error, ErrorKind, Result};
use vramfit_model::run_config::{FEW_CALLS, StepLimit};
use vramfit_model::settings::{Version, XlaFlags};

use super::search::{EditTrial, FoundPlans, FoundRow, SearchSpec};
use super::trial::{Measurement, find_sites, measure_plan};
use crate::context::Context;
use crate::dryrun::DryrunSpec;
use crate::interruption;
use crate::messages::Messages;
use crate::parallel::map_dry_runs;

/// What is known of a command before plans are tried.
pub(super) struct SearchStart {
    strategy: Strategy,
    /// How many functions a plan can change.
    pub(super) sites: usize,
    /// After which training steps the dry runs of plans end.
    steps: StepLimit,
}

/// A search under way.
pub(super) struct Measuring<'a> {
    pub(super) spec: &'a SearchSpec,
    pub(super) context: &'a Context,
    pub(super) messages: &'a dyn Messages,
    /// What was found so far.
    pub(super) found: FoundPlans,
}

impl Measuring<'_> {
    /// Measures a command as it is, and finds its sites.
    pub(super) fn begin(&mut self, command: usize) -> Result<SearchStart> {
        let chosen = &self.spec.commands[command].values;
        let name =
            if chosen.is_empty() { String::new() } else { format!(" with {}", chosen.join(", ")) };
        self.messages.info(&format!("dry run of the program as it is{name}"));
        let (plain, traced) = self.measure_as_it_is(command)?;
        self.messages.info(&format!("  peak {}{}", Bytes(plain.peak_bytes), fits_text(&plain)));
        self.found.jax.clone_from(&plain.jax);
        if self.found.rows.is_empty() {
            self.found.phases.clone_from(&plain.phases);
            self.found.cost = match plain.time.is_some_and(|time| time.is_comparable()) {
                false => CostKind::RecomputedShare,
                true if self.spec.has_several_batches() => CostKind::SampleTime,
                true => CostKind::StepTime,
            };
        }
        let recorded = match traced {
            Ok(recorded) => recorded,
            Err(error) if error.kind() == ErrorKind::Interrupted => RecordedSites::default(),
            Err(error) => {
                self.messages.verbose(&format!("{error}"));
                self.note_failure(&format!(
                    "its functions could not be traced: {}",
                    error.message()
                ));
                RecordedSites::default()
            }
        };
        for one in &recorded.left_alone {
            if !self.found.left_alone.contains(one) {
                self.found.left_alone.push(one.clone());
            }
        }
        if self.found.rows.is_empty() {
            let trial = self.spec.trial(command, self.found.steps);
            for edit in plain.edits.clone() {
                let measured = self.measure_edit(edit, &trial);
                if interruption::received().is_some() {
                    break;
                }
                self.found.edits.push(measured);
                self.found.trials += 1;
            }
        }
        let moves = Moves {
            // How the elements are divided among GPUs is not known when they are mapped.
            chunk: self.spec.moves.chunk && self.spec.trial.run.gpus.count == 1,
            scheduler: self.spec.moves.scheduler && has_latency_hiding_scheduler(&plain.jax),
            preallocation: self.spec.moves.preallocation && !plain.is_preallocated,
            ..self.spec.moves
        };
        let strategy = Strategy::new(&recorded.sites, &recorded.mapped, moves);
        let share = strategy.recomputed_share(&Plan::default());
        let limit = self.found.steps;
        self.add_row(Plan::default(), command, share, limit, &plain);
        Ok(SearchStart {
            strategy,
            sites: recorded.sites.len() + recorded.mapped.len(),
            steps: match limit {
                StepLimit::Steady => plain.steps_with_plans(),
                StepLimit::Calls(_) => limit,
            },
        })
    }

    /// Measures a command as it is, beside a run that finds its sites. Where that takes too long until it is steady, it is
    /// measured for its first steps.
    ///
    /// # Errors
    /// Those of the dry run; those of the run that finds the sites are in the second result.
    fn measure_as_it_is(&mut self, command: usize) -> Result<(Measurement, Result<RecordedSites>)> {
        let trial = self.spec.trial(command, self.found.steps);
        self.found.trials += 2;
        let (context, messages) = (self.context, self.messages);
        let (plain, traced) = std::thread::scope(|scope| {
            let sites = scope.spawn(|| find_sites(&trial, context, messages));
            let plain = measure_plan(&trial, &Plan::default(), context, messages);
            let panicked = |_| Err(Error::new(ErrorKind::Internal, "a thread has panicked"));
            (plain, sites.join().unwrap_or_else(panicked))
        });
        let is_late = |error: &Error| error.kind() == ErrorKind::TimeLimit;
        let is_late = plain.as_ref().is_err_and(is_late) || traced.as_ref().is_err_and(is_late);
        if is_late && trial.run.steps == Some(StepLimit::Steady) {
            self.messages
                .info("  it takes too long until it is steady; dry run of its first steps");
            self.found.steps = StepLimit::Calls(FEW_CALLS);
            return self.measure_as_it_is(command);
        }
        Ok((plain?, traced))
    }

    /// Measures the plans that a strategy proposes. Returns `true` if there were trials for all.
    pub(super) fn follow(&mut self, command: usize, begun: SearchStart) -> bool {
        let SearchStart { mut strategy, steps, .. } = begun;
        let mut is_complete = true;
        loop {
            let rows: Vec<Row> = self
                .found
                .rows
                .iter()
                .filter(|found| found.command == command)
                .map(|found| Row {
                    fits: vec![Some(self.spec.is_met(&found.row))],
                    ..found.row.clone()
                })
                .collect();
            let mut plans = strategy.next_round(&rows);
            if plans.is_empty() || interruption::received().is_some() {
                return is_complete;
            }
            // Each command gets an equal part.
            let allowed = self.spec.max_trials * (command + 1) / self.spec.commands.len();
            // One is for the plan that is recommended, to the end.
            let reserved = usize::from(steps != self.found.steps);
            let left = allowed.saturating_sub(self.found.trials + reserved);
            is_complete &= plans.len() <= left;
            plans.truncate(left);
            let trial = self.spec.trial(command, steps);
            for (plan, measured) in self.measure_all(&trial, plans) {
                match measured {
                    Ok(measured) => {
                        let share = strategy.recomputed_share(&plan);
                        self.add_row(plan, command, share, steps, &measured);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.messages.verbose(&format!("{error}"));
                        self.note_failure(error.message());
                    }
                }
            }
        }
    }

    /// Measures plans, several at a time.
    fn measure_all(
        &mut self,
        trial: &DryrunSpec,
        plans: Vec<Plan>,
    ) -> Vec<(Plan, Result<Measurement>)> {
        self.found.trials += plans.len();
        map_dry_runs(plans, self.spec.jobs, self.messages, |plan| {
            if interruption::received().is_some() {
                return None;
            }
            let result = measure_plan(trial, &plan, self.context, self.messages);
            Some((plan, result))
        })
    }

    /// Measures a plan to the end of the steps that were asked for, which says more than its first ones.
    ///
    /// # Errors
    /// `interrupted`. A plan with which the program fails then is removed; if it takes too long, plans stay as they are.
    pub(super) fn measure_to_the_end(&mut self, index: usize) -> Result<()> {
        let steps = self.found.steps;
        let row = self.found.rows[index].clone();
        let moves = match row.row.plan.moves() {
            moves if moves.is_empty() => "nothing changed".to_owned(),
            moves => moves.join("; "),
        };
        self.messages.info(&format!("dry run of more steps with the plan: {moves}"));
        let trial = self.spec.trial(row.command, steps);
        self.found.trials += 1;
        let measured = measure_plan(&trial, &row.row.plan, self.context, self.messages);
        match measured {
            Ok(measured) => {
                self.messages.info(&format!(
                    "  peak {}{}",
                    Bytes(measured.peak_bytes),
                    fits_text(&measured)
                ));
                let plan = row.row.plan;
                let (command, share) = (row.command, row.recomputed_share);
                self.found.rows[index] = self.new_row(plan, command, share, steps, &measured);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.messages.verbose(&format!("{error}"));
                match error.kind() {
                    // So would the others.
                    ErrorKind::TimeLimit => self.found.steps = row.steps,
                    _ => drop(self.found.rows.remove(index)),
                }
                self.note_failure(&format!("more steps with a plan: {}", error.message()));
            }
        }
        Ok(())
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
                let trial = self.spec.trial(found.command, found.steps).on(gpus.clone());
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
                        found.row.fits.push(Some(false));
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
        steps: StepLimit,
        measured: &Measurement,
    ) {
        let row = self.new_row(plan, command, recomputed_share, steps, measured);
        self.found.rows.push(row);
    }

    fn new_row(
        &self,
        plan: Plan,
        command: usize,
        recomputed_share: f64,
        steps: StepLimit,
        measured: &Measurement,
    ) -> FoundRow {
        let model_us = measured.time.map_or(f64::INFINITY, |time| time.model_us);
        let batch = self.spec.commands[command].batch().unwrap_or(1);
        let cost = match self.found.cost {
            CostKind::StepTime => model_us,
            CostKind::SampleTime => model_us / batch as f64,
            // What a loop computes twice is not known; it takes longer the more often it runs.
            CostKind::RecomputedShare => recomputed_share + Strategy::serial_share(&plan),
        };
        FoundRow {
            steps,
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
            highest_peak_bytes: measured.highest_peak_bytes,
            conditions: measured.conditions.clone(),
        }
    }

    fn measure_edit(&mut self, edit: SuggestedEdit, trial: &DryrunSpec) -> EditTrial {
        let plan = SuggestedEdit::plan([&edit]);
        let measured = measure_plan(trial, &plan, self.context, self.messages);
        if let Err(error) = &measured {
            self.messages.verbose(&error.to_string());
        }
        EditTrial { edit, peak_bytes: measured.ok().map(|measured| measured.peak_bytes) }
    }

    pub(super) fn note_failure(&mut self, text: &str) {
        match self.found.failures.iter_mut().find(|(known, _)| known == text) {
            Some((_, count)) => *count += 1,
            None => self.found.failures.push((text.to_owned(), 1)),
        }
    }
}

/// Returns `true` if XLA's latency-hiding scheduler may be on: the environment says so, or the compiler decides,
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
        Some(true) => format!(", fits in {limit}"),
        None => format!(", may fit in {limit}"),
        Some(false) => format!(", does not fit in {limit}"),
    }
}
