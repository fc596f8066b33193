//! Whose the bytes are at the moment that decides: the first request that was refused, or else the
//! peak.
//!
//! What the program that ran then takes is told by its own buffers ([`ProgramMemory`]): its arguments,
//! its outputs, and the temporary block divided among owners. Everything else that was allocated is
//! told by the line that made it. What the allocator adds (rounding to 256 bytes, and surplus that is
//! too little to split off) is a part of its own, so that all parts add up to the bytes in use exactly.

use rustc_hash::{FxHashMap, FxHashSet};

use super::arrays::{AllocationKey, AllocationSites, NO_PROGRAM};
use super::attribution_entry::{AttributionEntry, EntryKind, EntrySet};
use super::facts::replicated_arrays::{ReplicatedArrays, ReplicatedOutputs};
use super::failure::{EventContext, RefusedRequest};
use super::program_slots::ProgramSlots;
use super::programs::ProgramEntry;
use super::roles::{ArgumentRoles, KnownArray, gradient};
use crate::program::ProgramMemory;
use crate::program::memory::Owner;
use crate::replay::Block;
use crate::trace::{EventSource, Note, Purpose};

/// Whose the bytes of one device are at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribution {
    /// On which device.
    pub device: u32,
    /// Whether the moment is that of a refused request, which is counted as if it had been met.
    pub refused: bool,
    /// Index of the program that ran then, in [`super::RunSummary::programs`]; `None` between programs.
    pub program: Option<usize>,
    /// What all parts add up to: the bytes in use, and the request where it was refused.
    pub total_bytes: u64,
    /// The parts, the largest first.
    pub parts: Vec<AttributionEntry>,
    /// Whether the run went on to its end, so that an array that is not [`AttributionEntry::read_later`] was not read.
    pub reads_are_known: bool,
    /// What of it every other device has as well.
    pub replicated: Option<ReplicatedArrays>,
    /// Whether it is what a program would need that was compiled and not executed.
    pub is_planned: bool,
}

/// More arguments than any program has; a limit for damaged traces.
const MAX_ARGUMENTS: usize = 1 << 20;

/// The arguments of the execution that a moment lies in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arguments {
    /// Event of the moment.
    event: Option<u64>,
    /// Parameter and allocation.
    list: Vec<(u32, u64)>,
}

impl Arguments {
    /// Adds an argument of the execution that `moment` lies in. Returns `true` if there was room for it.
    pub(super) fn add(&mut self, moment: &EventContext, parameter: u32, allocation: u64) -> bool {
        if self.event != Some(moment.event) {
            self.event = Some(moment.event);
            self.list.clear();
        }
        self.list.push((parameter, allocation));
        self.list.len() <= MAX_ARGUMENTS
    }

    /// Returns the arguments, if they belong to that moment: none were told of a later one.
    fn of(&self, moment: &EventContext) -> &[(u32, u64)] {
        match self.event == Some(moment.event) {
            true => &self.list,
            false => &[],
        }
    }
}

/// Which arrays were read after the peak.
pub(super) struct LaterReads {
    allocations: FxHashSet<u64>,
    /// Whether the run was neither stopped nor ended by an error.
    to_the_end: bool,
}

impl LaterReads {
    /// Returns what the notes of a trace tell; `None` if they do not.
    pub(super) fn from_notes(notes: &[Note]) -> Option<Self> {
        let mut told = None;
        let mut to_the_end = true;
        for note in notes {
            match note {
                Note::ReadAfterPeak { allocations } => {
                    told.get_or_insert_with(FxHashSet::default).extend(allocations.iter().copied());
                }
                Note::Stopped { .. } | Note::Error(_) => to_the_end = false,
                Note::Exit(exit) => to_the_end &= exit.is_success(),
                _ => {}
            }
        }
        told.map(|allocations| LaterReads { allocations, to_the_end })
    }
}

/// Attributes the bytes of one device at one point.
pub(super) struct Attributor<'a> {
    pub(super) device: u32,
    pub(super) context: EventContext,
    pub(super) arguments: &'a Arguments,
    /// What was read after the peak; `None` for a request that was refused, and where the trace does not tell.
    pub(super) later_reads: Option<LaterReads>,
    /// The request that was refused then.
    pub(super) refused: Option<&'a RefusedRequest>,
    pub(super) sites: &'a AllocationSites,
    pub(super) roles: &'a ArgumentRoles,
    pub(super) entries: &'a [ProgramEntry],
    /// What is known of the program of an entry.
    pub(super) memories: FxHashMap<u32, ProgramMemory>,
    pub(super) source: &'a dyn EventSource,
}

