//! The programs of a run: what was compiled, what is loaded, which of them is the step.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::compilations::Compilation;
use super::scratch::{ScratchLimits, ScratchNeed};
use crate::trace::{ProgramSizes, TextId};

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

/// Name, sizes, devices and compile_attempt: what makes programs the same to a reader.
pub(super) type ProgramKey = (TextId, ProgramSizes, u32, TextId);

/// Programs of the same key.
pub(super) struct ProgramEntry {
    pub(super) key: ProgramKey,
    /// Number of the first of them.
    pub(super) program: u32,
    pub(super) site: TextId,
    /// How it was compiled a second time, and the temporaries that it needs then.
    pub(super) variant: Option<(TextId, u64)>,
    /// What its library routines take beside the plan.
    pub(super) scratch: Vec<ScratchNeed>,
    /// The most that they take at once in each phase.
    pub(super) scratch_limits: ScratchLimits,
    pub(super) compilations: u64,
    pub(super) loaded: u64,
    pub(super) calls: u64,
    pub(super) evidence: Evidence,
    /// Event with which its first execution began.
    pub(super) first_call: Option<u64>,
    /// When its last execution ended, and what was in use on each device then.
    pub(super) ended: Option<(u64, Vec<u64>)>,
    /// What was held before its last execution, on each device.
    pub(super) held: Vec<u64>,
}

/// Every program so far.
#[derive(Default)]
pub(super) struct Programs {
    pub(super) entries: Vec<ProgramEntry>,
    pub(super) compiled: Vec<Compilation>,
    /// Whether the run searched for its step and noted what it found.
    pub(super) is_searched: bool,
    /// The entry with the strongest evidence; of equals the one that has needed most so far, all its calls
    /// together; of equals the one compiled first.
    pub(super) step: Option<usize>,
    pub(super) by_key: FxHashMap<ProgramKey, usize>,
    /// Rows of the programs that are loaded, and how often each is: the same program may be
    /// loaded again before it is dropped.
    pub(super) loaded: FxHashMap<u32, (usize, u64)>,
}

/// More compilations than any run has; a limit for damaged traces.
const MAX_COMPILATIONS: usize = 1 << 20;

/// Why an event about a program cannot have happened.
type ErrorText = &'static str;

impl Programs {
    /// Notes that a program was compiled or loaded.
    pub(super) fn add(
        &mut self,
        program: u32,
        compiled: Compilation,
        devices: u32,
        compile_attempt: TextId,
    ) -> Result<(), ErrorText> {
        let entry = self.entry(
            (compiled.name, compiled.sizes, devices, compile_attempt),
            compiled.site,
            program,
        );
        if self.compiled.len() == MAX_COMPILATIONS {
            return Err("more programs are compiled than any run compiles");
        }
        self.compiled.push(compiled);
        self.entries[entry].compilations += 1;
        self.entries[entry].loaded += u64::from(compiled.loaded);
        let loaded = self.loaded.entry(program).or_insert((entry, 0));
        if loaded.0 != entry {
            return Err("two programs have the same number");
        }
        loaded.1 += 1;
        Ok(())
    }

    /// Notes what a program needs when it is compiled another way.
    pub(super) fn register_variant(
        &mut self,
        program: u32,
        name: TextId,
        bytes: u64,
    ) -> Result<(), ErrorText> {
        let Some((entry, _)) = self.loaded.get(&program) else {
            return Err("a program was measured that is not there");
        };
        self.entries[*entry].variant = Some((name, bytes));
        Ok(())
    }

    /// Notes what library routines of a program take beside the plan.
    pub(super) fn add_scratch(&mut self, program: u32, need: ScratchNeed) -> Result<(), ErrorText> {
        const MAX_NEEDS: usize = 100_000;
        let Some((entry, _)) = self.loaded.get(&program) else {
            return Err("scratch memory of a program that is not there");
        };
        let entry = &mut self.entries[*entry];
        // Programs of one entry need the same; those of the first are kept.
        if entry.program == program && !entry.scratch.contains(&need) {
            if entry.scratch.len() == MAX_NEEDS {
                return Err("too many routines of one program take scratch memory");
            }
            entry.scratch.push(need);
            entry.scratch_limits = ScratchLimits::of(&entry.scratch);
        }
        Ok(())
    }

    /// Notes that a program was dropped.
    pub(super) fn unload(&mut self, program: u32) -> Result<(), ErrorText> {
        let Some((_, times)) = self.loaded.get_mut(&program) else {
            return Err("a program is dropped that is not there");
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
        loaded.ok_or("a program is executed that is not there")
    }

    /// Notes a call, and says whether the program is the step as far as one can know now. Only its own
    /// figure has changed, so after the last call the step is that of the whole run.
    pub(super) fn call(&mut self, entry: usize, event: u64) -> bool {
        self.entries[entry].calls += 1;
        self.entries[entry].first_call.get_or_insert(event);
        let leads = self.step.is_none_or(|step| {
            entry == step || (self.rank(entry), step) > (self.rank(step), entry)
        });
        if leads {
            self.step = Some(entry);
        }
        leads
    }

    /// Notes why a program that is loaded may be the step.
    pub(super) fn note_evidence(&mut self, program: u32, evidence: Evidence) {
        if let Ok(entry) = self.entry_for(program) {
            let entry = &mut self.entries[entry];
            entry.evidence = entry.evidence.max(evidence);
        }
    }

    /// Says whether calls of a program are steps of a training. Where the run did not search for them,
    /// any may be.
    pub(super) fn is_step(&self, entry: usize) -> bool {
        !self.is_searched || self.entries[entry].evidence >= Evidence::StateReturned
    }

    /// Returns what programs are compared by when the step is chosen.
    pub(super) fn rank(&self, entry: usize) -> (Evidence, u128) {
        (self.entries[entry].evidence, self.needed(entry))
    }

    /// Returns what a program has needed so far: its calls times its bytes.
    pub(super) fn needed(&self, entry: usize) -> u128 {
        let entry = &self.entries[entry];
        u128::from(entry.calls) * u128::from(entry.key.1.needed_bytes().max(1))
    }

    /// Returns the entry of a key, making it if it is the first of its kind.
    fn entry(&mut self, key: ProgramKey, site: TextId, program: u32) -> usize {
        let next = self.entries.len();
        let entry = *self.by_key.entry(key).or_insert(next);
        if entry == next {
            self.entries.push(ProgramEntry {
                key,
                program,
                site,
                variant: None,
                scratch: Vec::new(),
                scratch_limits: ScratchLimits::default(),
                compilations: 0,
                loaded: 0,
                calls: 0,
                evidence: Evidence::default(),
                first_call: None,
                ended: None,
                held: Vec::new(),
            });
        }
        entry
    }
}
