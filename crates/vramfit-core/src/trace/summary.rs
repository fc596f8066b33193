//! From a trace to an [`Answer`]: everything is replayed through the same allocators and counted.
//!
//! An answer is only given when replay and run agree: on every request whether it was met, on what
//! the card was asked for, and on the closing figures of every device to the byte.

use std::io::Read;

use rustc_hash::FxHashMap;

use super::answer::{
    AbortAnswer, Answer, DeviceAnswer, MAX_REFUSALS_KEPT, Moment, PoolState, ProgramAnswer,
    RefusalAnswer, UnknownReads,
};
use super::low_water::LowWater;
use super::replay::{Effect, Replay, disagreement, inconsistent};
use super::{Event, Footer, Header, ProgramSizes, Purpose, Reader, TextId};
use crate::allocator::{Exactness, Kind, Refusal};
use crate::error::Result;

/// Executions inside executions; more than any program nests callbacks.
const MAX_DEPTH: usize = 1024;

/// Replays a trace and says what the run came to.
///
/// # Errors
/// [`crate::ErrorKind::InvalidFile`] or [`crate::ErrorKind::Io`] for a trace that cannot be read,
/// and [`crate::ErrorKind::Internal`] when the replay disagrees with the run on anything.
pub fn summarise<R: Read>(mut reader: Reader<R>) -> Result<Answer> {
    let mut count = Count::new(reader.header())?;
    while let Some(event) = reader.next_event()? {
        count.event(&event)?;
    }
    if let Some(footer) = reader.footer() {
        count.check(footer)?;
    }
    Ok(count.answer(&reader))
}

/// What is counted while events go by.
struct Count {
    replay: Replay,
    /// What a card has for this process, going by the header alone.
    card_bytes: u64,
    devices: Vec<Device>,
    rows: Vec<Row>,
    row_of: FxHashMap<RowKey, usize>,
    /// Rows of the programs that are loaded, and how often each is: the same program may be
    /// loaded again before it is dropped.
    loaded: FxHashMap<u32, (usize, u64)>,
    /// Rows of the executions that are going on, the innermost last, and where each was called.
    running: Vec<(usize, TextId)>,
    executions: u64,
    /// Row of the execution begun last.
    last_row: Option<usize>,
    refusals: Vec<Refused>,
    refusal_count: u64,
    abort: Option<Aborted>,
    reads: FxHashMap<TextId, (u64, u64)>,
    /// Devices whose peak was just reached and not looked at yet.
    unseen_peaks: u32,
}

#[derive(Default)]
struct Device {
    in_use: u64,
    peak: u64,
    /// As the process counts it, which may have set it back.
    reported_peak: u64,
    moment: Option<RawMoment>,
    peak_unseen: bool,
    at_peak: PoolState,
    low_water: LowWater,
    outside: u64,
    code: u64,
    peak_code: u64,
    refusals: u64,
    card_refused: bool,
}

/// A moment before names are looked up.
#[derive(Clone, Copy)]
struct RawMoment {
    row: Option<usize>,
    call: u64,
    purpose: Purpose,
    bytes: u64,
    site: TextId,
    event: u64,
}

type RowKey = (TextId, ProgramSizes, u32, TextId);

struct Row {
    key: RowKey,
    site: TextId,
    compilations: u64,
    loaded: u64,
    calls: u64,
    /// When its last execution ended, and what was in use on each device then.
    ended: Option<(u64, Vec<u64>)>,
    /// What was held before its last execution, on each device.
    held: Vec<u64>,
}

struct Refused {
    device: u32,
    moment: RawMoment,
    message: TextId,
    pool: PoolState,
    growth: Option<u64>,
    card_free: Option<u64>,
    fatal: Option<String>,
    executions_before: u64,
}

struct Aborted {
    device: u32,
    row: Option<usize>,
    executions: u64,
    message: TextId,
    event: u64,
}

impl Count {
    fn new(header: &Header) -> Result<Count> {
        let replay = Replay::new(header)?;
        let devices = (0..replay.devices()).map(|_| Device::default()).collect();
        let elsewhere = header.taken_bytes.saturating_add(header.context_bytes);
        Ok(Count {
            replay,
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

    fn event(&mut self, event: &Event) -> Result<()> {
        if self.unseen_peaks > 0 {
            self.look_at_peak(event);
        }
        let effect = self.replay.apply(event)?;
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
                if entry.1 == 1 {
                    self.code(row, true);
                }
            }
            (_, Event::Unload { program }) => {
                let Some((row, times)) = self.loaded.get_mut(&program) else {
                    return self.wrong("a program is dropped that is not there");
                };
                *times -= 1;
                if *times == 0 {
                    let row = *row;
                    self.loaded.remove(&program);
                    self.code(row, false);
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
            (_, Event::UnknownRead { site, bytes }) => {
                let reads = self.reads.entry(site).or_default();
                reads.0 += 1;
                reads.1 = reads.1.saturating_add(bytes);
            }
            _ => {}
        }
        Ok(())
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
                compilations,
                loaded,
                calls,
                ended,
                held,
            });
        }
        row
    }

