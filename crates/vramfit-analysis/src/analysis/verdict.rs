//! Whether a run fits, and on which conditions that holds.
//!
//! The one place that decides: text, JSON, page, exit codes and other commands ask
//! [`RunSummary::verdict`].

use super::condition::{Condition, LastExecution, LinkTraffic, ProgramNeed};
use super::device_summary::DeviceSummary;
use super::facts::unknown_reads::UnknownReadLine;
use super::programs::Evidence;
use super::summary::{ProgramSummary, RunSummary};
use crate::program::CUFFT_PLAN_ERROR;
use crate::run_config::{Sharing, StepLimit};

/// Whether a run fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `Some(false)` when a request for memory was refused or an allocator would have aborted,
    /// `Some(true)` when the run came to its end without that, `None` when it cannot be told.
    pub fits: Option<bool>,
    /// What the answer depends on, the condition that leaves it open first.
    pub conditions: Vec<Condition>,
}

impl Verdict {
    /// Returns why a run does not fit to which the pool has refused nothing; `None` if that is not so.
    pub fn outside_pool(&self) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| match condition {
            Condition::OutsidePool { is_certain, .. } => *is_certain,
            Condition::HostMemory { host_bytes, available_bytes, .. } => {
                available_bytes.is_some_and(|available| *host_bytes > available)
            }
            _ => false,
        })
    }
}

/// Programs with less in constants are not the reason of a shortage outside the pool.
const MIN_CONSTANT_BYTES: u64 = 1 << 20;

/// How many names [`Condition::NoStepFound`] tells.
const MAX_NAMES: usize = 5;

/// Growth that would not fill the GPU in this many steps is no [`Condition::StillGrowing`].
const MAX_STEPS: u64 = 100_000;

impl RunSummary {
    /// Returns the verdict: whether the run fits, and on which conditions.
    pub fn verdict(&self) -> Verdict {
        let mut conditions = Vec::new();
        conditions.extend(self.ended_early());
        conditions.extend(self.shared_gpu());
        conditions.extend(self.total_range.filter(|range| range.is_met).map(|range| {
            Condition::TotalRange {
                total_memory_bytes: self.header.total_memory_bytes(),
                max_total_memory_bytes: range.max_total_memory_bytes,
            }
        }));
        conditions.extend(self.steps_wanted());
        conditions.extend(self.still_growing());
        let plan = self.plan();
        let is_too_large =
            plan.as_ref().is_some_and(|plan| plan.needed_bytes > plan.capacity_bytes);
        conditions.extend(plan.map(|plan| Condition::CompiledOnly {
            plan,
            anything_ran: self.devices.iter().any(|device| device.peak_bytes > 0),
        }));
        conditions.extend(self.placeholder_decides());
        conditions.extend(self.ran_on_cpu());
        conditions.extend(self.short_of_scratch());
        conditions.extend(self.short_outside_pool());
        conditions.extend(self.in_host_memory());
        conditions.extend(self.other_libraries());
        // One is enough: each has the same cause as a rule.
        let mismatch = self.hosts.as_ref().and_then(|hosts| hosts.mismatches.first());
        conditions.extend(mismatch.cloned().map(Condition::HostsDiffer));
        // A stable sort: what leaves the answer open comes first.
        conditions.sort_by_key(Condition::bearing);
        let mut verdict = Verdict { fits: Some(!is_too_large), conditions };
        if self.is_refused() || verdict.outside_pool().is_some() {
            verdict.fits = Some(false);
        } else if verdict.conditions.first().is_some_and(Condition::leaves_open) {
            verdict.fits = None;
        }
        verdict
    }

    /// Returns [`Verdict::fits`].
    pub fn fits(&self) -> Option<bool> {
        self.verdict().fits
    }

