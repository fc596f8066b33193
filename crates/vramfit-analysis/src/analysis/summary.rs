//! What a run came to: whether it fits, what it needed, when, and what was left.
//!
//! Counting is done in [`super::summary`]; telling it to people is the business of
//! [`crate::report`].

use serde::Serialize;

use super::allocation_failure::AllocationFailure;
use super::attribution::Attribution;
use super::attribution_entry::EntryKind;
use super::condition::{Condition, LastExecution};
use super::device_summary::{DeviceSummary, ProcessDevice, ProcessSummary, tightest};
use super::facts::RunFacts;
use super::facts::autotune_range::AutotuneRange;
use super::facts::compilations::CompilationSummary;
use super::facts::leaks::{CreatedArrays, LeakSummary};
use super::facts::undivided_batch::UndividedBatch;
use super::facts::unread_outputs::UnreadOutput;
use super::facts::whole_batch::WholeBatch;
use super::hosts::HostsSummary;
use super::measured_edit::MeasuredEdit;
use super::other_processes::{NoContextSummary, OtherProcessesSummary};
use super::partitions::ReplicatedArgument;
use super::programs::Evidence;
use super::scratch::ScratchSummary;
use super::step_search::{Phase, StepSearch};
use crate::program::memory::Owner;
use crate::program::{ProgramMemory, ProgramSizes, ProgramTime};
use crate::replay::TotalRangeSummary;
use crate::trace::{
    ArrayHolder, CompilerWarning, CpuProgram, Header, NotComputed, ProcessExit, RunEnvironment,
    UncaughtError,
};

