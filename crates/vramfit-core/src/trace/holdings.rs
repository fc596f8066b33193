//! Whose the bytes are at the moment that decides: the first request that was refused, or else the
//! peak.
//!
//! What the program that ran then takes is told by its own buffers ([`ProgramMemory`]): its arguments,
//! its outputs, and the temporary block divided among owners. Everything else that was allocated is
//! told by the line that made it. What the allocator adds (rounding to 256 bytes, and surplus that is
//! too little to split off) is a part of its own, so that all parts add up to the bytes in use exactly.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::arrays::{Makers, NO_ROW};
use super::failure::RawMoment;
use super::programs::Row;
use super::replay::Block;
use super::{Events, Purpose};
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner};

/// Whose the bytes of one device are at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Holdings {
    /// On which device.
    pub device: u32,
    /// Whether the moment is that of a refused request, which is counted as if it had been met.
    pub refused: bool,
    /// Index of the program that ran then, in [`super::Answer::programs`]; `None` between programs.
    pub program: Option<usize>,
    /// What all parts add up to: the bytes in use, and the request where it was refused.
    pub total_bytes: u64,
    /// The parts, the largest first.
    pub parts: Vec<Part>,
}

/// Bytes that have one owner, one name and one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// What kind of owner it has.
    pub kind: PartKind,
    /// Pytree path of an argument or output; empty for what has none.
    pub path: String,
    /// Line of the user's program that it comes from; empty if not known.
    pub site: String,
    /// Shape, such as `f32[256,1024]`; empty where it is several things.
    pub shape: String,
    /// The operation that makes it, as JAX nests it, or the program that made it; may be empty.
    pub made_by: String,
    /// How many buffers or arrays.
    pub count: u64,
    /// How much.
    pub bytes: u64,
}

/// Kinds of owners: those of a program, and those beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A buffer of the program that ran.
    Program(Owner),
    /// Arrays, where no program ran or it is not known which of them are its arguments.
    #[default]
    Arrays,
    /// Arrays that the program that ran has nothing to do with.
    OtherArrays,
    /// What the allocator gave out beyond what was asked for.
    Rounding,
}

impl PartKind {
    /// Returns the word for programs.
    pub fn id(self) -> &'static str {
        match self {
            PartKind::Program(owner) => owner.id(),
            PartKind::Arrays => "arrays",
            PartKind::OtherArrays => "other_arrays",
            PartKind::Rounding => "rounding",
        }
    }

    /// Returns the words for people.
    pub fn label(self) -> &'static str {
        match self {
            PartKind::Program(owner) => owner.label(),
            PartKind::Arrays => "arrays",
            PartKind::OtherArrays => "other arrays",
            PartKind::Rounding => "rounding of the allocator",
        }
    }
}

/// The arguments of the execution that a moment lies in.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// Event of the moment.
    event: Option<u64>,
    /// Parameter and allocation.
    list: Vec<(u32, u64)>,
}

impl Arguments {
    /// Adds an argument of the execution that `moment` lies in.
    pub(super) fn add(&mut self, moment: &RawMoment, parameter: u32, allocation: u64) {
        if self.event != Some(moment.event) {
            self.event = Some(moment.event);
            self.list.clear();
        }
        self.list.push((parameter, allocation));
    }

    /// Returns the arguments, if they belong to that moment: none were told of a later one.
    fn of(&self, moment: &RawMoment) -> &[(u32, u64)] {
        match self.event == Some(moment.event) {
            true => &self.list,
            false => &[],
        }
    }
}

/// What is to be divided.
pub(super) struct Division<'a> {
    pub(super) device: u32,
    pub(super) moment: RawMoment,
    pub(super) arguments: &'a Arguments,
    /// A request that was refused then: its slot.
    pub(super) request: Option<u32>,
    pub(super) makers: &'a Makers,
    pub(super) rows: &'a [Row],
    /// What is known of the program of a row.
    pub(super) memories: FxHashMap<u32, ProgramMemory>,
    pub(super) source: &'a dyn Events,
}