    /// Returns `true` if a request for memory was refused, the CUDA context found no room, or an allocator
    /// would have aborted: whether the run does not fit, however it ended.
    pub fn is_refused(&self) -> bool {
        self.failure_count > 0 || self.abort.is_some() || self.no_context.is_some()
    }

    /// Returns the plan of the program that decides without having run: the largest of those of whose
    /// name none ran, if it needs more than anything that did. `None` for a run that was refused
    /// memory, whose answer is about what happened.
    pub fn plan(&self) -> Option<ProgramNeed> {
        Some(self.planned_program()?.1)
    }

    /// Returns the same, with the index of the program.
    pub(super) fn planned_program(&self) -> Option<(usize, ProgramNeed)> {
        if self.is_refused() {
            return None;
        }
        let ran = |name: &str| {
            let mut programs = self.programs.iter();
            programs.any(|program| program.name == name && program.calls > 0)
        };
        let in_pool = |program: &ProgramSummary| {
            let sizes = &program.sizes;
            let planned = sizes.needed_bytes().saturating_sub(sizes.constant_bytes);
            planned + program.scratch_bytes
        };
        let compiled = self.programs.iter().enumerate();
        let (index, largest) = compiled
            .filter(|(_, program)| program.calls == 0 && !ran(&program.name))
            .max_by_key(|(_, program)| in_pool(program))?;
        let device = self.critical_device()?;
        let plan = ProgramNeed {
            program: largest.name.clone(),
            needed_bytes: in_pool(largest),
            capacity_bytes: device.capacity_bytes,
        };
        (plan.needed_bytes > device.peak_bytes).then_some((index, plan))
    }

    /// Whether values that were not computed decided what ran.
    fn placeholder_decides(&self) -> Option<Condition> {
        let lines = &self.facts.unknown_reads.lines;
        let needed = self.read_as_one.as_ref();
        let needed = needed.and_then(|site| lines.iter().find(|line| line.site == *site));
        // What was read after a failure has not led to it.
        let failed = self.out_of_memory().is_some();
        let counts = |line: &&UnknownReadLine| {
            line.is_decisive() && (!failed || line.decided_before_failure)
        };
        let first = needed.or_else(|| lines.iter().find(counts))?;
        let others = lines.iter().filter(counts).filter(|line| line.site != first.site);
        let decision = |text: &Option<String>| text.clone().filter(|_| first.shapes == 0);
        let (expression, value) = match needed {
            Some(_) => (Some(first.expression.clone().unwrap_or_default()), Some("1".to_owned())),
            None => (decision(&first.expression), decision(&first.value)),
        };
        Some(Condition::PlaceholderDecides {
            site: first.site.clone(),
            expression,
            value,
            other_lines: others.count(),
            // What one host reads of another decides how often all of them train.
            replaces_step: self.header.hosts > 1
                && self.step_evidence.unwrap_or_default() < Evidence::BackwardPass,
        })
    }

    /// Returns the line that reads most of what was not computed and decides what runs, or how large it is.
    pub fn decisive_read(&self) -> Option<&UnknownReadLine> {
        self.facts.unknown_reads.lines.iter().find(|line| line.is_decisive())
    }

    /// Who else was on the GPU when a request was refused.
    fn shared_gpu(&self) -> Option<Condition> {
        let others = self.others_at_failure.as_ref()?;
        Some(Condition::SharedGpu {
            gpu: self.header.gpu_of(others.device),
            used_bytes: others.used_bytes,
            total_bytes: self.header.total_memory_bytes(),
            processes: others.processes.clone(),
            fits_alone: self.fits_alone,
            of_this_run: self.header.run.sharing == Sharing::Run,
        })
    }

