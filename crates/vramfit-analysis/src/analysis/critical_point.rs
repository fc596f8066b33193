//! The point that decides: the first request that was refused, or else the peak of the device with the
//! highest; and what memory belongs to then.

use rustc_hash::FxHashMap;

use super::arrays::{AllocationSites, NO_PROGRAM};
use super::attribution::{Arguments, Attribution, Attributor, LaterReads};
use super::devices::DeviceAnalysis;
use super::failure::RefusedRequest;
use super::programs::Programs;
use super::roles::ArgumentRoles;
use super::snapshot::LiveSnapshot;
use crate::program::ProgramMemory;
use crate::replay::Block;
use crate::trace::EventSource;

/// The point that decides.
pub(super) struct CriticalPoint<'a> {
    /// The request that was refused; `None` for a peak.
    pub(super) refused: Option<&'a RefusedRequest>,
    pub(super) arguments_at_denial: &'a Arguments,
    pub(super) device: Option<&'a DeviceAnalysis>,
}

impl CriticalPoint<'_> {
    /// Attributes the bytes; and says where the memory of the program goes that ran then, or else of the step, with
    /// its entry. `live` is what is allocated now on each device.
    pub(super) fn attribute(
        &self,
        live: &[Vec<Block>],
        sites: &AllocationSites,
        programs: &Programs,
        roles: &ArgumentRoles,
        source: &dyn EventSource,
    ) -> (Option<Attribution>, Option<(usize, ProgramMemory)>) {
        let at = self.device.and_then(|device| match self.refused {
            Some(refused) => Some((device, refused.context)),
            None => Some((device, device.peak_context?)),
        });
        let entry = at.and_then(|(_, context)| context.entry).or(programs.step);
        let take = |memories: &mut FxHashMap<u32, ProgramMemory>| {
            entry.and_then(|entry| Some((entry, memories.remove(&(entry as u32))?)))
        };
        let Some((device, context)) = at else {
            let entries = entry.into_iter().collect();
            return (None, take(&mut memories(entries, programs, source)));
        };
        let snapshot: &LiveSnapshot = match self.refused {
            Some(_) => &device.live_at_refusal,
            None => &device.live_at_peak,
        };
        let blocks = || snapshot.blocks(live[device.number as usize].iter());
        // Outputs of other programs have their names from those.
        let entries = entry
            .into_iter()
            .chain(
                blocks()
                    .map(|block| sites.get(block.owner).entry)
                    .filter(|entry| *entry != NO_PROGRAM)
                    .map(|entry| entry as usize),
            )
            .chain(blocks().flat_map(|block| roles.entries(block)))
            .collect();
        let mut attributor = Attributor {
            device: device.number,
            context,
            arguments: match self.refused {
                Some(_) => self.arguments_at_denial,
                None => &device.arguments_at_peak,
            },
            later_reads: match self.refused {
                Some(_) => None,
                None => LaterReads::from_notes(source.notes()),
            },
            refused: self.refused,
            sites,
            roles,
            entries: &programs.entries,
            memories: memories(entries, programs, source),
            source,
        };
        let attribution = attributor.attribute(blocks());
        (Some(attribution), take(&mut attributor.memories))
    }
}

/// Returns what is known of the buffers of programs, by their entries.
fn memories(
    mut entries: Vec<usize>,
    programs: &Programs,
    source: &dyn EventSource,
) -> FxHashMap<u32, ProgramMemory> {
    entries.sort_unstable();
    entries.dedup();
    entries
        .into_iter()
        .filter_map(|entry| {
            let program = programs.entries[entry].program;
            Some((entry as u32, source.program_memory(program)?))
        })
        .collect()
}
