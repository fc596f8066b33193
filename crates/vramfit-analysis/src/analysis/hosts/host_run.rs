//! What one host executed together with others.

use std::path::Path;

use rustc_hash::FxHashMap;

use crate::analysis::RunSummary;
use crate::analysis::load::trace_files;
use crate::error::Result;
use crate::trace::{Event, EventSource, Note, PartitionedProgram, Reader};

/// Executions of different programs in turn that are kept of a run, to compare hosts by.
const MAX_EXECUTIONS_KEPT: usize = 1 << 20;

/// The dry run of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRun {
    /// Which host it is.
    pub host: u32,
    /// What it came to.
    pub summary: RunSummary,
    /// The programs that it runs together with other hosts.
    pub programs: Vec<GlobalProgram>,
    /// Which of these were executed, in order: index, and how often in a row.
    pub executions: Vec<(usize, u64)>,
}

/// A program that several hosts execute together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobalProgram {
    /// Its name, such as `jit_train_step`.
    pub name: String,
    /// Equal for equal programs, also of different hosts.
    pub fingerprint: String,
    /// The hosts that execute it, in ascending order.
    pub hosts: Vec<u32>,
    /// Whether they exchange data then, and so wait for each other.
    pub communicates: bool,
}

impl HostRun {
    /// Returns `true` if the program told JAX of the other hosts (`jax.distributed.initialize`).
    pub fn is_initialized(&self) -> bool {
        self.summary.header.hosts > 1
    }

    /// Returns `true` if the run came to its own end: it executed all that it would on the cluster.
    pub(super) fn is_whole(&self) -> bool {
        let exited = self.summary.process_exit;
        !self.summary.is_refused() && exited.is_none_or(|exit| exit.is_success())
    }
}

/// Reads from the traces of a host's run what it executed together with others. `summary` is what the run came to.
///
/// # Errors
/// [`crate::ErrorKind::Io`] and [`crate::ErrorKind::InvalidFile`] for a trace that cannot be read.
pub fn read_host_run(host: u32, summary: RunSummary, trace: &Path) -> Result<HostRun> {
    let mut run = HostRun { host, summary, programs: Vec::new(), executions: Vec::new() };
    for path in trace_files(trace) {
        run.add_executions(&mut Reader::open(&path)?)?;
    }
    Ok(run)
}

impl HostRun {
    fn add_executions(&mut self, events: &mut dyn EventSource) -> Result<()> {
        let mut names: FxHashMap<u32, String> = FxHashMap::default();
        let mut executed = Vec::new();
        while let Some(event) = events.next_event()? {
            match event {
                Event::Program { program, name, .. } => {
                    names.insert(program, events.text(name).to_owned());
                }
                Event::Begin { program, .. } => add_execution(&mut executed, program),
                _ => {}
            }
        }
        // A note stands behind the record of its program.
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        for note in events.notes() {
            if let Note::PartitionedProgram(program) = note
                && program.hosts.len() > 1
            {
                let name = names.get(&program.program).cloned().unwrap_or_default();
                numbers.insert(program.program, self.add_program(name, program));
            }
        }
        let executed = executed.into_iter();
        self.executions
            .extend(executed.filter_map(|(program, times)| Some((*numbers.get(&program)?, times))));
        Ok(())
    }

    /// Returns the index of a program.
    fn add_program(&mut self, name: String, program: &PartitionedProgram) -> usize {
        let program = GlobalProgram {
            name,
            fingerprint: program.fingerprint.clone(),
            hosts: program.hosts.clone(),
            communicates: program.communicates,
        };
        let known = self.programs.iter().position(|known| *known == program);
        known.unwrap_or_else(|| {
            self.programs.push(program);
            self.programs.len() - 1
        })
    }
}

fn add_execution(executed: &mut Vec<(u32, u64)>, program: u32) {
    if let Some((_, times)) = executed.last_mut().filter(|(last, _)| *last == program) {
        *times += 1;
    } else if executed.len() < MAX_EXECUTIONS_KEPT {
        executed.push((program, 1));
    }
}