    /// What became of the wish to end the run after some steps.
    fn steps_wanted(&self) -> Option<Condition> {
        let search = self.step_search.as_ref()?;
        let steps = search.steps?;
        if let Some(stop) = &search.stop {
            return Some(Condition::StoppedAtStep {
                steps,
                stop: stop.clone(),
                evidence: self.step_evidence.unwrap_or_default(),
                exit: self.process_exit.filter(|exit| !exit.is_success()),
            });
        }
        let step = self.step();
        let found = step.filter(|_| self.step_evidence >= Some(Evidence::StateReturned));
        let programs = self.programs.iter().filter(|program| program.calls > 1);
        // A run that was to end once it is steady, and ended by itself, is whole.
        let StepLimit::Calls(steps) = steps else {
            return None;
        };
        // A step that ran as often as was asked for, and a run that then ended by itself: nothing was left out.
        let is_whole = found.is_some_and(|step| step.calls >= steps);
        // A run that stopped before its time says why, and this is not the reason.
        let is_said = !is_whole && !self.is_refused() && self.ended_early().is_none();
        is_said.then(|| Condition::NoStepFound {
            steps,
            name: search.name.clone(),
            found: found.map(|step| LastExecution { program: step.name.clone(), call: step.calls }),
            programs: programs.map(|one| one.name.clone()).take(MAX_NAMES).collect(),
        })
    }

    /// Whether the peak still grew in the last step before the run was ended.
    fn still_growing(&self) -> Option<Condition> {
        let stop = self.step_search.as_ref()?.stop.as_ref()?;
        let growth = stop.growth.filter(|_| stop.calls > 1)?;
        let grown_bytes = growth.peak_bytes.saturating_sub(growth.previous_peak_bytes);
        let total_bytes = self.header.total_memory_bytes();
        // A list of losses grows, too, and no training is long enough for it to matter.
        (grown_bytes.saturating_mul(MAX_STEPS) >= total_bytes.max(1)).then(|| {
            Condition::StillGrowing {
                program: stop.program.clone(),
                step: stop.calls,
                previous_peak_bytes: growth.previous_peak_bytes,
                peak_bytes: growth.peak_bytes,
            }
        })
    }

    /// What lies in host memory.
    fn in_host_memory(&self) -> Option<Condition> {
        let free_bytes = self.header.free_bytes();
        let peaks = self.devices.iter().map(|device| device.peak_bytes);
        let peaks = peaks.filter(|_| self.header.unified_memory);
        let in_host = peaks.clone().map(|peak| peak.saturating_sub(free_bytes));
        // The GPUs of a host move to the same memory.
        let host_bytes = in_host.fold(0, u64::saturating_add);
        let gpus = peaks.clone().filter(|peak| *peak > free_bytes).count();
        (host_bytes > 0).then_some(Condition::HostMemory {
            peak_bytes: peaks.max()?,
            host_bytes,
            gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
            available_bytes: self.header.run.host_memory_bytes,
            moved: self.link_traffic(),
        })
    }

    /// What the program moves that uses most memory in a call.
    fn link_traffic(&self) -> Option<LinkTraffic> {
        let programs = self.programs.iter().filter(|program| program.calls > 0);
        // Constants lie outside the pool.
        let in_pool = |program: &&ProgramSummary| {
            program.sizes.needed_bytes().saturating_sub(program.sizes.constant_bytes)
        };
        let program = programs.max_by_key(in_pool)?;
        let bytes = in_pool(&program).saturating_sub(self.header.free_bytes());
        (bytes > 0).then(|| LinkTraffic {
            program: program.name.clone(),
            bytes,
            link: self.header.gpu().host_link,
        })
    }

    /// Which other libraries may allocate GPU memory, if nothing is counted for others.
    fn other_libraries(&self) -> Option<Condition> {
        let environment = self.environment.as_ref()?;
        let is_counted = self.header.run.occupied_bytes > 0;
        let libraries = environment.gpu_libraries.clone();
        (!is_counted && !libraries.is_empty()).then_some(Condition::OtherLibraries { libraries })
    }