impl Division<'_> {
    /// Divides what was allocated at the moment.
    pub(super) fn divide<'b>(&self, blocks: impl Iterator<Item = &'b Block>) -> Holdings {
        let mut parts = Parts::default();
        let mut by_number: FxHashMap<u64, u32> = FxHashMap::default();
        for (parameter, allocation) in self.arguments.of(&self.moment) {
            // An array that is passed twice is one array.
            by_number.entry(*allocation).or_insert(*parameter);
        }
        let memory = self
            .moment
            .row
            .and_then(|row| self.memories.get(&(row as u32)));
        let mut total = 0u64;
        let mut rounding = 0u64;
        for block in blocks {
            total = total.saturating_add(block.held_bytes);
            if block.held_bytes == 0 {
                // It lies in another pool.
                continue;
            }
            rounding =
                rounding.saturating_add(block.held_bytes.saturating_sub(block.requested_bytes));
            let bytes = block.requested_bytes.min(block.held_bytes);
            let maker = self.makers.get(block.owner);
            let argument = by_number.get(&block.number);
            let running =
                self.moment.row.map(|row| row as u32) == Some(maker.row) && self.is_of_call(block);
            match (memory, argument) {
                (Some(memory), Some(parameter)) => {
                    let site = self.source.text(maker.site);
                    parts.add(argument_part(memory, *parameter, site), bytes);
                }
                (Some(memory), None) if running => {
                    self.slot(memory, maker.slot, maker.purpose, bytes, &mut parts);
                }
                (None, _) if running => parts.add(plain(maker.purpose), bytes),
                _ => parts.add(self.other(maker), bytes),
            }
        }
        if let Some(slot) = self.request {
            total = total.saturating_add(self.moment.bytes);
            match memory {
                Some(memory) => self.slot(
                    memory,
                    slot,
                    self.moment.purpose,
                    self.moment.bytes,
                    &mut parts,
                ),
                None => parts.add(plain(self.moment.purpose), self.moment.bytes),
            }
        }
        parts.add(
            Part {
                kind: PartKind::Rounding,
                ..Part::default()
            },
            rounding,
        );
        Holdings {
            device: self.device,
            refused: self.request.is_some(),
            program: self.moment.row,
            total_bytes: total,
            parts: parts.sorted(),
        }
    }

    /// Says whether a block was allocated by the call that the moment lies in, and not by an earlier
    /// one of the same program.
    fn is_of_call(&self, block: &Block) -> bool {
        block.number >= self.moment.first_allocation
    }

    /// Adds what lies in an allocation of the program that ran.
    fn slot(
        &self,
        memory: &ProgramMemory,
        slot: u32,
        purpose: Purpose,
        bytes: u64,
        parts: &mut Parts,
    ) {
        if purpose == Purpose::Copy {
            let what = "a copy, since the argument was not donated";
            parts.add(
                Part {
                    made_by: what.to_owned(),
                    ..plain(purpose)
                },
                bytes,
            );
            return;
        }
        let mut left = bytes;
        let here = |buffer: &&Buffer| buffer.allocation == slot && buffer.parameter.is_none();
        for buffer in memory.buffers.iter().filter(here) {
            let own = buffer.peak_bytes.min(left);
            left -= own;
            parts.add(buffer_part(memory, buffer), own);
        }
        let rest = match purpose {
            Purpose::Temporary => PartKind::Program(Owner::Padding),
            _ => plain(purpose).kind,
        };
        parts.add(
            Part {
                kind: rest,
                ..Part::default()
            },
            left,
        );
    }

    /// Names arrays that the program has nothing to do with.
    fn other(&self, maker: &super::arrays::Maker) -> Part {
        let name = |row: u32| self.source.text(self.rows[row as usize].key.0).to_owned();
        let made = |row: u32| {
            self.memories
                .get(&row)?
                .buffers
                .iter()
                .find(|buffer| buffer.allocation == maker.slot && buffer.parameter.is_none())
        };
        let known = (maker.row != NO_ROW && maker.purpose == Purpose::Output)
            .then(|| made(maker.row))
            .flatten();
        Part {
            kind: match self.arguments.of(&self.moment).is_empty() {
                true => PartKind::Arrays,
                false => PartKind::OtherArrays,
            },
            path: known.map_or(String::new(), |buffer| buffer.path.clone()),
            site: self.source.text(maker.site).to_owned(),
            shape: known.map_or(String::new(), |buffer| buffer.shape.clone()),
            made_by: match maker.row {
                NO_ROW => purpose_words(maker.purpose).to_owned(),
                row => name(row),
            },
            ..Part::default()
        }
    }
}

