//! The programs of a run: what was compiled, what is loaded, which of them is the step.

mod call_events;

use std::mem::take;

use rustc_hash::FxHashMap;
use serde::Serialize;

use self::call_events::CallEvents;
use super::devices::DeviceAnalysis;
use super::facts::compilations::Compilation;
use super::scratch::{RecordedScratch, ScratchLimits};
use crate::program::{ProgramSizes, ProgramTime};
use crate::trace::{EventSource, TextId};

/// Why a program is taken for the step of a training; the stronger is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// None; it needed most, all its calls together.
    #[default]
    MostMemory,
    /// It has a backward pass.
    BackwardPass,
    /// What it returned came back as its arguments, and it has a backward pass or nothing else was
    /// alive.
    StateReturned,
    /// It was named on the command line.
    Named,
}

/// What makes programs the same to a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ProgramKey {
    pub(super) name: TextId,
    pub(super) sizes: ProgramSizes,
    pub(super) devices: u32,
    pub(super) compile_attempt: TextId,
}

/// Programs of the same key.
#[derive(Default)]
pub(super) struct ProgramEntry {
    pub(super) key: ProgramKey,
    /// Number of the first of them.
    pub(super) program: u32,
    pub(super) site: TextId,
    /// How it was compiled a second time, and the temporaries that it needs then.
    pub(super) variant: Option<(TextId, u64)>,
    /// What its library routines take beside the plan.
    pub(super) scratch: Vec<RecordedScratch>,
    /// The most that they take at once in each phase.
    pub(super) scratch_limits: ScratchLimits,
    pub(super) compilations: u64,
    pub(super) loaded: u64,
    pub(super) calls: u64,
    /// How often it was executed since the last execution of the step, and between the last two.
    calls_since_step: u64,
    pub(super) calls_per_step: u64,
    pub(super) evidence: Evidence,
    /// When its executions began.
    pub(super) call_events: CallEvents,
    /// When its last execution ended, and what was in use on each device then.
    pub(super) ended: Option<(u64, Vec<u64>)>,
    /// What was held before its last execution, on each device.
    pub(super) steady_state: Vec<u64>,
}

/// Every program so far.
#[derive(Default)]
pub(super) struct Programs {
    pub(super) entries: Vec<ProgramEntry>,
    pub(super) compilations: Vec<Compilation>,
    /// Whether the run searched for its step and noted what it found.
    pub(super) has_step_search: bool,
    /// The entry of the step, as far as one can know now: that with the strongest evidence; of equals the one
    /// that has needed most so far, all its calls together; of equals the one compiled first.
    pub(super) step: Option<usize>,
    by_key: FxHashMap<ProgramKey, usize>,
    /// Entries of the programs that are loaded, and how often each is: the same program may be
    /// loaded again before it is dropped.
    loaded: FxHashMap<u32, (usize, u64)>,
}

/// More compilations than any run has; a limit for damaged traces.
const MAX_COMPILATIONS: usize = 1 << 20;

/// Why an event about a program cannot have happened.
pub(super) type ErrorText = &'static str;

impl Programs {
    /// Records that a program was compiled or loaded.
    pub(super) fn on_compiled(
        &mut self,
        program: u32,
        compilation: Compilation,
        devices: u32,
        compile_attempt: TextId,
    ) -> Result<(), ErrorText> {
        let key = ProgramKey {
            name: compilation.name,
            sizes: compilation.sizes,
            devices,
            compile_attempt,
        };
        let entry = self.entry(key, compilation.site, program);
        if self.compilations.len() == MAX_COMPILATIONS {
            return Err("the number of programs is out of range");
        }
        self.compilations.push(compilation);
        self.entries[entry].compilations += 1;
        self.entries[entry].loaded += u64::from(compilation.loaded);
        let loaded = self.loaded.entry(program).or_insert((entry, 0));
        if loaded.0 != entry {
            return Err("two programs have the same number");
        }
        loaded.1 += 1;
        Ok(())
    }

    /// Records what a program needs when it is compiled another way.
    pub(super) fn register_variant(
        &mut self,
        program: u32,
        name: TextId,
        bytes: u64,
    ) -> Result<(), ErrorText> {
        let Some((entry, _)) = self.loaded.get(&program) else {
            return Err("a measurement refers to an unknown program");
        };
        self.entries[*entry].variant = Some((name, bytes));
        Ok(())
    }

    /// Records what library routines of a program take outside its plan.
    pub(super) fn add_scratch(
        &mut self,
        program: u32,
        need: RecordedScratch,
    ) -> Result<(), ErrorText> {
        const MAX_NEEDS: usize = 100_000;
        let Some((entry, _)) = self.loaded.get(&program) else {
            return Err("scratch memory refers to an unknown program");
        };
        let entry = &mut self.entries[*entry];
        // Programs of one entry need the same; those of the first are kept.
        if entry.program == program && !entry.scratch.contains(&need) {
            if entry.scratch.len() == MAX_NEEDS {
                return Err("too many routines of one program use scratch memory");
            }
            entry.scratch.push(need);
            entry.scratch_limits = ScratchLimits::new(&entry.scratch);
        }
        Ok(())
    }

