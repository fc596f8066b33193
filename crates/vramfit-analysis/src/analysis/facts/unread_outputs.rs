//! Outputs that a program computes and nothing reads.

use std::collections::HashSet;

use crate::analysis::arrays::AllocationSites;
use crate::bytes::Bytes;
use crate::program::ProgramMemory;
use crate::replay::Block;
use crate::section::Advice;
use crate::trace::{MIN_UNREAD_BYTES, Purpose};

/// How many calls must return an output that is freed without having been read.
const MIN_CALLS: u8 = 2;

/// An output of a program that was freed after each call without having been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadOutput {
    /// Its pytree path, such as `result[1]['logits']`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// What happens to outputs, by the number of their allocation site.
#[derive(Debug, Default)]
pub(in crate::analysis) struct OutputUses {
    uses: Vec<OutputUse>,
    /// Allocations that nothing has read, before they are freed or the run ends.
    unread: HashSet<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OutputUse {
    is_read: bool,
    /// How many were freed without having been read, up to [`MIN_CALLS`].
    unread: u8,
}

impl OutputUses {
    pub(in crate::analysis) fn on_unread(&mut self, allocation: u64) {
        self.unread.insert(allocation);
    }

    pub(in crate::analysis) fn on_freed(&mut self, block: &Block) {
        if block.requested_bytes < MIN_UNREAD_BYTES {
            return;
        }
        let is_unread = self.unread.remove(&block.number);
        let output = self.use_of(block);
        match is_unread {
            true => output.unread = MIN_CALLS.min(output.unread + 1),
            false => output.is_read = true,
        }
    }

    /// Takes in what was not freed before the end. What was not read may be read after the steps that were run.
    pub(in crate::analysis) fn on_end<'b>(&mut self, live: impl Iterator<Item = &'b Block>) {
        for block in live.filter(|block| block.requested_bytes >= MIN_UNREAD_BYTES) {
            if !self.unread.contains(&block.number) {
                self.use_of(block).is_read = true;
            }
        }
    }

    fn use_of(&mut self, block: &Block) -> &mut OutputUse {
        let owner = block.owner as usize;
        if owner >= self.uses.len() {
            self.uses.resize(owner + 1, OutputUse::default());
        }
        &mut self.uses[owner]
    }

    /// Returns the outputs of a program that nothing reads, the largest first. `entry` is its number in
    /// the table of programs.
    pub(in crate::analysis) fn unread(
        &self,
        entry: usize,
        memory: &ProgramMemory,
        sites: &AllocationSites,
    ) -> Vec<UnreadOutput> {
        let mut slots: Vec<(u32, bool)> = Vec::new();
        for (number, output) in (0..).zip(&self.uses) {
            let site = sites.get(number);
            if site.purpose != Purpose::Output || site.entry as usize != entry {
                continue;
            }
            let is_unread = !output.is_read && output.unread == MIN_CALLS;
            match slots.iter_mut().find(|(slot, _)| *slot == site.slot) {
                Some((_, unread)) => *unread &= is_unread,
                None => slots.push((site.slot, is_unread)),
            }
        }
        slots.retain(|(_, is_unread)| *is_unread);
        let outputs = memory.buffers.iter().filter(|buffer| {
            let is_unread = slots.iter().any(|(slot, _)| *slot == buffer.allocation);
            is_unread && buffer.parameter.is_none() && !buffer.path.is_empty()
        });
        let mut outputs: Vec<UnreadOutput> = outputs
            .map(|buffer| UnreadOutput { path: buffer.path.clone(), bytes: buffer.bytes })
            .collect();
        outputs.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.path.cmp(&b.path)));
        outputs
    }
}

/// Says not to return them.
pub(crate) fn advice(outputs: &[UnreadOutput]) -> Option<Advice> {
    let largest = outputs.first()?;
    let bytes = outputs.iter().map(|output| output.bytes).sum();
    let which = match outputs.len() - 1 {
        0 => format!("nothing reads `{}`", largest.path),
        more => format!("nothing reads `{}` and {more} more", largest.path),
    };
    Some(Advice {
        bytes,
        text: format!(
            "do not return outputs that are not used: in this run {which}, {}",
            Bytes(bytes)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::arrays::AllocationKey;
    use crate::program::memory::Buffer;
    use crate::trace::TextId;

    const ENTRY: u32 = 3;

    /// Returns what is said of a program whose only output is freed so often, each time read or not, and is kept so often.
    fn unread(frees: &[bool], kept: &[bool], bytes: u64) -> Vec<UnreadOutput> {
        let mut sites = AllocationSites::default();
        let owner = sites.number(AllocationKey {
            device: 0,
            purpose: Purpose::Output,
            site: TextId(0),
            entry: ENTRY,
            slot: 7,
        });
        let mut uses = OutputUses::default();
        let calls = (0..).zip(frees.iter().chain(kept));
        let blocks: Vec<Block> = calls
            .map(|(number, is_read)| {
                if !is_read {
                    uses.on_unread(number);
                }
                Block {
                    number,
                    device: 0,
                    owner,
                    address: 0,
                    requested_bytes: bytes,
                    allocated_bytes: bytes,
                }
            })
            .collect();
        let (freed, live) = blocks.split_at(frees.len());
        freed.iter().for_each(|block| uses.on_freed(block));
        uses.on_end(live.iter());
        let output = |allocation, path: &str| Buffer {
            allocation,
            path: path.to_owned(),
            bytes,
            ..Buffer::default()
        };
        let memory = ProgramMemory {
            buffers: vec![output(6, "result[0]"), output(7, "result[1]")],
            ..ProgramMemory::default()
        };
        assert_eq!(uses.unread(ENTRY as usize + 1, &memory, &sites), []);
        uses.unread(ENTRY as usize, &memory, &sites)
    }

    #[test]
    fn an_output_is_unread_if_no_call_has_one_that_is_read() {
        let said = [UnreadOutput { path: "result[1]".to_owned(), bytes: MIN_UNREAD_BYTES }];
        for (frees, kept, expected) in [
            (&[false, false][..], &[][..], &said[..]),
            (&[false, true, false, false], &[], &[]),
            // One call says too little.
            (&[false], &[], &[]),
            // That of the last call is read after the loop, or is only kept.
            (&[false, false], &[true], &[]),
            (&[false, false], &[false], &said),
            (&[], &[false, false], &[]),
        ] {
            assert_eq!(unread(frees, kept, MIN_UNREAD_BYTES), expected, "{frees:?} {kept:?}");
        }
        assert_eq!(unread(&[false, false], &[], MIN_UNREAD_BYTES - 1), []);
    }
}
