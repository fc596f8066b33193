//! What arrays are to the programs that compute gradients: that is what they are in every later program, such as an
//! update that is written in plain Python, whose operations call everything `x` and `y`.

use rustc_hash::{FxHashMap, FxHashSet};

use super::arrays::AllocationKey;
use super::attribution_entry::EntryKind;
use super::programs::Programs;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner, Pass, Phase};
use crate::replay::Block;
use crate::trace::Note;

/// Allocations that are kept; a limit for damaged traces.
const MAX_ALLOCATIONS: usize = 1 << 20;
/// Parameters of programs that arrays of one line are kept for: of the weights of a model, one each.
const MAX_ROLES: usize = 1 << 14;

/// A parameter of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Role {
    entry: u32,
    parameter: u32,
}

/// As what arrays were passed to programs.
#[derive(Debug, Default)]
pub(super) struct ArgumentRoles {
    by_allocation: FxHashMap<u64, Vec<Role>>,
    /// By the number of the allocation site: what one call of a line has made, the next one makes again.
    by_site: FxHashMap<u32, Vec<Role>>,
}

/// What an array is, and its path where there is only one.
#[derive(Debug, PartialEq)]
pub(super) struct KnownArray<'a> {
    pub(super) kind: EntryKind,
    pub(super) path: &'a str,
    pub(super) shape: &'a str,
}

impl ArgumentRoles {
    /// Records that an array is an argument of a program.
    pub(super) fn on_argument(&mut self, entry: u32, parameter: u32, block: &Block) {
        let role = Role { entry, parameter };
        let add = |roles: &mut Vec<Role>| {
            if roles.len() < MAX_ROLES && !roles.contains(&role) {
                roles.push(role);
            }
        };
        if self.by_allocation.len() < MAX_ALLOCATIONS {
            add(self.by_allocation.entry(block.number).or_default());
        }
        add(self.by_site.entry(block.owner).or_default());
    }

    /// Returns the entries of the programs that have taken an array, or others of its line.
    pub(super) fn entries(&self, block: &Block) -> impl Iterator<Item = usize> {
        let roles = [self.by_allocation.get(&block.number), self.by_site.get(&block.owner)];
        roles.into_iter().flatten().flatten().map(|role| role.entry as usize)
    }

    /// Returns what an array is to the programs that compute gradients; `None` if none has taken it, or as data.
    pub(super) fn find<'a>(
        &self,
        block: &Block,
        memories: &'a FxHashMap<u32, ProgramMemory>,
    ) -> Option<KnownArray<'a>> {
        let buffers = |roles: Option<&Vec<Role>>| -> Vec<&'a Buffer> {
            let roles = roles.into_iter().flatten();
            roles
                .filter_map(|role| parameter_of(memories.get(&role.entry)?, role.parameter))
                .collect()
        };
        let is_state = |buffer: &&Buffer| !matches!(buffer.owner, Owner::Batch | Owner::OtherState);
        // A weight may be mere data of another gradient.
        let mut known = buffers(self.by_allocation.get(&block.number));
        known.retain(is_state);
        if known.is_empty() {
            known = buffers(self.by_site.get(&block.owner));
        }
        let first = *known.first()?;
        if !is_state(&first) || known.iter().any(|buffer| buffer.owner != first.owner) {
            return None;
        }
        let is_one = known.iter().all(|buffer| buffer.path == first.path);
        Some(KnownArray {
            kind: EntryKind::Program(first.owner),
            path: if is_one { &first.path } else { "" },
            shape: if is_one { &first.shape } else { "" },
        })
    }

    /// Returns what an array is to a program that updates it, whatever else reads it as data: a replay buffer. It is
    /// donated to that program, or was made by it and taken by its next call.
    pub(super) fn state<'a>(
        &self,
        block: &Block,
        origin: &AllocationKey,
        memories: &'a FxHashMap<u32, ProgramMemory>,
    ) -> Option<KnownArray<'a>> {
        let donated = self.by_allocation.get(&block.number).into_iter().flatten();
        let donated = donated.filter_map(|role| {
            let memory = memories.get(&role.entry)?;
            let buffer = argument_of(memory, role.parameter)?;
            let mut undonated = memory.undonated.iter();
            let is_donated = !undonated.any(|one| one.parameter == buffer.parameter);
            is_donated.then_some(buffer)
        });
        let taken_again = self.by_site.get(&block.owner).into_iter().flatten();
        let taken_again = taken_again.filter_map(|role| {
            let memory = memories.get(&role.entry).filter(|_| role.entry == origin.entry)?;
            let mut outputs = memory.buffers.iter();
            let replaces = |output: &Buffer| {
                output.allocation == origin.slot && output.replaces == Some(role.parameter)
            };
            outputs.any(replaces).then(|| argument_of(memory, role.parameter)).flatten()
        });
        let mut known = donated.chain(taken_again);
        let known = known.find(|buffer| buffer.owner == Owner::OtherState);
        known.map(|buffer| KnownArray {
            kind: EntryKind::Program(buffer.owner),
            path: &buffer.path,
            shape: &buffer.shape,
        })
    }
}

