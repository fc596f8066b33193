//! The moment that decides: the first request that was refused, or else the peak of the device with the
//! highest; and what is to be divided then.

use rustc_hash::FxHashMap;

use super::analyzer::TraceAnalyzer;
use super::arrays::NO_PROGRAM;
use super::attribution::{Attribution, Attributor};
use super::snapshot::LiveSnapshot;
use crate::program::ProgramMemory;
use crate::replay::Block;
use crate::trace::Events;

impl TraceAnalyzer {
    /// Finds out whose the bytes are at the moment that decides; and where the memory of the program goes
    /// that ran then, or else of the step, with its entry. `tightest` is the device that decides where nothing
    /// went wrong.
    pub(super) fn attribution(
        &self,
        live: &[Vec<Block>],
        tightest: usize,
        source: &dyn Events,
    ) -> (Option<Attribution>, Option<(usize, ProgramMemory)>) {
        let none = LiveSnapshot::default();
        let refused = self
            .refusals
            .first()
            .filter(|refused| refused.fatal.is_none());
        let device = match (refused, &self.abort) {
            (Some(refused), _) => self.devices.get(refused.device as usize),
            (None, Some(abort)) => self.devices.get(abort.device as usize),
            (None, None) => self.devices.get(tightest),
        };
        let at = device.and_then(|device| match refused {
            Some(refused) => Some((device, refused.moment)),
            None => Some((device, device.moment?)),
        });
        let kept = device.map_or(&none, |device| match refused {
            Some(_) => &device.blocks_at_refusal,
            None => &device.blocks_at_peak,
        });
        let blocks =
            || kept.blocks(live[at.map_or(0, |(device, _)| device.number as usize)].iter());
        let entry = at
            .and_then(|(_, moment)| moment.entry)
            .or(self.programs.step);
        let mut entries: Vec<usize> = entry.into_iter().collect();
        if at.is_some() {
            // Outputs of other programs have their names from those.
            let made = blocks().map(|block| self.makers.get(block.owner).entry);
            entries.extend(
                made.filter(|entry| *entry != NO_PROGRAM)
                    .map(|entry| entry as usize),
            );
        }
        entries.sort_unstable();
        entries.dedup();
        let known = entries.into_iter().filter_map(|entry| {
            Some((
                entry as u32,
                source.program_memory(self.programs.entries[entry].program)?,
            ))
        });
        let mut memories: FxHashMap<u32, ProgramMemory> = known.collect();
        let Some((device, moment)) = at else {
            return (
                None,
                entry.and_then(|entry| Some((entry, memories.remove(&(entry as u32))?))),
            );
        };
        let mut division = Attributor {
            device: device.number,
            moment,
            arguments: match refused {
                Some(_) => &self.arguments_at_refusal,
                None => &device.arguments_at_peak,
            },
            request: refused.map(|refused| refused.slot),
            makers: &self.makers,
            entries: &self.programs.entries,
            memories,
            source,
        };
        let attribution = division.divide(blocks());
        let memory =
            entry.and_then(|entry| Some((entry, division.memories.remove(&(entry as u32))?)));
        (Some(attribution), memory)
    }
}