/// The answer to "does this run fit on this GPU?", with the figures behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// What the trace begins with.
    pub header: Header,
    /// Whether the run ended properly. If not, everything here is "so far".
    pub complete: bool,
    /// The last event that was to be read, where the run goes on after it.
    pub until: Option<u64>,
    /// One entry a device, in order.
    pub devices: Vec<DeviceSummary>,
    /// One entry for each different program, the one with most memory first.
    pub programs: Vec<ProgramSummary>,
    /// Which of them is taken to be the step, see [`RunSummary::step`].
    pub step: Option<usize>,
    /// Why it is taken to be the step; `None` when nothing was executed.
    pub step_evidence: Option<Evidence>,
    /// How the step was searched for while the program ran; `None` where it was not.
    pub step_search: Option<StepSearch>,
    /// How long one step takes on a device, all programs together that ran between two executions of
    /// [`RunSummary::step`]; `None` where no training step was detected or a time is not known.
    pub step_time: Option<ProgramTime>,
    /// Every request that was refused, in order; at most [`super::MAX_FAILURES_KEPT`] of them.
    pub failures: Vec<AllocationFailure>,
    /// How many requests were refused.
    pub failure_count: u64,
    /// Set when the real process would have been aborted by its allocator while it freed memory.
    pub abort: Option<AbortInfo>,
    /// What else the run shows.
    pub facts: RunFacts,
    /// What the first refused request comes to at the highest total that drivers report; `None` where
    /// nothing was refused or one total is known. The trace has to be read a second time for it, so
    /// set by the function that reads the file ([`crate::replay::replay_at_max_total`]).
    pub total_range: Option<TotalRangeSummary>,
    /// Set when the process found no room for its CUDA context.
    pub no_context: Option<NoContextSummary>,
    /// The other processes on the GPU when a request was refused first; `None` where nothing was
    /// refused, or nobody else held memory of it.
    pub others_at_failure: Option<OtherProcessesSummary>,
    /// Whether the request that was refused first would be met if the process had the GPU to itself;
    /// `None` where others held nothing. Set by the function that reads the file ([`crate::replay::is_met_alone`]).
    pub fits_alone: Option<bool>,
    /// All processes of the run that used the GPU, where there are several; this one is among them. Put in by
    /// the function that reads all files ([`RunSummary::as_process`]).
    pub processes: Vec<ProcessSummary>,
    /// In how many communicators of NCCL each device is, by the collectives of all programs.
    pub communicators: u64,
    /// All hosts that run the program together, where several were run; this is one of them. Put in by
    /// [`super::hosts::summarize_hosts`].
    pub hosts: Option<HostsSummary>,
    /// Whether the program failed differently, or not at all, when reads of values that were not computed gave others.
    pub is_placeholder_cause: bool,
    /// Set in a run in which values that were not computed read as 1, because the program failed where they read as 0:
    /// the line of the read before that.
    pub read_as_one: Option<String>,
    /// Edits of the program that were measured, in the order in which they are worth reading. Put in by the command that
    /// measures them.
    pub measured_edits: Vec<MeasuredEdit>,
    /// Programs whose values were not computed any more from some execution on.
    pub not_computed: Vec<NotComputed>,
    /// What the run came to with other kernels; `None` when that was not asked for.
    pub autotune_range: Option<AutotuneRange>,
    /// What library routines take beside the plans; `None` when no program that was executed has any.
    pub scratch: Option<ScratchSummary>,
    /// What grew in each of the last steps, the most bytes a step first.
    pub leaks: Vec<LeakSummary>,
    /// Arrays that a line creates one after the other, where a run ends with that.
    pub created: Vec<CreatedArrays>,
    /// What was compiled more than once under one name, the most often compiled first.
    pub compilations: Vec<CompilationSummary>,
    /// Whose the bytes are at the first refused request, or else at the peak of the device that
    /// decides; `None` when nothing was allocated.
    pub attribution: Option<Attribution>,
    /// Where the memory of the program goes that ran then, or else of [`RunSummary::step`]; `None` where
    /// that is not known.
    pub program_memory: Option<ProgramMemorySummary>,
    /// What XLA's compiler warned of, in the order of the first of each.
    pub compiler_warnings: Vec<CompilerWarning>,
    /// The settings of the run; `None` where the trace does not tell.
    pub environment: Option<RunEnvironment>,
    /// Executions of any program.
    pub executions: u64,
    /// Small programs whose values were computed; `None` when the trace was cut off.
    pub evaluated: Option<u64>,
    /// How the program's process ended; `None` where that is not known. The command that started the
    /// program knows, and adds it to a trace that is kept.
    pub process_exit: Option<ProcessExit>,
    /// The exception that nothing in the program caught.
    pub uncaught_error: Option<UncaughtError>,
    /// Programs that ran on JAX's CPU backend, as far as they are worth a look.
    pub cpu_programs: Vec<CpuProgram>,
    /// Variables that held arrays when the program ended, those that held most first.
    pub array_holders: Vec<ArrayHolder>,
    /// The execution that was begun last.
    pub last_execution: Option<LastExecution>,
    /// Events in the trace.
    pub events: u64,
    /// What is not exact about the allocator; `None` when it agrees with the real one.
    pub allocator_model: Option<&'static str>,
}

/// Memory that takes more steps than this to be full is not.
const MAX_STEPS_TO_FULL: u64 = 1_000_000;

/// Where the memory of one program of an [`RunSummary`] goes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramMemorySummary {
    /// Index of the program in [`RunSummary::programs`].
    pub program: usize,
    /// Its buffers.
    pub memory: ProgramMemory,
    /// Its outputs that nothing in the run has read, the largest first.
    pub unread_outputs: Vec<UnreadOutput>,
    /// Its state of which several devices have the same part, the largest first.
    pub replicated: Vec<ReplicatedArgument>,
    /// Values that may be of the whole batch on each device although it is divided.
    pub whole_batch: Option<WholeBatch>,
    /// The batch that each device has in full, where all compute the same.
    pub undivided_batch: Option<UndividedBatch>,
}

