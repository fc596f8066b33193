//! What library routines take beside the plans, at most: whether it could be had in the run.
//!
//! A run takes the least that each routine needs ([`crate::trace::Event::Scratch`]). Scratch memory comes and
//! goes inside an execution and leaves the pool as it was, so whether the most could be had as well is
//! asked of the pool at the moment when the routines would ask, without asking it:
//!
//! - [`ScratchPhase::Plan`]: when the temporary block is allocated, as one block with it;
//! - [`ScratchPhase::Execution`]: when all that the execution needs is allocated;
//! - [`ScratchPhase::Compilation`]: before the first execution, when its arguments are there.

use serde::Serialize;

use super::devices::DeviceAnalysis;
use super::programs::Programs;
use crate::program::{EstimateSource, ScratchPhase};
use crate::replay::{Replay, insert_device};
use crate::trace::{Event, Purpose, TextId};

/// What the library routines of a run take beside the plans of its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScratchSummary {
    /// Each routine and line of the programs that were executed, the one that may take most first.
    pub needs: Vec<ScratchNeedSummary>,
    /// The highest number of bytes given out on each device, in order, when every routine takes the
    /// most it may.
    pub peak_bytes: Vec<u64>,
    /// The most that could not be had; `None` where the most of every routine could.
    pub shortage: Option<ScratchShortage>,
}

/// A routine that takes scratch memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScratchNeedSummary {
    /// The library, such as `cuFFT`.
    pub library: String,
    /// The routine and its operand, such as `rfft f64[10,100000000]`.
    pub routine: String,
    /// Name of the program that calls it.
    pub program: String,
    /// The line that calls it, empty if not known.
    pub site: String,
    /// Bytes that it takes at least; they are in the figures of the run where the phase is
    /// [`ScratchPhase::Execution`].
    pub low_bytes: u64,
    /// Bytes that it takes at most; `None` where no bound is known.
    pub high_bytes: Option<u64>,
    /// Where the range comes from.
    pub source: EstimateSource,
    /// When the bytes are taken.
    pub phase: ScratchPhase,
}

impl ScratchNeedSummary {
    /// Returns how many bytes it may take that are not in the figures of the run; `None` where no bound is known.
    pub fn unaccounted_bytes(&self) -> Option<u64> {
        let in_figures = if self.phase == ScratchPhase::Execution { self.low_bytes } else { 0 };
        self.high_bytes.map(|high_bytes| high_bytes.saturating_sub(in_figures))
    }
}

/// Scratch memory that could not be had: the moment that left least for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScratchShortage {
    /// On which device.
    pub device: u32,
    /// Index in [`ScratchSummary::needs`] of the routine.
    pub need: usize,
    /// Bytes that it may take at most, in one piece.
    pub high_bytes: u64,
    /// Bytes that it can have: the run fits when it takes no more.
    pub available_bytes: u64,
    /// Which execution of the program, from 1.
    pub call: u64,
}

/// A need as a trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedScratch {
    pub(super) library: TextId,
    pub(super) routine: TextId,
    pub(super) site: TextId,
    pub(super) low_bytes: u64,
    pub(super) high_bytes: u64,
    pub(super) source: EstimateSource,
    pub(super) phase: ScratchPhase,
}

/// The most that the routines of a program take at once: those of a phase run one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScratchLimits {
    execution: ScratchLimit,
    plan: ScratchLimit,
    compilation: ScratchLimit,
}

/// The most that one phase takes, and which need that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScratchLimit {
    bytes: u64,
    need: u32,
}

impl ScratchLimits {
    pub(super) fn new(needs: &[RecordedScratch]) -> ScratchLimits {
        let most = |phase| {
            let of_phase = (0..).zip(needs).filter(|(_, need)| need.phase == phase);
            let known = of_phase.filter(|(_, need)| need.source != EstimateSource::Unknown);
            let limits =
                known.map(|(number, need)| ScratchLimit { bytes: need.high_bytes, need: number });
            limits.max_by_key(|limit| limit.bytes).unwrap_or_default()
        };
        ScratchLimits {
            execution: most(ScratchPhase::Execution),
            plan: most(ScratchPhase::Plan),
            compilation: most(ScratchPhase::Compilation),
        }
    }

    fn is_empty(&self) -> bool {
        *self == ScratchLimits::default()
    }
}

/// Returns the least that routines take in an execution beside its plan, as a run takes it.
pub(super) fn least_in_execution(needs: &[RecordedScratch]) -> u64 {
    let needs = needs.iter();
    let needs = needs.filter(|need| need.phase == ScratchPhase::Execution);
    needs.map(|need| need.low_bytes).max().unwrap_or(0)
}

/// What was found so far about the most that routines may take.
#[derive(Debug, Default)]
pub(super) struct ScratchDemand {
    /// The peak of each device, when every routine takes the most.
    peaks: Vec<u64>,
    shortage: Option<Shortage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shortage {
    device: u32,
    entry: usize,
    limit: ScratchLimit,
    available: u64,
    call: u64,
}

/// What was checked already in an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScratchChecks {
    /// Devices on which the temporary block was allocated.
    with_temporaries: Vec<u32>,
    /// Devices on which the execution had all it needs.
    complete: Vec<u32>,
    /// A request was refused, so that nothing was executed.
    failed: bool,
}

/// Checks at one event whether the most that routines may take is available.
struct Check<'a> {
    demand: &'a mut ScratchDemand,
    programs: &'a Programs,
    replay: &'a mut Replay,
    gpu_bytes: u64,
}