    /// Records that a program was dropped.
    pub(super) fn on_unloaded(&mut self, program: u32) -> Result<(), ErrorText> {
        let Some((_, times)) = self.loaded.get_mut(&program) else {
            return Err("an unknown program is unloaded");
        };
        *times -= 1;
        if *times == 0 {
            self.loaded.remove(&program);
        }
        Ok(())
    }

    /// Returns the entry of a program that is loaded.
    pub(super) fn entry_for(&self, program: u32) -> Result<usize, ErrorText> {
        let loaded = self.loaded.get(&program).map(|(entry, _)| *entry);
        loaded.ok_or("an unknown program is executed")
    }

    /// Records a call, and says whether the program is the step as far as one can know now. Only its own
    /// figure has changed, so after the last call the step is that of the whole run.
    pub(super) fn on_call(&mut self, entry: usize, event: u64) -> bool {
        let called = &mut self.entries[entry];
        called.calls += 1;
        called.calls_since_step += 1;
        called.call_events.add(called.calls, event);
        let is_step = self.step.is_none_or(|step| {
            entry == step || (self.rank(entry), step) > (self.rank(step), entry)
        });
        if is_step {
            self.step = Some(entry);
            for entry in &mut self.entries {
                entry.calls_per_step = take(&mut entry.calls_since_step);
            }
        }
        is_step
    }

    /// Records the end of an execution: when it was, and what was in use on each device then.
    pub(super) fn on_end(&mut self, entry: usize, time: u64, levels: impl Iterator<Item = u64>) {
        match &mut self.entries[entry].ended {
            Some((last_time, last_levels)) => {
                *last_time = time;
                last_levels.clear();
                last_levels.extend(levels);
            }
            ended => *ended = Some((time, levels.collect())),
        }
    }

    /// Takes over what stayed allocated on each device since the last execution of a program, at the next one.
    pub(super) fn set_steady_state(&mut self, entry: usize, devices: &[DeviceAnalysis]) {
        let ProgramEntry { ended, steady_state, .. } = &mut self.entries[entry];
        steady_state.clear();
        steady_state.extend(devices.iter().enumerate().map(|(index, device)| match ended {
            // Where nothing was recorded since, nothing changed since.
            Some((time, levels)) => {
                let lowest = device.lowest_since(*time).unwrap_or(u64::MAX);
                lowest.min(levels[index])
            }
            None => device.in_use_bytes(),
        }));
    }

    /// Records why a program that is loaded may be the step.
    pub(super) fn add_evidence(&mut self, program: u32, evidence: Evidence) {
        if let Ok(entry) = self.entry_for(program) {
            let entry = &mut self.entries[entry];
            entry.evidence = entry.evidence.max(evidence);
        }
    }

    /// Returns `true` if calls of a program are steps of a training. Where the run did not search for them,
    /// any may be.
    pub(super) fn may_be_step(&self, entry: usize) -> bool {
        !self.has_step_search || self.entries[entry].evidence >= Evidence::StateReturned
    }

    /// Returns what programs are compared by when the step is chosen.
    pub(super) fn rank(&self, entry: usize) -> (Evidence, u128) {
        (self.entries[entry].evidence, self.needed(entry))
    }

    /// Returns what a program has needed so far: its calls times its bytes.
    fn needed(&self, entry: usize) -> u128 {
        let entry = &self.entries[entry];
        u128::from(entry.calls) * u128::from(entry.key.sizes.needed_bytes().max(1))
    }

    /// Returns how long a step takes: the programs that ran between its last two executions, or itself
    /// where there was one. `None` where no step was detected, or a program says nothing.
    pub(super) fn step_time(&self, source: &dyn EventSource) -> Option<ProgramTime> {
        let step = &self.entries[self.step?];
        if step.evidence == Evidence::MostMemory {
            return None;
        }
        let mut total = source.program_time(step.program)?.clone();
        let others = self.entries.iter().filter(|entry| entry.key != step.key);
        for other in others.filter(|other| step.calls > 1 && other.calls_per_step > 0) {
            total.add(source.program_time(other.program)?, other.calls_per_step);
        }
        Some(total)
    }

    pub(super) fn name(&self, entry: usize) -> TextId {
        self.entries[entry].key.name
    }

    pub(super) fn calls(&self, entry: usize) -> u64 {
        self.entries[entry].calls
    }

    pub(super) fn sizes(&self, entry: usize) -> &ProgramSizes {
        &self.entries[entry].key.sizes
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns how often a program was executed after an event; fewer where not all of its calls are kept.
    pub(super) fn calls_since(&self, entry: usize, event: u64) -> u64 {
        let ProgramEntry { calls, call_events, .. } = &self.entries[entry];
        let mut kept = call_events.calls().iter();
        let first = kept.find(|(_, began)| *began > event);
        first.map_or(0, |(number, _)| *calls + 1 - number)
    }

    /// Returns the entry of a key, making it if it is the first of its kind.
    fn entry(&mut self, key: ProgramKey, site: TextId, program: u32) -> usize {
        let next = self.entries.len();
        let entry = *self.by_key.entry(key).or_insert(next);
        if entry == next {
            self.entries.push(ProgramEntry { key, program, site, ..ProgramEntry::default() });
        }
        entry
    }
}