/// Programs of the same name and the same sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSummary {
    /// Their name.
    pub name: String,
    /// How often they were executed.
    pub calls: u64,
    /// Executions, evenly spaced where there are very many: their number from 1, and the index of the event with which
    /// they began.
    pub call_events: Vec<(u64, u64)>,
    /// How often they were compiled or loaded.
    pub compilations: u64,
    /// How many of those came from a cache.
    pub loaded: u64,
    /// On how many devices they run.
    pub devices: u32,
    /// The compile attempt that succeeded; empty for the first.
    pub compile_attempt: String,
    /// Where the first of them was asked for, empty if not known.
    pub site: String,
    /// Their temporaries as they were in [`AutotuneRange::variant`]; `None` where that was not
    /// measured.
    pub variant_temp_bytes: Option<u64>,
    /// Their sizes on each device.
    pub sizes: ProgramSizes,
    /// Scratch memory that library routines take in one execution, at least: they run one after the
    /// other.
    pub scratch_bytes: u64,
    /// How long one execution takes on a device; `None` where that is not known.
    pub time: Option<ProgramTime>,
}

/// The moment at which a real process would have been aborted by its allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbortInfo {
    /// On which device.
    pub device: u32,
    /// Name of the program executed last; `None` when there was none.
    pub program: Option<String>,
    /// Executions of any program until then.
    pub executions: u64,
    /// What the process would have died of.
    pub message: String,
    /// Index of the event in the trace.
    pub event: u64,
}

impl RunSummary {
    /// Returns what a device has to spare, if the run fits.
    pub fn spare_bytes(&self, device: u32) -> Option<u64> {
        let device = self.devices.get(device as usize).filter(|_| self.fits() == Some(true))?;
        device.capacity_bytes.checked_sub(device.peak_bytes)
    }

    /// Returns `true` if a leak could ever fill the memory: not a number that each step keeps.
    pub fn is_relevant(&self, leak: &LeakSummary) -> bool {
        let device = self.devices.get(leak.device as usize);
        let capacity_bytes = device.map_or(0, |device| device.capacity_bytes);
        leak.allocated_bytes_per_step().saturating_mul(MAX_STEPS_TO_FULL) >= capacity_bytes
    }

    /// Returns `true` if there is a leak that is relevant.
    pub fn has_relevant_leak(&self) -> bool {
        self.leaks.iter().any(|leak| self.is_relevant(leak))
    }

    /// Returns what the line creates one after the other.
    pub fn created_at(&self, site: &str) -> Option<&CreatedArrays> {
        self.created.iter().find(|created| created.site == site && !site.is_empty())
    }

    /// Returns what began after the first training steps, in order.
    pub fn phases(&self) -> &[Phase] {
        let search = self.step_search.as_ref();
        search.map_or(&[], |search| &search.phases)
    }

    /// Returns the bytes of gradients that are arrays at the moment that decides, because another program than that
    /// which computes them uses them; `None` without any.
    pub fn gradient_array_bytes(&self) -> Option<u64> {
        let attribution = self.attribution.as_ref()?;
        let program = self.program_memory.as_ref();
        let program = program.filter(|program| Some(program.program) == attribution.program);
        if program.is_some_and(|program| program.memory.is_differentiated()) {
            return None;
        }
        let parts = attribution.parts.iter();
        let gradients = parts.filter(|part| part.kind == EntryKind::Program(Owner::Gradients));
        let bytes = gradients.map(|part| part.bytes).fold(0, u64::saturating_add);
        (bytes > 0).then_some(bytes)
    }

    /// Returns `false` if it is known what variables held when the program ended, and that this is less than half of
    /// the arrays beside the program that ran: the others belong to a computation that had not ended.
    pub fn script_keeps_arrays(&self) -> bool {
        let parts = self.attribution.iter().flat_map(|attribution| &attribution.parts);
        let others = parts.filter(|part| part.kind == EntryKind::OtherArrays);
        let other_bytes = others.fold(0_u64, |sum, part| sum.saturating_add(part.bytes));
        let holders = &self.array_holders;
        let held_bytes = holders.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
        holders.is_empty() || held_bytes >= other_bytes / 2
    }