    /// Counts the machine code of a program that comes or goes.
    fn code(&mut self, row: usize, comes: bool) {
        let (_, sizes, devices, _) = self.rows[row].key;
        // Which devices it runs on is not in the trace; all but odd programs run on the first ones.
        for state in self.devices.iter_mut().take(devices as usize) {
            state.code = if comes {
                state.code.saturating_add(sizes.code_bytes)
            } else {
                state.code.saturating_sub(sizes.code_bytes)
            };
            state.peak_code = state.peak_code.max(state.code);
        }
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

    /// Compares the closing figures with those of the process.
    fn check(&mut self, footer: &Footer) -> Result<()> {
        let lists = [
            ("bytes in use", &footer.bytes_in_use),
            ("peak bytes in use", &footer.peak_bytes_in_use),
            ("pool bytes", &footer.pool_bytes),
            ("allocations", &footer.num_allocs),
        ];
        let at = self.replay.events();
        for (what, theirs) in lists {
            if theirs.len() != self.devices.len() {
                let text = format!(
                    "{what} of {} devices instead of {}",
                    theirs.len(),
                    self.devices.len()
                );
                return Err(disagreement(at, &text));
            }
        }
        for (device, state) in self.devices.iter().enumerate() {
            let stats = self.replay.allocator(device as u32).stats();
            let ours = [
                stats.bytes_in_use,
                state.reported_peak,
                stats.pool_bytes.unwrap_or(0),
                stats.num_allocs,
            ];
            for ((what, theirs), ours) in lists.iter().zip(ours) {
                let theirs = theirs[device];
                if ours != theirs {
                    let text =
                        format!("{what} of device {device} are {ours} here and were {theirs}");
                    return Err(disagreement(at, &text));
                }
            }
        }
        if self.executions != footer.executions {
            let text = format!(
                "{} executions here and {} there",
                self.executions, footer.executions
            );
            return Err(disagreement(at, &text));
        }
        Ok(())
    }

    fn answer<R: Read>(mut self, reader: &Reader<R>) -> Answer {
        let text = |id| reader.text(id).to_owned();
        let names = |moment: &RawMoment, rows: &[Row]| Moment {
            program: moment.row.map(|row| text(rows[row].key.0)),
            call: moment.call,
            purpose: moment.purpose,
            requested_bytes: moment.bytes,
            site: text(moment.site),
            event: moment.event,
        };
        let step = (0..self.rows.len())
            .rev()
            .filter(|row| self.rows[*row].calls > 0)
            .max_by_key(|row| (self.rows[*row].calls, self.rows[*row].key.1.needed_bytes()));
        let replay = &mut self.replay;
        let devices = self.devices.iter().zip(0..).map(|(state, device)| {
            let stats = replay.allocator(device).stats();
            let at_end = pool_state(replay, device);
            DeviceAnswer {
                device,
                limit_bytes: stats.bytes_limit,
                // What `cuda_async` reports as its limit is what it keeps, not what it may take.
                capacity_bytes: match stats.bytes_limit {
                    Some(limit) if reader.header().allocator != Kind::CudaAsync.name() => {
                        limit.min(self.card_bytes.max(stats.peak_pool_bytes.unwrap_or(0)))
                    }
                    _ => self.card_bytes,
                },
                pool_bytes: stats.peak_pool_bytes,
                peak_bytes: state.peak,
                peak: state
                    .moment
                    .as_ref()
                    .map(|moment| names(moment, &self.rows)),
                at_peak: if state.peak_unseen {
                    at_end
                } else {
                    state.at_peak
                },
                at_end,
                held_between_steps_bytes: step
                    .and_then(|row| self.rows[row].held.get(device as usize))
                    .copied()
                    .unwrap_or(0),
                outside_bytes: state.outside,
                code_bytes: state.peak_code,
                refusals: state.refusals,
            }
        });
        let devices = devices.collect();
        let refusals = self.refusals.iter().map(|refused| RefusalAnswer {
            device: refused.device,
            moment: names(&refused.moment, &self.rows),
            message: text(refused.message),
            pool: refused.pool,
            growth_bytes: refused.growth,
            card_free_bytes: refused.card_free,
            fatal: refused.fatal.clone(),
            went_on: self.executions > refused.executions_before,
        });
        let refusals = refusals.collect();
        let abort = self.abort.as_ref().map(|abort| AbortAnswer {
            device: abort.device,
            program: abort.row.map(|row| text(self.rows[row].key.0)),
            executions: abort.executions,
            message: text(abort.message),
            event: abort.event,
        });
        let allocator_model = match self.devices.is_empty() {
            true => None,
            false => match self.replay.allocator(0).exactness() {
                Exactness::Exact => None,
                Exactness::Model(what) => Some(what),
            },
        };
        // A stable sort: programs that need the same stay in the order of their compilation.
        self.rows
            .sort_by_key(|row| std::cmp::Reverse(row.key.1.needed_bytes()));
        let programs = self.rows.iter().map(|row| {
            let (name, sizes, devices, rung) = row.key;
            ProgramAnswer {
                name: text(name),
                calls: row.calls,
                compilations: row.compilations,
                loaded: row.loaded,
                devices,
                rung: text(rung),
                site: text(row.site),
                sizes,
            }
        });
        let mut unknown_reads: Vec<_> = self
            .reads
            .iter()
            .map(|(site, (reads, bytes))| UnknownReads {
                site: text(*site),
                reads: *reads,
                bytes: *bytes,
            })
            .collect();
        unknown_reads.sort_by(|a, b| b.reads.cmp(&a.reads).then_with(|| a.site.cmp(&b.site)));
        Answer {
            header: reader.header().clone(),
            complete: reader.footer().is_some(),
            devices,
            programs: programs.collect(),
            refusals,
            refusal_count: self.refusal_count,
            abort,
            unknown_reads,
            executions: self.executions,
            evaluated: reader.footer().map(|footer| footer.evaluated),
            events: self.replay.events(),
            allocator_model,
        }
    }
}

fn pool_state(replay: &mut Replay, device: u32) -> PoolState {
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
