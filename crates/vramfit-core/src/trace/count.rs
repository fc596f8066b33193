//! Counts what a trace comes to while its events are replayed one by one.

use rustc_hash::FxHashMap;

use super::answer::{MAX_REFUSALS_KEPT, PoolState};
use super::bracket::WhatIf;
use super::low_water::LowWater;
use super::replay::{Effect, Replay, inconsistent};
use super::{Event, Header, ProgramSizes, Purpose, TextId};
use crate::allocator::Refusal;
use crate::error::Result;

/// Executions inside executions; more than any program nests callbacks.
const MAX_DEPTH: usize = 1024;

/// What is counted while events go by.
pub(super) struct Count {
    pub(super) replay: Replay,
    /// The same run with other kernels, where that was asked for.
    pub(super) what_if: Option<WhatIf>,
    /// What a card has for this process, going by the header alone.
    pub(super) card_bytes: u64,
    pub(super) devices: Vec<Device>,
    pub(super) rows: Vec<Row>,
    pub(super) row_of: FxHashMap<RowKey, usize>,
    /// Rows of the programs that are loaded, and how often each is: the same program may be
    /// loaded again before it is dropped.
    pub(super) loaded: FxHashMap<u32, (usize, u64)>,
    /// Rows of the executions that are going on, the innermost last, and where each was called.
    pub(super) running: Vec<(usize, TextId)>,
    pub(super) executions: u64,
    /// Row of the execution begun last.
    pub(super) last_row: Option<usize>,
    pub(super) refusals: Vec<Refused>,
    pub(super) refusal_count: u64,
    pub(super) abort: Option<Aborted>,
    pub(super) reads: FxHashMap<TextId, Reads>,
    /// Devices whose peak was just reached and not looked at yet.
    pub(super) unseen_peaks: u32,
}

/// Reads of values that are not known, from one line.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) shapes: u64,
}

#[derive(Default)]
pub(super) struct Device {
    pub(super) in_use: u64,
    pub(super) peak: u64,
    /// As the process counts it, which may have set it back.
    pub(super) reported_peak: u64,
    pub(super) moment: Option<RawMoment>,
    pub(super) peak_unseen: bool,
    pub(super) at_peak: PoolState,
    pub(super) low_water: LowWater,
    pub(super) outside: u64,
    pub(super) refusals: u64,
    pub(super) card_refused: bool,
}

/// A moment before names are looked up.
#[derive(Clone, Copy)]
pub(super) struct RawMoment {
    pub(super) row: Option<usize>,
    pub(super) call: u64,
    pub(super) purpose: Purpose,
    pub(super) bytes: u64,
    pub(super) site: TextId,
    pub(super) event: u64,
}

pub(super) type RowKey = (TextId, ProgramSizes, u32, TextId);

pub(super) struct Row {
    pub(super) key: RowKey,
    pub(super) site: TextId,
    /// How it was compiled a second time, and the temporaries that it needs then.
    pub(super) variant: Option<(TextId, u64)>,
    pub(super) compilations: u64,
    pub(super) loaded: u64,
    pub(super) calls: u64,
    /// When its last execution ended, and what was in use on each device then.
    pub(super) ended: Option<(u64, Vec<u64>)>,
    /// What was held before its last execution, on each device.
    pub(super) held: Vec<u64>,
}

pub(super) struct Refused {
    pub(super) device: u32,
    pub(super) moment: RawMoment,
    pub(super) message: TextId,
    pub(super) pool: PoolState,
    pub(super) growth: Option<u64>,
    pub(super) card_free: Option<u64>,
    pub(super) fatal: Option<String>,
    pub(super) executions_before: u64,
}

pub(super) struct Aborted {
    pub(super) device: u32,
    pub(super) row: Option<usize>,
    pub(super) executions: u64,
    pub(super) message: TextId,
    pub(super) event: u64,
}

impl Count {
    pub(super) fn new(header: &Header) -> Result<Count> {
        let replay = Replay::new(header)?;
        let devices = (0..replay.devices()).map(|_| Device::default()).collect();
        let what_if = header.bracket.then(|| WhatIf::new(header)).transpose()?;
        let elsewhere = header.taken_bytes.saturating_add(header.context_bytes);
        Ok(Count {
            replay,
            what_if,
            card_bytes: header.total_memory_bytes.saturating_sub(elsewhere),
            devices,
            rows: Vec::new(),
            row_of: FxHashMap::default(),
            loaded: FxHashMap::default(),
            running: Vec::new(),
            executions: 0,
            last_row: None,
            refusals: Vec::new(),
            refusal_count: 0,
            abort: None,
            reads: FxHashMap::default(),
            unseen_peaks: 0,
        })
    }