    /// Whether constants of programs have no room beside the pool. Code alone is no reason: what is outside is known
    /// to some MiB only.
    fn short_outside_pool(&self) -> Option<Condition> {
        let header = &self.header;
        let available = |device: &DeviceSummary| {
            let pool_bytes = device.pool_bytes.unwrap_or(device.peak_bytes);
            header.free_bytes().saturating_sub(pool_bytes)
        };
        let devices = self.devices.iter();
        let tightest =
            devices.max_by_key(|device| device.outside_bytes.saturating_sub(available(device)))?;
        let (outside_bytes, available_bytes) = (tightest.outside_bytes, available(tightest));
        let programs = self.programs.iter().filter(|program| program.calls > 0);
        let program = programs.max_by_key(|program| program.sizes.constant_bytes)?;
        let constant_bytes = program.sizes.constant_bytes;
        let is_short = outside_bytes > available_bytes && constant_bytes >= MIN_CONSTANT_BYTES;
        // Managed memory of the pool makes room.
        let may_move = header.unified_memory;
        (is_short && !may_move && !self.is_refused()).then(|| Condition::OutsidePool {
            program: program.name.clone(),
            constant_bytes,
            outside_bytes,
            available_bytes,
            // A pool that grows may not have been so large when the constants were there.
            is_certain: header.preallocate
                && outside_bytes > available_bytes.saturating_add(header.run.context_bytes),
        })
    }

    /// The routine that may take more scratch memory than it could have had. That of a run that was
    /// refused a request anyway says nothing new.
    fn short_of_scratch(&self) -> Option<Condition> {
        let scratch = self.scratch.as_ref().filter(|_| !self.is_refused())?;
        let shortage = scratch.shortage.as_ref()?;
        let need = scratch.needs.get(shortage.need)?;
        Some(Condition::LibraryScratch {
            library: need.library.clone(),
            routine: need.routine.clone(),
            program: need.program.clone(),
            site: need.site.clone(),
            low_bytes: need.low_bytes,
            high_bytes: shortage.high_bytes,
            available_bytes: shortage.available_bytes,
        })
    }

    /// How the run ended before its time, if it did. A process of a program that ended well may
    /// have been killed by it, as workers are; then the program saw the end of its work.
    fn ended_early(&self) -> Option<Condition> {
        let after = self.last_execution.clone();
        let failed = |exit| Condition::ProcessFailed {
            exit,
            error: self.uncaught_error.clone(),
            after: after.clone(),
            placeholder_read: self
                .facts
                .unknown_reads
                .last
                .clone()
                .filter(|_| self.is_placeholder_cause),
        };
        let is_cut = self.step_search.as_ref().is_some_and(|search| search.stop.is_some());
        match self.process_exit {
            // It was not let finish, and how it takes that says nothing about its memory.
            _ if is_cut => None,
            // It ended for want of memory, which is told with the request that was refused.
            _ if self.is_refused() && self.ended_out_of_memory() => None,
            // The program may end well although one of its processes did not.
            Some(exit) if exit.is_success() && self.uncaught_error.is_some() => {
                (!self.is_refused()).then(|| failed(None))
            }
            Some(exit) if exit.is_success() => None,
            Some(exit) => Some(failed(Some(exit))),
            None if self.uncaught_error.is_some() => Some(failed(None)),
            None if !self.complete => {
                let until = self.until;
                Some(Condition::TraceEndsEarly { after, until })
            }
            None => None,
        }
    }
}

/// What the messages of JAX's errors begin with when a request for memory was refused.
const OUT_OF_MEMORY: &str = "RESOURCE_EXHAUSTED";

impl RunSummary {
    /// Returns `true` if the exception that nothing in the program caught is one of refused memory.
    fn ended_out_of_memory(&self) -> bool {
        let error = self.uncaught_error.as_ref();
        error.is_some_and(|error| {
            error.message.starts_with(OUT_OF_MEMORY) || error.message.contains(CUFFT_PLAN_ERROR)
        })
    }
}