impl Attributor<'_> {
    /// Attributes what was allocated then.
    pub(super) fn attribute<'b>(&self, blocks: impl Iterator<Item = &'b Block>) -> Attribution {
        let mut parts = EntrySet::default();
        let mut replicated = ReplicatedOutputs::new(self.source.notes());
        let mut by_number: FxHashMap<u64, u32> = FxHashMap::default();
        for (parameter, allocation) in self.arguments.of(&self.context) {
            // An array that is passed twice is one array.
            by_number.entry(*allocation).or_insert(*parameter);
        }
        let programs: FxHashMap<u32, (&ProgramMemory, ProgramSlots<'_>)> = self
            .memories
            .iter()
            .map(|(entry, memory)| (*entry, (memory, ProgramSlots::new(memory))))
            .collect();
        let entry = self.context.entry.map(|entry| entry as u32);
        let memory = entry.and_then(|entry| programs.get(&entry));
        // A program that computes gradients tells itself what its arguments are, and what else is there; one that is a
        // pass alone does not.
        let trains =
            memory.is_some_and(|(memory, _)| memory.is_differentiated() && memory.pass().is_none());
        let is_operation = entry.is_some_and(|entry| self.is_operation(entry, &programs));
        let blocks: Vec<&Block> = blocks.collect();
        let mut newest: FxHashMap<u32, u64> = FxHashMap::default();
        for block in &blocks {
            let number = newest.entry(block.owner).or_default();
            *number = (*number).max(block.number);
        }
        let mut total = 0u64;
        let mut rounding = 0u64;
        for block in blocks {
            total = total.saturating_add(block.allocated_bytes);
            if block.allocated_bytes == 0 {
                // It lies in another pool.
                continue;
            }
            rounding = rounding
                .saturating_add(block.allocated_bytes.saturating_sub(block.requested_bytes));
            let bytes = block.requested_bytes.min(block.allocated_bytes);
            let origin = self.sites.get(block.owner);
            if origin.purpose == Purpose::Output
                && let Some(made_by) = self.entries.get(origin.entry as usize)
            {
                let places = programs.get(&origin.entry).map(|(_, places)| places);
                let output = places.and_then(|places| places.others(origin.slot).first());
                replicated.add(made_by.program, origin.slot, bytes, output.copied());
            }
            let argument = by_number.get(&block.number);
            let running = entry == Some(origin.entry) && self.is_of_call(block);
            match (memory, argument) {
                (Some((_, places)), Some(parameter)) => {
                    let site = self.source.text(origin.site);
                    let argument = match is_operation {
                        // What an operation outside of `jit` is given is no batch.
                        true => AttributionEntry {
                            kind: EntryKind::Arrays,
                            ..self.remainder(origin, &programs)
                        },
                        false => AttributionEntry::of_argument(places, *parameter, site),
                    };
                    // What is data here may be known better where it comes from.
                    let is_data = argument.kind == EntryKind::Program(Owner::Batch);
                    let known = self.known_array(block, &programs);
                    let known = known.filter(|_| !trains || is_data);
                    let known = known.or_else(|| self.state(block).filter(|_| is_data));
                    parts.add(known.unwrap_or(argument), bytes);
                }
                (_, None) if running && origin.purpose == Purpose::Scratch => {
                    parts.add(self.scratch_part(origin.entry, origin.slot), bytes);
                }
                (Some(memory), None) if running => {
                    slot(memory, origin.slot, origin.purpose, bytes, &mut parts);
                }
                (None, _) if running => {
                    parts.add(AttributionEntry::of_purpose(origin.purpose), bytes);
                }
                _ => {
                    let known = self.known_array(block, &programs).filter(|_| !trains);
                    let part = known.unwrap_or_else(|| {
                        let is_later =
                            |reads: &LaterReads| reads.allocations.contains(&block.number);
                        let is_newest = newest.get(&block.owner) == Some(&block.number);
                        let is_state = || is_newest && is_state(origin, &programs);
                        AttributionEntry {
                            read_later: self.later_reads.as_ref().map_or_else(is_state, is_later),
                            ..self.remainder(origin, &programs)
                        }
                    });
                    parts.add(part, bytes);
                }
            }
        }
        if let Some(refused) = self.refused {
            // With as much memory as is missing, it would be free.
            total = total
                .saturating_sub(refused.pool_end_surplus_bytes)
                .saturating_add(refused.remaining_bytes);
            rounding = rounding.saturating_sub(refused.pool_end_surplus_bytes);
            self.add_remaining(refused, memory, &mut parts, &mut replicated);
        }
        parts.add(AttributionEntry::of_kind(EntryKind::Rounding), rounding);
        Attribution {
            device: self.device,
            refused: self.refused.is_some(),
            program: self.context.entry,
            total_bytes: total,
            replicated: replicated.finish(total),
            parts: parts.sorted(),
            reads_are_known: self.later_reads.as_ref().is_some_and(|reads| reads.to_the_end),
            is_planned: false,
        }
    }

    /// Adds what the execution that was refused a request had still to allocate, the request first.
    fn add_remaining(
        &self,
        refused: &RefusedRequest,
        memory: Option<&(&ProgramMemory, ProgramSlots<'_>)>,
        parts: &mut EntrySet,
        replicated: &mut ReplicatedOutputs<'_>,
    ) {
        let EventContext { entry, purpose, bytes, site, .. } = self.context;
        if purpose == Purpose::Scratch {
            let entry = entry.map_or(NO_PROGRAM, |entry| entry as u32);
            return parts.add(self.scratch_part(entry, refused.slot), bytes);
        }
        let Some(memory) = memory else {
            let request = AttributionEntry {
                site: self.source.text(site).to_owned(),
                ..AttributionEntry::of_purpose(purpose)
            };
            return parts.add(request, refused.remaining_bytes);
        };
        let running = entry.and_then(|entry| self.entries.get(entry)).map(|entry| entry.program);
        let mut add = |number: u32, purpose: Purpose, bytes: u64| {
            slot(memory, number, purpose, bytes, parts);
            if let Some(program) = running.filter(|_| purpose == Purpose::Output) {
                replicated.add(program, number, bytes, memory.1.others(number).first().copied());
            }
        };
        add(refused.slot, purpose, bytes);
        let mut left = refused.remaining_bytes.saturating_sub(bytes);
        // Slots are allocated in ascending order.
        for (number, purpose, size) in memory.1.allocated_after(refused.slot, memory.0.temp_bytes) {
            let own = size.min(left);
            left -= own;
            add(number, purpose, own);
        }
        parts.add(AttributionEntry::of_purpose(Purpose::Output), left);
    }

    /// Returns `true` if the program of an entry is one operation outside of `jit`.
    fn is_operation(
        &self,
        entry: u32,
        programs: &FxHashMap<u32, (&ProgramMemory, ProgramSlots<'_>)>,
    ) -> bool {
        let site = self.entries.get(entry as usize).map(|entry| entry.site);
        let memory = programs.get(&entry).map(|(memory, _)| *memory);
        site.zip(memory)
            .is_some_and(|(site, memory)| memory.is_eager_operation(self.source.text(site)))
    }

    /// Returns `true` if a block was allocated by the call that the moment lies in, and not by an earlier
    /// one of the same program.
    fn is_of_call(&self, block: &Block) -> bool {
        block.number >= self.context.first_allocation
    }

    /// Names scratch memory by the routine that takes it, which the slot counts.
    fn scratch_part(&self, entry: u32, slot: u32) -> AttributionEntry {
        let entry = self.entries.get(entry as usize);
        let need = entry.and_then(|entry| entry.scratch.get(slot as usize));
        match need {
            Some(need) => AttributionEntry::of_scratch(need, |id| self.source.text(id)),
            None => AttributionEntry::of_kind(EntryKind::Scratch),
        }
    }

    /// Names an array by what it is to a program that updates it.
    fn state(&self, block: &Block) -> Option<AttributionEntry> {
        let origin = self.sites.get(block.owner);
        let known = self.roles.state(block, origin, &self.memories)?;
        Some(self.named_array(&known, origin))
    }

    fn named_array(&self, known: &KnownArray<'_>, origin: &AllocationKey) -> AttributionEntry {
        AttributionEntry {
            kind: known.kind,
            path: known.path.to_owned(),
            shape: known.shape.to_owned(),
            site: self.source.text(origin.site).to_owned(),
            ..AttributionEntry::default()
        }
    }

    /// Names an array by what it is to the programs that compute gradients: their parameter, what replaces it, what
    /// their forward pass saves, or a gradient.
    fn known_array(
        &self,
        block: &Block,
        programs: &FxHashMap<u32, (&ProgramMemory, ProgramSlots<'_>)>,
    ) -> Option<AttributionEntry> {
        let origin = self.sites.get(block.owner);
        let made_by = programs.get(&origin.entry).filter(|_| origin.purpose == Purpose::Output);
        let output = made_by
            .and_then(|(memory, places)| Some((*memory, *places.others(origin.slot).first()?)));
        if let Some((memory, output)) = output.filter(|(_, output)| output.is_residual()) {
            return Some(AttributionEntry::of_buffer(memory, output));
        }
        if let Some(known) = self.roles.find(block, &self.memories) {
            return Some(self.named_array(&known, origin));
        }
        let (memory, output) = output?;
        let replaced = memory.replaced_by(output).filter(|_| memory.is_differentiated());
        let kind = match replaced.map(|argument| argument.owner) {
            Some(owner @ (Owner::Parameters | Owner::OptimizerState)) => EntryKind::Program(owner),
            _ => gradient(memory, output, self.memories.values())?,
        };
        let (path, shape) = (&output.path, &output.shape);
        Some(self.named_array(&KnownArray { kind, path, shape }, origin))
    }

    /// Names arrays that the program has nothing to do with.
    fn remainder(
        &self,
        origin: &AllocationKey,
        programs: &FxHashMap<u32, (&ProgramMemory, ProgramSlots<'_>)>,
    ) -> AttributionEntry {
        let text = |id| self.source.text(id).to_owned();
        let made = |entry: u32| programs.get(&entry)?.1.others(origin.slot).first();
        let known = (origin.entry != NO_PROGRAM && origin.purpose == Purpose::Output)
            .then(|| made(origin.entry))
            .flatten();
        // The line says more than `result`.
        let has_path = known.is_some() && !self.is_operation(origin.entry, programs);
        AttributionEntry {
            kind: match self.arguments.of(&self.context).is_empty() {
                true => EntryKind::Arrays,
                false => EntryKind::OtherArrays,
            },
            path: known.filter(|_| has_path).map_or(String::new(), |buffer| buffer.path.clone()),
            site: text(origin.site),
            shape: known.map_or(String::new(), |buffer| buffer.shape.clone()),
            made_by: match origin.entry {
                NO_PROGRAM => origin.purpose.label().to_owned(),
                entry => text(self.entries[entry as usize].key.name),
            },
            ..AttributionEntry::default()
        }
    }
}

/// Returns `true` if an array is an output that replaces an argument: the next call of its program takes it.
fn is_state(
    origin: &AllocationKey,
    programs: &FxHashMap<u32, (&ProgramMemory, ProgramSlots<'_>)>,
) -> bool {
    let made = programs.get(&origin.entry).filter(|_| origin.purpose == Purpose::Output);
    made.is_some_and(|(memory, places)| {
        let output = places.others(origin.slot).first();
        output.is_some_and(|output| memory.replaced_by(output).is_some())
    })
}

/// Adds what lies in an allocation of the program that ran.
fn slot(
    (memory, places): &(&ProgramMemory, ProgramSlots<'_>),
    slot: u32,
    purpose: Purpose,
    bytes: u64,
    parts: &mut EntrySet,
) {
    if purpose == Purpose::Copy {
        let copy = AttributionEntry {
            made_by: "a copy, since the argument was not donated".to_owned(),
            ..AttributionEntry::of_purpose(purpose)
        };
        return parts.add(copy, bytes);
    }
    let mut left = bytes;
    for buffer in places.others(slot) {
        let own = buffer.peak_bytes.min(left);
        left -= own;
        parts.add(AttributionEntry::of_buffer(memory, buffer), own);
    }
    let rest = match purpose {
        Purpose::Temporary => EntryKind::Program(Owner::Padding),
        _ => AttributionEntry::of_purpose(purpose).kind,
    };
    parts.add(AttributionEntry::of_kind(rest), left);
}