    /// Lets one event happen and counts it.
    pub(super) fn event(&mut self, event: &Event) -> Result<()> {
        if self.unseen_peaks > 0 {
            self.look_at_peak(event);
        }
        let effect = self.replay.apply(event)?;
        if let Some(what_if) = &mut self.what_if {
            what_if.apply(event);
        }
        match (effect, *event) {
            (
                Effect::Allocated(device),
                Event::Allocate {
                    bytes,
                    purpose,
                    site,
                    ..
                },
            ) => {
                self.level(device);
                let state = &mut self.devices[device as usize];
                state.card_refused = false;
                state.reported_peak = state.reported_peak.max(state.in_use);
                if state.in_use > state.peak {
                    state.peak = state.in_use;
                    self.unseen_peaks += u32::from(!state.peak_unseen);
                    state.peak_unseen = true;
                    self.devices[device as usize].moment = Some(self.now(purpose, bytes, site));
                }
            }
            (Effect::Freed(device), _) => self.level(device),
            (Effect::Aborted(device), Event::FreeAborts { message, .. }) => {
                self.level(device);
                let (row, executions) = (self.last_row, self.executions);
                let event = self.replay.events() - 1;
                self.abort.get_or_insert(Aborted {
                    device,
                    row,
                    executions,
                    message,
                    event,
                });
            }
            (
                Effect::Refused(device, refusal),
                Event::Refuse {
                    bytes,
                    purpose,
                    message,
                    ..
                },
            ) => {
                let moment = self.now(purpose, bytes, TextId(0));
                self.refused(device, refusal, message, moment);
            }
            (
                _,
                Event::Driver {
                    device, granted, ..
                },
            ) => {
                self.devices[device as usize].card_refused |= granted == 0;
            }
            (_, Event::Outside { device, bytes }) => {
                let outside = &mut self.devices[device as usize].outside;
                *outside = bytes.max(*outside);
            }
            (_, Event::ClearPeak { device }) => {
                let state = &mut self.devices[device as usize];
                state.reported_peak = state.in_use;
            }
            (
                _,
                Event::Program {
                    program,
                    name,
                    sizes,
                    devices,
                    loaded,
                    rung,
                    site,
                },
            ) => {
                let row = self.row((name, sizes, devices, rung), site);
                self.rows[row].compilations += 1;
                self.rows[row].loaded += u64::from(loaded);
                let entry = self.loaded.entry(program).or_insert((row, 0));
                if entry.0 != row {
                    return self.wrong("two programs have the same number");
                }
                entry.1 += 1;
            }
            (
                _,
                Event::Variant {
                    program,
                    name,
                    sizes,
                },
            ) => {
                let Some((row, _)) = self.loaded.get(&program) else {
                    return self.wrong("a program was measured that is not there");
                };
                self.rows[*row].variant = Some((name, sizes.temp_bytes));
            }
            (_, Event::Unload { program }) => {
                let Some((_, times)) = self.loaded.get_mut(&program) else {
                    return self.wrong("a program is dropped that is not there");
                };
                *times -= 1;
                if *times == 0 {
                    self.loaded.remove(&program);
                }
            }
            (_, Event::Begin { program, site }) => {
                let Some(row) = self.loaded.get(&program) else {
                    return self.wrong("a program is executed that is not there");
                };
                let row = row.0;
                return self.begin(row, site);
            }
            (_, Event::End) => {
                let Some((row, _)) = self.running.pop() else {
                    return self.wrong("an execution ends that never began");
                };
                let levels = self.devices.iter().map(|device| device.in_use);
                let (at, ended) = (self.replay.events(), &mut self.rows[row].ended);
                match ended {
                    Some((time, kept)) => {
                        *time = at;
                        kept.clear();
                        kept.extend(levels);
                    }
                    None => *ended = Some((at, levels.collect())),
                }
            }
            (_, Event::UnknownRead { site, bytes }) => self.read(site, bytes, 0),
            (_, Event::ShapeRead { site, bytes }) => self.read(site, bytes, 1),
            _ => {}
        }
        Ok(())
    }

    fn read(&mut self, site: TextId, bytes: u64, shapes: u64) {
        let reads = self.reads.entry(site).or_default();
        reads.count += 1;
        reads.bytes = reads.bytes.saturating_add(bytes);
        reads.shapes += shapes;
    }

    fn wrong(&self, what: &str) -> Result<()> {
        Err(inconsistent(self.replay.events(), what))
    }

