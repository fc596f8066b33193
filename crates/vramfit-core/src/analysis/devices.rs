//! What is counted on one device while events go by.

use super::attribution::Arguments;
use super::failure::EventContext;
use super::layout::GrantedRegion;
use super::running_minimum::RunningMinimum;
use super::series::TimelinePoint;
use super::snapshot::LiveSnapshot;
use super::timeline::Timeline;
use crate::allocator::Region;
use crate::replay::{Block, PoolLevel, PoolState, Replay};

/// One device of a [`super::analyzer::TraceAnalyzer`].
pub(super) struct Device {
    pub(super) number: u32,
    pub(super) level: PoolLevel,
    pub(super) peak: u64,
    /// As the process counts it, which may have set it back.
    pub(super) reported_peak: u64,
    pub(super) moment: Option<EventContext>,
    pub(super) at_peak: PoolState,
    pub(super) blocks_at_peak: LiveSnapshot,
    pub(super) arguments_at_peak: Arguments,
    /// What was allocated when the first request of the run was refused, if that was here.
    pub(super) blocks_at_refusal: LiveSnapshot,
    /// What was allocated when the last execution of the step began.
    pub(super) blocks_at_step: LiveSnapshot,
    pub(super) low_water: RunningMinimum,
    pub(super) timeline: Timeline,
    pub(super) outside: u64,
    pub(super) refusals: u64,
    pub(super) card_refused: bool,
    /// Regions of the pool, in the order in which the card gave them.
    pub(super) given: Vec<GrantedRegion>,
    /// Every point of the timeline, while a pass of a repeat is watched.
    pub(super) watched: Option<Vec<TimelinePoint>>,
}

impl Device {
    pub(super) fn new(number: u32, devices: usize) -> Device {
        Device {
            number,
            level: PoolLevel::default(),
            peak: 0,
            reported_peak: 0,
            moment: None,
            at_peak: PoolState::default(),
            blocks_at_peak: LiveSnapshot::default(),
            arguments_at_peak: Arguments::default(),
            blocks_at_refusal: LiveSnapshot::default(),
            blocks_at_step: LiveSnapshot::default(),
            low_water: RunningMinimum::default(),
            timeline: Timeline::new(devices),
            outside: 0,
            refusals: 0,
            card_refused: false,
            given: Vec::new(),
            watched: None,
        }
    }

    /// Takes over the level after the event applied last. Says whether the peak rose.
    #[inline]
    pub(super) fn note(&mut self, replay: &mut Replay) -> bool {
        let level = replay.level(self.number);
        if level.pool_bytes != self.level.pool_bytes {
            self.note_regions(replay);
        }
        self.level = level;
        let in_use = level.in_use_bytes;
        self.low_water.note(replay.events(), in_use);
        let event = replay.events() - 1;
        if let Some(points) = &mut self.watched {
            let state = replay.state(self.number);
            points.push(TimelinePoint { event, state });
        }
        let state = || replay.state(self.number);
        self.timeline.note(event, in_use, state);
        self.reported_peak = self.reported_peak.max(in_use);
        let rose = in_use > self.peak;
        if rose {
            self.peak = in_use;
            self.at_peak = replay.state(self.number);
            self.blocks_at_peak.mark(replay.allocations());
        }
        rose
    }

    /// Takes over that a block of this device was freed.
    pub(super) fn freed(&mut self, block: &Block, replay: &mut Replay) {
        self.blocks_at_peak.freed(block);
        self.blocks_at_refusal.freed(block);
        self.blocks_at_step.freed(block);
        self.note(replay);
    }

    /// Takes over the regions that are new. A pool gives none back.
    pub(super) fn note_regions(&mut self, replay: &mut Replay) {
        let event = replay.events() - 1;
        for region in replay.allocator(self.number).regions() {
            let known = |given: &GrantedRegion| given.region.address == region.address;
            if !self.given.iter().any(known) {
                self.given.push(GrantedRegion { region, event });
            }
        }
    }

    /// Returns the regions that the pool had after an event; all of them for `None`.
    pub(super) fn regions_at(&self, event: Option<u64>) -> impl Iterator<Item = Region> {
        let until = event.unwrap_or(u64::MAX);
        let then = self.given.iter().filter(move |given| given.event <= until);
        then.map(|given| given.region)
    }
}