/// Returns the output of a program that computes gradients if it is the gradient of one of its parameters, or of
/// another program's where the backward pass is a program of its own.
pub(super) fn gradient<'a>(
    memory: &'a ProgramMemory,
    output: &Buffer,
    programs: impl IntoIterator<Item = &'a ProgramMemory>,
) -> Option<EntryKind> {
    let is_of_parameter = |memory: &ProgramMemory| {
        let mut buffers = memory.buffers.iter();
        buffers.any(|buffer| buffer.owner == Owner::Parameters && buffer.shape == output.shape)
    };
    let is_gradient = match output.is_cotangent() {
        true => programs.into_iter().any(is_of_parameter),
        false => {
            output.owner == Owner::Outputs
                && output.phase == Phase::Backward
                && memory.replaced_by(output).is_none()
                && is_of_parameter(memory)
        }
    };
    is_gradient.then_some(EntryKind::Program(Owner::Gradients))
}

/// Returns the parameters of the programs of an entry that were read again after a call: none of them can be donated.
pub(super) fn read_again(notes: &[Note], entry: usize, programs: &Programs) -> FxHashSet<u32> {
    let read_again = notes.iter().filter_map(|note| match *note {
        Note::ReadAgain { program, parameter } => {
            (programs.entry_for(program) == Ok(entry)).then_some(parameter)
        }
        _ => None,
    });
    read_again.collect()
}

fn parameter_of(memory: &ProgramMemory, parameter: u32) -> Option<&Buffer> {
    // Of what a backward pass is given, the forward pass tells what it is.
    argument_of(memory, parameter)
        .filter(|_| memory.is_differentiated() && memory.pass() != Some(Pass::Backward))
}

