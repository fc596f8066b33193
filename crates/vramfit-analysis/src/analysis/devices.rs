//! What is added up on one device.

use super::arrays::{AllocationSites, grouped};
use super::attribution::Arguments;
use super::device_summary::DeviceSummary;
use super::failure::EventContext;
use super::layout::{GrantedRegion, layout};
use super::running_minimum::RunningMinimum;
use super::series::{LayoutSummary, TimelinePoint};
use super::snapshot::LiveSnapshot;
use super::timeline::Timeline;
use crate::allocator::Region;
use crate::replay::{Block, PoolLevel, PoolState, Replay};
use crate::trace::TextId;

/// One device of a [`super::analyzer::TraceAnalyzer`].
#[derive(Default)]
pub(super) struct DeviceAnalysis {
    pub(super) number: u32,
    level: PoolLevel,
    pub(super) peak_bytes: u64,
    /// As the process counts it, which may have cleared it.
    pub(super) reported_peak_bytes: u64,
    pub(super) peak_context: Option<EventContext>,
    state_at_peak: PoolState,
    pub(super) live_at_peak: LiveSnapshot,
    pub(super) arguments_at_peak: Arguments,
    /// When the first request of the run was refused, if that was here.
    pub(super) live_at_refusal: LiveSnapshot,
    /// When the last execution of the step began.
    pub(super) live_at_step: LiveSnapshot,
    running_minimum: RunningMinimum,
    timeline: Timeline,
    non_pool_bytes: u64,
    refusals: u64,
    /// Regions of the pool, in the order in which the driver granted them.
    regions: Vec<GrantedRegion>,
}

impl DeviceAnalysis {
    pub(super) fn new(number: u32, devices: usize) -> DeviceAnalysis {
        DeviceAnalysis { number, timeline: Timeline::new(devices), ..DeviceAnalysis::default() }
    }

    pub(super) fn in_use_bytes(&self) -> u64 {
        self.level.in_use_bytes
    }

    /// Returns the lowest bytes in use after a time; `None` where nothing happened here since.
    pub(super) fn lowest_since(&self, time: u64) -> Option<u64> {
        self.running_minimum.lowest_after(time)
    }

    /// Records an allocation. Returns `true` if it reached a new peak.
    #[inline]
    pub(super) fn on_allocated(&mut self, replay: &mut Replay) -> bool {
        self.update_level(replay)
    }

    pub(super) fn on_freed(&mut self, block: &Block, replay: &mut Replay) {
        self.live_at_peak.on_freed(block);
        self.live_at_refusal.on_freed(block);
        self.live_at_step.on_freed(block);
        self.update_level(replay);
    }

    /// Records a request that was refused.
    pub(super) fn on_refused(&mut self, replay: &mut Replay) {
        // The pool may have grown although the request was refused.
        self.update_level(replay);
        self.refusals += 1;
    }

    pub(super) fn on_non_pool_memory(&mut self, bytes: u64) {
        self.non_pool_bytes = self.non_pool_bytes.max(bytes);
    }

    pub(super) fn on_clear_peak(&mut self) {
        self.reported_peak_bytes = self.level.in_use_bytes;
    }

    /// Records an argument of the active execution, if that reached the peak. Returns `true` if there was room for it.
    pub(super) fn add_argument_at_peak(
        &mut self,
        is_active: impl Fn(&EventContext) -> bool,
        parameter: u32,
        allocation: u64,
    ) -> bool {
        self.peak_context
            .filter(is_active)
            .is_none_or(|context| self.arguments_at_peak.add(&context, parameter, allocation))
    }

    /// Takes over the level after the event applied last. Returns `true` if the peak rose.
    #[inline]
    fn update_level(&mut self, replay: &mut Replay) -> bool {
        let level = replay.pool_level(self.number);
        if level.pool_bytes != self.level.pool_bytes {
            self.add_regions(replay);
        }
        self.level = level;
        let in_use = level.in_use_bytes;
        self.running_minimum.push(replay.events(), in_use);
        let event = replay.events() - 1;
        let state = || replay.device_state(self.number);
        self.timeline.add(event, in_use, state);
        self.reported_peak_bytes = self.reported_peak_bytes.max(in_use);
        let rose = in_use > self.peak_bytes;
        if rose {
            self.peak_bytes = in_use;
            self.state_at_peak = replay.device_state(self.number);
            self.live_at_peak.capture(replay.allocations());
        }
        rose
    }

    /// Takes over the regions that are new. A pool returns none.
    fn add_regions(&mut self, replay: &mut Replay) {
        let event = replay.events() - 1;
        for region in replay.allocator(self.number).regions() {
            let is_known = |known: &GrantedRegion| known.region.address == region.address;
            if !self.regions.iter().any(is_known) {
                self.regions.push(GrantedRegion { region, event });
            }
        }
    }

    /// Returns the regions that the pool had after an event; all of them for `None`.
    fn regions_at(&self, event: Option<u64>) -> impl Iterator<Item = Region> {
        let last = event.unwrap_or(u64::MAX);
        self.regions
            .iter()
            .filter(move |granted| granted.event <= last)
            .map(|granted| granted.region)
    }

    /// Returns what was added up here; figures that others know are left at 0. `live` is what is allocated now,
    /// `refused` the points at which requests were refused.
    pub(super) fn summary(
        &self,
        live: &[Block],
        refused: impl Iterator<Item = TimelinePoint>,
        sites: &AllocationSites,
        text: impl Fn(TextId) -> String,
        program: impl Fn(u32) -> Option<String>,
    ) -> DeviceSummary {
        let arrays =
            |blocks: &mut dyn Iterator<Item = &Block>| grouped(blocks, sites, &text, &program);
        let layout_at = |event, blocks: &mut dyn Iterator<Item = &Block>| {
            layout(self.regions_at(event), blocks, sites, &text, &program)
        };
        let at_peak = || self.live_at_peak.blocks(live.iter());
        let refused: Vec<TimelinePoint> = refused.collect();
        let failure = refused.first().filter(|_| self.live_at_refusal.is_captured());
        DeviceSummary {
            device: self.number,
            peak_bytes: self.peak_bytes,
            at_peak: self.state_at_peak,
            layout_at_failure: match failure {
                Some(point) => {
                    layout_at(Some(point.event), &mut self.live_at_refusal.blocks(live.iter()))
                }
                None => LayoutSummary::default(),
            },
            timeline: self.timeline.points(refused.into_iter()),
            arrays_at_peak: arrays(&mut at_peak()),
            arrays_between_steps: arrays(&mut self.live_at_step.blocks(live.iter())),
            arrays_at_end: arrays(&mut live.iter()),
            layout_at_peak: match self.peak_context {
                Some(context) => layout_at(Some(context.event), &mut at_peak()),
                None => LayoutSummary::default(),
            },
            layout_at_end: layout_at(None, &mut live.iter()),
            outside_bytes: self.non_pool_bytes,
            failures: self.refusals,
            ..DeviceSummary::default()
        }
    }
}
