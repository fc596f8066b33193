//! The same run with other kernels: the trace once more, on GPUs of its own, with the temporaries
//! that the programs need when they are compiled another way.
//!
//! Nothing here is compared with what the run recorded, since it did not happen. All but the
//! temporaries stays as it was: arguments and outputs do not depend on kernels.

use rustc_hash::FxHashMap;

use super::effect::{Divergence, EventEffect};
use super::engine::Replay;
use crate::error::Result;
use crate::trace::{Event, Header, Purpose};

/// What the allocators ask for the temporary block of a program that had none in the run.
const ALIGNMENT: u64 = 64;

/// A replay to which the run happens with other temporaries.
pub(crate) struct VariantReplay {
    replay: Replay,
    programs: FxHashMap<u32, Program>,
    /// The executions that are going on, the innermost last.
    running: Vec<Execution>,
    refused: bool,
}

#[derive(Clone, Copy)]
struct Program {
    /// Temporaries in the run.
    temp_bytes: u64,
    devices: u32,
    /// Temporaries when compiled the other way.
    other_bytes: Option<u64>,
}

#[derive(Default)]
struct Execution {
    program: Option<Program>,
    /// Devices on which anything was allocated.
    seen: Vec<u32>,
    /// Devices on which the block of temporaries was taken.
    taken: Vec<u32>,
    /// Whether a request was refused in the run, so that nothing was executed.
    failed: bool,
}

impl VariantReplay {
    /// Builds the allocators that the header describes, each on a GPU that nobody shares.
    pub(crate) fn new(header: &Header) -> Result<VariantReplay> {
        Ok(VariantReplay {
            replay: Replay::what_if(header, false)?,
            programs: FxHashMap::default(),
            running: Vec::new(),
            refused: false,
        })
    }

    /// Applies an event that the replay of the run has found plausible.
    ///
    /// # Errors
    /// Those of [`Replay::apply`], which the replay of the run has had before.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<()> {
        if self.replay.divergence().is_some() {
            return Ok(());
        }
        let mut event = *event;
        match &mut event {
            Event::Program { program, sizes, devices, .. } => {
                let known =
                    Program { temp_bytes: sizes.temp_bytes, devices: *devices, other_bytes: None };
                self.programs.insert(*program, known);
            }
            Event::Variant { program, sizes, .. } => {
                if let Some(program) = self.programs.get_mut(program) {
                    program.other_bytes = Some(sizes.temp_bytes);
                }
            }
            Event::Begin { program, .. } => self.running.push(Execution {
                program: self.programs.get(program).copied(),
                ..Execution::default()
            }),
            Event::Allocate { device, bytes, purpose, .. } => {
                *bytes = self.other_bytes(*device, *bytes, *purpose);
            }
            Event::AllocationFailure { device, bytes, purpose, .. } => {
                *bytes = self.other_bytes(*device, *bytes, *purpose);
                if let Some(execution) = self.running.last_mut() {
                    execution.failed = true;
                }
            }
            Event::End => return self.end(),
            _ => {}
        }
        let effect = self.replay.apply(&event, 0)?;
        self.note(&effect);
        Ok(())
    }

    /// Returns the peak of each device.
    pub(crate) fn peak_bytes(&mut self) -> Vec<u64> {
        let devices = 0..self.replay.devices();
        let peaks = devices.map(|device| self.replay.allocator(device).stats().peak_bytes_in_use);
        peaks.collect()
    }

    /// Returns `true` if every request was met; `None` when how it would have gone on is not known.
    pub(crate) fn fits(&self) -> Option<bool> {
        match self.replay.divergence() {
            _ if self.refused => Some(false),
            Some(Divergence::Granted) => None,
            _ => Some(true),
        }
    }

    /// Notes what did not go well. A process whose allocator cannot free something is aborted.
    fn note(&mut self, effect: &EventEffect) {
        self.refused |= matches!(effect, EventEffect::Refused(..) | EventEffect::Aborted(..));
    }

    /// Returns how much a request asks for now. The first temporary block of an execution on a
    /// device takes what all of them take together.
    fn other_bytes(&mut self, device: u32, bytes: u64, purpose: Purpose) -> u64 {
        let Some(execution) = self.running.last_mut() else {
            return bytes;
        };
        insert_device(&mut execution.seen, device);
        match execution.program.and_then(|program| program.other_bytes) {
            Some(other) if purpose == Purpose::Temporary => {
                match insert_device(&mut execution.taken, device) {
                    true => other,
                    false => 0,
                }
            }
            _ => bytes,
        }
    }

    /// Ends an execution. A program that had no temporaries in the run asked for none, so the ones
    /// that it has now come and go here, while its outputs are there.
    fn end(&mut self) -> Result<()> {
        let Some(execution) = self.running.pop() else {
            return Ok(());
        };
        let Some((program, bytes)) =
            execution.program.and_then(|program| Some((program, program.other_bytes?)))
        else {
            return Ok(());
        };
        if program.temp_bytes > 0 || bytes == 0 || execution.failed {
            return Ok(());
        }
        let mut devices = execution.seen;
        // A program whose outputs are all arguments reused allocates nowhere at all.
        let others = (0..self.replay.devices()).filter(|device| !devices.contains(device));
        let missing = (program.devices as usize).saturating_sub(devices.len());
        let others: Vec<_> = others.take(missing).collect();
        devices.extend(others);
        for device in devices {
            let effect = self.replay.allocate_transient(device, bytes, ALIGNMENT)?;
            self.note(&effect);
        }
        Ok(())
    }
}

/// Adds a device to a short list; says whether it was not in it.
pub(crate) fn insert_device(devices: &mut Vec<u32>, device: u32) -> bool {
    let is_new = !devices.contains(&device);
    if is_new {
        devices.push(device);
    }
    is_new
}