/// Parts that are alike are one.
#[derive(Default)]
struct Parts(FxHashMap<Names, (u64, u64)>);

/// Kind, path, site, shape, and what made it.
type Names = (PartKind, String, String, String, String);

impl Parts {
    fn add(&mut self, part: Part, bytes: u64) {
        if bytes > 0 {
            let key = (part.kind, part.path, part.site, part.shape, part.made_by);
            let sum = self.0.entry(key).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(bytes);
        }
    }

    fn sorted(self) -> Vec<Part> {
        let parts = self.0.into_iter();
        let mut parts: Vec<Part> = parts
            .map(
                |((kind, path, site, shape, made_by), (count, bytes))| Part {
                    kind,
                    path,
                    site,
                    shape,
                    made_by,
                    count,
                    bytes,
                },
            )
            .collect();
        parts.sort_by(|a, b| {
            let name = |part: &Part| {
                (
                    part.kind,
                    part.path.clone(),
                    part.site.clone(),
                    part.made_by.clone(),
                    part.shape.clone(),
                )
            };
            b.bytes.cmp(&a.bytes).then_with(|| name(a).cmp(&name(b)))
        });
        parts
    }
}

/// Names an argument; its line is the one that made the array.
fn argument_part(memory: &ProgramMemory, parameter: u32, site: &str) -> Part {
    let buffer = memory
        .buffers
        .iter()
        .find(|buffer| buffer.parameter == Some(parameter));
    Part {
        kind: PartKind::Program(buffer.map_or(Owner::Batch, |buffer| buffer.owner)),
        path: buffer.map_or_else(
            || format!("argument {parameter}"),
            |buffer| buffer.path.clone(),
        ),
        site: site.to_owned(),
        shape: buffer.map_or(String::new(), |buffer| buffer.shape.clone()),
        ..Part::default()
    }
}

/// Names a buffer of a program by the user's line that led to it.
fn buffer_part(memory: &ProgramMemory, buffer: &Buffer) -> Part {
    Part {
        kind: PartKind::Program(buffer.owner),
        path: buffer.path.clone(),
        site: memory
            .user_site(buffer.frame)
            .unwrap_or_default()
            .to_owned(),
        shape: buffer.shape.clone(),
        made_by: match buffer.operation.is_empty() {
            true => buffer.instruction.clone(),
            false => buffer.operation.clone(),
        },
        ..Part::default()
    }
}

/// Names what a program of unknown buffers took.
fn plain(purpose: Purpose) -> Part {
    let owner = match purpose {
        Purpose::Temporary => Owner::Temporaries,
        Purpose::Constant => Owner::Constants,
        Purpose::Upload => Owner::Batch,
        Purpose::Output | Purpose::Tuple | Purpose::Copy => Owner::Outputs,
    };
    Part {
        kind: PartKind::Program(owner),
        ..Part::default()
    }
}

fn purpose_words(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Upload => "an upload",
        Purpose::Copy => "a copy",
        Purpose::Constant => "constants",
        Purpose::Output | Purpose::Temporary | Purpose::Tuple => "",
    }
}