    /// Takes over what is in use on a device.
    #[inline]
    fn level(&mut self, device: u32) {
        let in_use = self.replay.allocator(device).stats().bytes_in_use;
        let state = &mut self.devices[device as usize];
        state.in_use = in_use;
        state.low_water.note(self.replay.events(), in_use);
    }

    /// Looks at pools whose peak is about to be over. As long as a device only allocates, its
    /// peak is still rising, and looking at every new one would cost a walk over the pool each.
    fn look_at_peak(&mut self, event: &Event) {
        let device = match *event {
            Event::Free { allocation } | Event::FreeAborts { allocation, .. } => {
                self.replay.device_of(allocation)
            }
            // A refused request may leave a larger pool behind.
            Event::Refuse { device, .. } => Some(device),
            _ => None,
        };
        let Some(device) = device else { return };
        let Some(state) = self.devices.get_mut(device as usize) else {
            return;
        };
        if std::mem::take(&mut state.peak_unseen) {
            self.unseen_peaks -= 1;
            state.at_peak = pool_state(&mut self.replay, device);
        }
    }

    fn now(&self, purpose: Purpose, bytes: u64, site: TextId) -> RawMoment {
        let (row, site) = match self.running.last() {
            // Inside an execution the line is that of the call.
            Some((row, called_at)) => (Some(*row), *called_at),
            None => (None, site),
        };
        let call = row.map_or(self.executions, |row| self.rows[row].calls);
        RawMoment {
            row,
            call,
            purpose,
            bytes,
            site,
            event: self.replay.events() - 1,
        }
    }

    fn refused(&mut self, device: u32, refusal: Refusal, message: TextId, moment: RawMoment) {
        let state = &mut self.devices[device as usize];
        state.refusals += 1;
        let card_refused = std::mem::take(&mut state.card_refused);
        self.refusal_count += 1;
        if self.refusals.len() == MAX_REFUSALS_KEPT {
            return;
        }
        let stats = self.replay.allocator(device).stats();
        let growth = stats
            .bytes_limit
            .zip(stats.pool_bytes)
            .map(|(limit, pool)| {
                if card_refused {
                    0
                } else {
                    limit.saturating_sub(pool)
                }
            });
        self.refusals.push(Refused {
            device,
            moment,
            message,
            pool: pool_state(&mut self.replay, device),
            growth,
            card_free: match stats.pool_bytes {
                Some(_) => None,
                None => Some(self.card_bytes.saturating_sub(stats.bytes_in_use)),
            },
            fatal: match refusal {
                Refusal::OutOfMemory => None,
                Refusal::Fatal(text) => Some(text),
            },
            executions_before: self.executions,
        });
    }

    /// Returns the row of a program, making it if it is the first of its kind.
    fn row(&mut self, key: RowKey, site: TextId) -> usize {
        let next = self.rows.len();
        let row = *self.row_of.entry(key).or_insert(next);
        if row == next {
            let (ended, held) = (None, Vec::new());
            let (compilations, loaded, calls) = (0, 0, 0);
            self.rows.push(Row {
                key,
                site,
                variant: None,
                compilations,
                loaded,
                calls,
                ended,
                held,
            });
        }
        row
    }

    fn begin(&mut self, row: usize, site: TextId) -> Result<()> {
        if self.running.len() == MAX_DEPTH {
            return self.wrong("too many executions inside each other");
        }
        self.executions += 1;
        self.running.push((row, site));
        self.last_row = Some(row);
        let row = &mut self.rows[row];
        row.calls += 1;
        let devices = self.devices.iter().enumerate();
        let held = devices.map(|(index, device)| match &row.ended {
            // Nothing noted since means that nothing changed since.
            Some((time, levels)) => {
                let since = device.low_water.lowest_after(*time).unwrap_or(u64::MAX);
                since.min(levels[index])
            }
            None => device.in_use,
        });
        row.held.clear();
        row.held.extend(held);
        Ok(())
    }
}

pub(super) fn pool_state(replay: &mut Replay, device: u32) -> PoolState {
    let allocator = replay.allocator(device);
    let stats = allocator.stats();
    PoolState {
        in_use_bytes: stats.bytes_in_use,
        free_bytes: stats
            .pool_bytes
            .map(|pool| pool.saturating_sub(stats.bytes_in_use)),
        // A full pool has a largest free block of nothing.
        largest_free_block_bytes: allocator
            .largest_free_block()
            .or(stats.pool_bytes.map(|_| 0)),
    }
}
