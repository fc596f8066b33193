//! The programs of a run: what was compiled, what is loaded, which of them is the step.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::compilations::Compiled;
use super::scratch::{Limits, RawNeed};
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
pub(super) type RowKey = (TextId, ProgramSizes, u32, TextId);

/// Programs of the same key.
pub(super) struct Row {
    pub(super) key: RowKey,
    /// Number of the first of them.
    pub(super) program: u32,
    pub(super) site: TextId,
    /// How it was compiled a second time, and the temporaries that it needs then.
    pub(super) variant: Option<(TextId, u64)>,
    /// What its library routines take beside the plan.
    pub(super) scratch: Vec<RawNeed>,
    /// The most that they take at once in each phase.
    pub(super) scratch_limits: Limits,
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
    pub(super) rows: Vec<Row>,
    pub(super) compiled: Vec<Compiled>,
    /// Whether the run searched for its step and noted what it found.
    pub(super) is_searched: bool,
    /// The row with the strongest evidence; of equals the one that has needed most so far, all its calls
    /// together; of equals the one compiled first.
    pub(super) step: Option<usize>,
    pub(super) row_of: FxHashMap<RowKey, usize>,
    /// Rows of the programs that are loaded, and how often each is: the same program may be
    /// loaded again before it is dropped.
    pub(super) loaded: FxHashMap<u32, (usize, u64)>,
}

/// More compilations than any run has; a limit for damaged traces.
const MAX_COMPILATIONS: usize = 1 << 20;

/// Why an event about a program cannot have happened.
type Wrong = &'static str;

impl Programs {
    /// Notes that a program was compiled or loaded.
    pub(super) fn add(
        &mut self,
        program: u32,
        compiled: Compiled,
        devices: u32,
        compile_attempt: TextId,
    ) -> Result<(), Wrong> {
        let row = self.row(
            (compiled.name, compiled.sizes, devices, compile_attempt),
            compiled.site,
            program,
        );
        if self.compiled.len() == MAX_COMPILATIONS {
            return Err("more programs are compiled than any run compiles");
        }
        self.compiled.push(compiled);
        self.rows[row].compilations += 1;
        self.rows[row].loaded += u64::from(compiled.loaded);
        let entry = self.loaded.entry(program).or_insert((row, 0));
        if entry.0 != row {
            return Err("two programs have the same number");
        }
        entry.1 += 1;
        Ok(())
    }

    /// Notes what a program needs when it is compiled another way.
    pub(super) fn measure(&mut self, program: u32, name: TextId, bytes: u64) -> Result<(), Wrong> {
        let Some((row, _)) = self.loaded.get(&program) else {
            return Err("a program was measured that is not there");
        };
        self.rows[*row].variant = Some((name, bytes));
        Ok(())
    }

    /// Notes what library routines of a program take beside the plan.
    pub(super) fn add_scratch(&mut self, program: u32, need: RawNeed) -> Result<(), Wrong> {
        const MAX_NEEDS: usize = 100_000;
        let Some((row, _)) = self.loaded.get(&program) else {
            return Err("scratch memory of a program that is not there");
        };
        let row = &mut self.rows[*row];
        // Programs of one row need the same; those of the first are kept.
        if row.program == program && !row.scratch.contains(&need) {
            if row.scratch.len() == MAX_NEEDS {
                return Err("too many routines of one program take scratch memory");
            }
            row.scratch.push(need);
            row.scratch_limits = Limits::of(&row.scratch);
        }
        Ok(())
    }

    /// Notes that a program was dropped.
    pub(super) fn unload(&mut self, program: u32) -> Result<(), Wrong> {
        let Some((_, times)) = self.loaded.get_mut(&program) else {
            return Err("a program is dropped that is not there");
        };
        *times -= 1;
        if *times == 0 {
            self.loaded.remove(&program);
        }
        Ok(())
    }

    /// Returns the row of a program that is loaded.
    pub(super) fn row_of(&self, program: u32) -> Result<usize, Wrong> {
        let loaded = self.loaded.get(&program).map(|(row, _)| *row);
        loaded.ok_or("a program is executed that is not there")
    }

    /// Notes a call, and says whether the program is the step as far as one can know now. Only its own
    /// figure has changed, so after the last call the step is that of the whole run.
    pub(super) fn call(&mut self, row: usize, event: u64) -> bool {
        self.rows[row].calls += 1;
        self.rows[row].first_call.get_or_insert(event);
        let leads = self
            .step
            .is_none_or(|step| row == step || (self.rank(row), step) > (self.rank(step), row));
        if leads {
            self.step = Some(row);
        }
        leads
    }

    /// Notes why a program that is loaded may be the step.
    pub(super) fn note_evidence(&mut self, program: u32, evidence: Evidence) {
        if let Ok(row) = self.row_of(program) {
            let row = &mut self.rows[row];
            row.evidence = row.evidence.max(evidence);
        }
    }

    /// Says whether calls of a program are steps of a training. Where the run did not search for them,
    /// any may be.
    pub(super) fn is_step(&self, row: usize) -> bool {
        !self.is_searched || self.rows[row].evidence >= Evidence::StateReturned
    }

    /// Returns what programs are compared by when the step is chosen.
    pub(super) fn rank(&self, row: usize) -> (Evidence, u128) {
        (self.rows[row].evidence, self.needed(row))
    }

    /// Returns what a program has needed so far: its calls times its bytes.
    pub(super) fn needed(&self, row: usize) -> u128 {
        let row = &self.rows[row];
        u128::from(row.calls) * u128::from(row.key.1.needed_bytes().max(1))
    }

    /// Returns the row of a key, making it if it is the first of its kind.
    fn row(&mut self, key: RowKey, site: TextId, program: u32) -> usize {
        let next = self.rows.len();
        let row = *self.row_of.entry(key).or_insert(next);
        if row == next {
            self.rows.push(Row {
                key,
                program,
                site,
                variant: None,
                scratch: Vec::new(),
                scratch_limits: Limits::default(),
                compilations: 0,
                loaded: 0,
                calls: 0,
                evidence: Evidence::default(),
                first_call: None,
                ended: None,
                held: Vec::new(),
            });
        }
        row
    }
}