    /// Returns how long all executions take on a device; `None` where that of a program is not known.
    pub fn execution_time(&self) -> Option<ProgramTime> {
        let mut total = ProgramTime::default();
        for program in self.programs.iter().filter(|program| program.calls > 0) {
            total.add(program.time.as_ref()?, program.calls);
        }
        (total.model_us > 0.0).then_some(total)
    }

    /// Returns the line of the placeholder that the program read last, where the program failed
    /// afterwards and would not have with other values. Empty where the line is not known.
    pub fn likely_cause(&self) -> Option<&str> {
        if self.is_refused() {
            return None;
        }
        let failed = self.verdict().conditions.into_iter().any(|condition| {
            matches!(condition, Condition::ProcessFailed { placeholder_read: Some(_), .. })
        });
        self.facts.unknown_reads.last.as_deref().filter(|_| failed)
    }

    /// Returns the refused request that decides the answer: the first. What comes after it is
    /// what the program did about it.
    pub fn out_of_memory(&self) -> Option<&AllocationFailure> {
        self.failures.first()
    }

    /// Returns what the device that decides needs in its pool, as far as the run shows it: the peak, or what was in
    /// use and what the execution that was refused memory had still to allocate, or what a program needs that was
    /// only compiled.
    pub fn needed_bytes(&self) -> u64 {
        let peak_bytes = self.critical_device().map_or(0, |device| device.peak_bytes);
        match (self.out_of_memory(), self.plan()) {
            (Some(failure), _) => failure.needed_bytes().max(peak_bytes),
            (None, Some(plan)) => plan.needed_bytes,
            (None, None) => peak_bytes,
        }
    }

    /// Returns the device that decides the answer: that of [`RunSummary::out_of_memory`], that of the
    /// abort or of the context, or else the one with least to spare, of equals the one with the highest
    /// peak.
    pub fn critical_device(&self) -> Option<&DeviceSummary> {
        if let Some(refusal) = self.out_of_memory() {
            return self.devices.get(refusal.device as usize);
        }
        if let Some(abort) = &self.abort {
            return self.devices.get(abort.device as usize);
        }
        if let Some(no_context) = &self.no_context {
            return self.devices.get(no_context.device as usize);
        }
        tightest(&self.devices)
    }

    /// Returns what the answer says of its process, for the answer of a run of several.
    pub fn as_process(&self) -> ProcessSummary {
        let devices = self.devices.iter().map(|device| ProcessDevice {
            gpu: self.header.gpu_of(device.device),
            capacity_bytes: device.capacity_bytes,
            pool_bytes: device.pool_bytes,
            peak_bytes: device.peak_bytes,
            used_by_others_bytes: device.used_by_others_bytes,
        });
        ProcessSummary {
            pid: self.header.pid,
            command: self.header.command.clone(),
            fits: self.fits(),
            oom_count: self.failure_count,
            devices: devices.collect(),
        }
    }

    /// Returns `true` if the process used memory of a GPU, was refused it, or compiled a program for it; or did on the
    /// CPU what it could do on a GPU.
    pub fn used_gpu(&self) -> bool {
        let has_memory = self.devices.iter().any(|device| device.peak_bytes > 0);
        let ran_on_cpu = || {
            let condition = self.ran_on_cpu();
            condition.is_some_and(|condition| condition.leaves_open())
        };
        self.is_refused() || has_memory || self.plan().is_some() || ran_on_cpu()
    }

    /// Returns the program that is taken to be the step of a training loop: the one with the
    /// strongest [`RunSummary::step_evidence`], and of equals the one whose number of calls times what it
    /// needs is largest. (The most calls alone would often be those of a conversion of scalars.)
    /// `None` when nothing was executed.
    pub fn step(&self) -> Option<&ProgramSummary> {
        self.programs.get(self.step?)
    }
}