impl ScratchDemand {
    /// Checks whether the most that routines may take is available now, where `event`, which has not
    /// happened yet, says that this is the point. `active` is the execution that it belongs to, by its entry.
    pub(super) fn on_event(
        &mut self,
        event: &Event,
        active: Option<(usize, &mut ScratchChecks)>,
        programs: &Programs,
        replay: &mut Replay,
        gpu_bytes: u64,
    ) {
        let mut check = Check { demand: self, programs, replay, gpu_bytes };
        if let Event::Begin { program, .. } = *event {
            return check.on_begin(program);
        }
        let Some((entry, checks)) = active else {
            return;
        };
        let limits = programs.entries[entry].scratch_limits;
        if limits.is_empty() {
            return;
        }
        match *event {
            Event::AllocationFailure { .. } => checks.failed = true,
            Event::Allocate { device, bytes, purpose: Purpose::Temporary, .. }
                if limits.plan.bytes > 0 && insert_device(&mut checks.with_temporaries, device) =>
            {
                check.check(device, entry, limits.plan, bytes);
            }
            Event::Allocate { device, purpose: Purpose::Scratch, .. } => {
                check.on_complete(device, entry, limits, checks);
            }
            Event::Free { allocation } | Event::FreeAborts { allocation, .. } => {
                if let Some(device) = check.replay.device_of(allocation) {
                    check.on_complete(device, entry, limits, checks);
                }
            }
            Event::End => {
                let devices = programs.entries[entry].key.devices;
                for device in 0..devices.min(check.replay.devices()) {
                    check.on_complete(device, entry, limits, checks);
                }
            }
            _ => {}
        }
    }
}

impl Check<'_> {
    /// Checks what the autotuner takes, before the first execution of a program.
    fn on_begin(&mut self, program: u32) {
        let Ok(entry) = self.programs.entry_for(program) else {
            return;
        };
        let limit = self.programs.entries[entry].scratch_limits.compilation;
        let is_first = self.programs.calls(entry) == 0;
        if is_first && limit.bytes > 0 && self.replay.devices() > 0 {
            self.check(0, entry, limit, 0);
        }
    }

    /// Checks what the routines of an execution take beside all else, once a device.
    fn on_complete(
        &mut self,
        device: u32,
        entry: usize,
        limits: ScratchLimits,
        checks: &mut ScratchChecks,
    ) {
        if checks.failed || !insert_device(&mut checks.complete, device) {
            return;
        }
        if limits.execution.bytes > 0 {
            self.check(device, entry, limits.execution, limits.plan.bytes);
        } else if limits.plan.bytes > 0 && !checks.with_temporaries.contains(&device) {
            // A program without temporaries has them on a GPU.
            self.check(device, entry, limits.plan, 0);
        }
    }

    /// Checks whether the most of a need is available beside `others`, in one piece.
    fn check(&mut self, device: u32, entry: usize, limit: ScratchLimit, others: u64) {
        let wanted = limit.bytes.saturating_add(others);
        let in_use = self.replay.pool_level(device).in_use_bytes;
        let index = device as usize;
        let peaks = &mut self.demand.peaks;
        peaks.resize(peaks.len().max(index + 1), 0);
        peaks[index] = peaks[index].max(in_use.saturating_add(wanted));
        let available = self.replay.available_bytes(device, self.gpu_bytes);
        if available >= wanted {
            return;
        }
        let available = available.saturating_sub(others);
        let shortage = &mut self.demand.shortage;
        if shortage.as_ref().is_none_or(|known| available < known.available) {
            *shortage = Some(Shortage {
                device,
                entry,
                limit,
                available,
                // Before its first execution a program was never called.
                call: self.programs.calls(entry).max(1),
            });
        }
    }
}

impl ScratchDemand {
    /// Says what was found; `None` where no program that was executed has such routines.
    pub(super) fn summary(
        &self,
        programs: &Programs,
        devices: &[DeviceAnalysis],
        text: &impl Fn(TextId) -> String,
    ) -> Option<ScratchSummary> {
        let mut needs = Vec::new();
        let mut shortage = None;
        for (number, entry) in programs.entries.iter().enumerate() {
            if entry.calls == 0 {
                continue;
            }
            for (place, need) in (0..).zip(&entry.scratch) {
                if let Some(found) = &self.shortage
                    && (found.entry, found.limit.need) == (number, place)
                {
                    shortage = Some(needs.len());
                }
                needs.push(ScratchNeedSummary {
                    library: text(need.library),
                    routine: text(need.routine),
                    program: text(entry.key.name),
                    site: text(need.site),
                    low_bytes: need.low_bytes,
                    high_bytes: (need.source != EstimateSource::Unknown).then_some(need.high_bytes),
                    source: need.source,
                    phase: need.phase,
                });
            }
        }
        if needs.is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..needs.len()).collect();
        // What has no bound comes first: it may take more than any other.
        order.sort_by_key(|&at| std::cmp::Reverse(needs[at].high_bytes.unwrap_or(u64::MAX)));
        let shortage = shortage.zip(self.shortage.as_ref());
        let shortage = shortage.map(|(need, found)| ScratchShortage {
            device: found.device,
            need: order.iter().position(|&at| at == need).unwrap_or(0),
            high_bytes: found.limit.bytes,
            available_bytes: found.available,
            call: found.call,
        });
        let peaks = devices.iter().enumerate().map(|(number, device)| {
            let most = self.peaks.get(number).copied().unwrap_or(0);
            device.peak_bytes.max(most)
        });
        Some(ScratchSummary {
            peak_bytes: peaks.collect(),
            shortage,
            needs: order.into_iter().map(|at| needs[at].clone()).collect(),
        })
    }
}