fn argument_of(memory: &ProgramMemory, parameter: u32) -> Option<&Buffer> {
    let mut buffers = memory.buffers.iter();
    buffers.find(|buffer| buffer.parameter == Some(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::Undonated;
    use crate::trace::{Purpose, TextId};

    fn buffer(owner: Owner, path: &str, parameter: u32) -> Buffer {
        Buffer {
            owner,
            path: path.to_owned(),
            shape: "f32[8]".to_owned(),
            parameter: Some(parameter),
            ..Buffer::default()
        }
    }

    fn output(phase: Phase) -> Buffer {
        Buffer { owner: Owner::Outputs, phase, shape: "f32[8]".to_owned(), ..Buffer::default() }
    }

    fn block(number: u64, owner: u32) -> Block {
        Block { number, device: 0, owner, address: 0, requested_bytes: 32, allocated_bytes: 256 }
    }

    /// Entry 0 takes gradients of its first argument, entry 1 is an operation of its own.
    fn memories() -> FxHashMap<u32, ProgramMemory> {
        let of = |buffers| ProgramMemory { buffers, ..ProgramMemory::default() };
        let grad = vec![
            buffer(Owner::Parameters, "params", 0),
            buffer(Owner::Batch, "x", 1),
            output(Phase::Backward),
        ];
        let subtract = vec![buffer(Owner::Parameters, "w", 0), output(Phase::Outside)];
        [(0, of(grad)), (1, of(subtract))].into_iter().collect()
    }

    #[test]
    fn what_a_gradient_program_takes_as_a_parameter_stays_one() {
        let memories = memories();
        let mut roles = ArgumentRoles::default();
        roles.on_argument(0, 0, &block(7, 3));
        roles.on_argument(0, 1, &block(8, 4));
        roles.on_argument(1, 0, &block(9, 5));
        let kind = |number, owner| {
            roles.find(&block(number, owner), &memories).map(|it| (it.kind, it.path))
        };
        let parameter = Some((EntryKind::Program(Owner::Parameters), "params"));
        assert_eq!(kind(7, 9), parameter);
        // Another array of the same line.
        assert_eq!(kind(70, 3), parameter);
        // Data, an argument of an operation, and an array that nothing has taken.
        assert_eq!((kind(8, 4), kind(9, 5), kind(1, 1)), (None, None, None));
    }

    #[test]
    fn a_line_that_makes_several_things_settles_nothing() {
        let memories = memories();
        let mut roles = ArgumentRoles::default();
        roles.on_argument(0, 0, &block(7, 3));
        roles.on_argument(0, 1, &block(8, 3));
        assert!(roles.find(&block(7, 3), &memories).is_some());
        assert_eq!(roles.find(&block(70, 3), &memories), None);
    }

    #[test]
    fn an_output_is_a_gradient_if_it_is_one_of_a_parameter() {
        let memories = memories();
        let is_gradient = |entry: u32, output: &Buffer| {
            gradient(&memories[&entry], output, memories.values()).is_some()
        };
        assert!(is_gradient(0, &output(Phase::Backward)));
        assert!(!is_gradient(0, &output(Phase::Forward)));
        let other = Buffer { shape: "f32[9]".to_owned(), ..output(Phase::Backward) };
        assert!(!is_gradient(0, &other));
        // The momentum that XLA has added the gradient to.
        let replacing = |argument| Buffer { replaces: Some(argument), ..output(Phase::Backward) };
        assert!(!is_gradient(0, &replacing(0)));
        // Nothing replaces a batch.
        assert!(is_gradient(0, &replacing(1)));
    }

    #[test]
    fn what_a_program_updates_is_state_for_all_that_read_it() {
        let state = |parameter| buffer(Owner::OtherState, "rows", parameter);
        let undonated = Undonated { parameter: Some(0), ..Undonated::default() };
        let made = Buffer { allocation: 5, replaces: Some(0), ..output(Phase::Outside) };
        let of = |buffers, undonated: Option<Undonated>| ProgramMemory {
            buffers,
            undonated: undonated.into_iter().collect(),
            ..ProgramMemory::default()
        };
        let memories: FxHashMap<u32, ProgramMemory> = [
            (0, of(vec![state(0)], None)),
            (1, of(vec![state(0), made], Some(undonated))),
            (2, of(vec![buffer(Owner::Batch, "x", 0)], None)),
        ]
        .into_iter()
        .collect();
        let origin = |entry, slot| AllocationKey {
            device: 0,
            purpose: Purpose::Output,
            site: TextId::default(),
            entry,
            slot,
        };
        for (roles, origin, is_state) in [
            // Donated.
            (vec![0, 2], origin(9, 0), true),
            // Made by the program that takes it again, …
            (vec![1, 2], origin(1, 5), true),
            // … another output of it, and data that it has taken once.
            (vec![1, 2], origin(1, 6), false),
            (vec![1, 2], origin(9, 5), false),
            (vec![2], origin(1, 5), false),
        ] {
            let mut known = ArgumentRoles::default();
            for entry in &roles {
                known.on_argument(*entry, 0, &block(7, 3));
            }
            let found = known.state(&block(7, 3), &origin, &memories);
            assert_eq!(found.map(|it| it.path), is_state.then_some("rows"), "{roles:?}");
        }
    }
}
