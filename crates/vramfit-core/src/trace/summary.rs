//! From a trace to an [`Answer`]: everything is replayed through the same allocators and counted.
//!
//! An answer is only given when replay and run agree: on every request whether it was met, on what
//! the card was asked for, and on the closing figures of every device to the byte.

use std::io::Read;

use super::answer::{
    AbortAnswer, Answer, BracketAnswer, DeviceAnswer, Moment, ProgramAnswer, RefusalAnswer,
    UnknownReads,
};
use super::count::{Count, RawMoment, Row, pool_state};
use super::replay::disagreement;
use super::{Footer, Reader, TextId};
use crate::allocator::{Exactness, Kind};
use crate::error::Result;

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

impl Count {
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

    /// Looks names up and puts everything where an [`Answer`] has it.
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
        // The first of equals; `max_by_key` takes the last.
        let step = (0..self.rows.len()).rev().max_by_key(|row| {
            let row = &self.rows[*row];
            u128::from(row.calls) * u128::from(row.key.1.needed_bytes().max(1))
        });
        let step = step.filter(|row| self.rows[*row].calls > 0);
        let step_key = step.map(|row| self.rows[row].key);
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
                refusals: state.refusals,
            }
        });
        let devices: Vec<_> = devices.collect();
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
        let bracket = self.what_if.as_ref().map(|what_if| {
            let limit = devices.first().and_then(|device| device.limit_bytes);
            let limit = limit.unwrap_or(reader.header().total_memory_bytes);
            let measured = self.rows.iter().filter_map(|row| row.variant);
            let unmeasured = self.rows.iter().filter(|row| {
                let (_, sizes, _, rung) = row.key;
                row.variant.is_none() && rung == TextId(0) && sizes.is_large(limit)
            });
            BracketAnswer {
                variant: measured
                    .clone()
                    .next()
                    .map_or(String::new(), |(name, _)| text(name)),
                peak_bytes: what_if.peak_bytes(),
                fits: what_if.fits(),
                measured: measured.count() as u64,
                unmeasured: unmeasured.count() as u64,
            }
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
        let step = step_key.and_then(|key| self.rows.iter().position(|row| row.key == key));
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
                variant_temp_bytes: row.variant.map(|(_, bytes)| bytes),
                sizes,
            }
        });
        let mut unknown_reads: Vec<_> = self
            .reads
            .iter()
            .map(|(site, reads)| UnknownReads {
                site: text(*site),
                reads: reads.count,
                bytes: reads.bytes,
                shapes: reads.shapes,
            })
            .collect();
        let order = |a: &UnknownReads, b: &UnknownReads| {
            (b.shapes, b.reads)
                .cmp(&(a.shapes, a.reads))
                .then_with(|| a.site.cmp(&b.site))
        };
        unknown_reads.sort_by(order);
        Answer {
            header: reader.header().clone(),
            complete: reader.footer().is_some(),
            devices,
            programs: programs.collect(),
            step,
            refusals,
            refusal_count: self.refusal_count,
            abort,
            unknown_reads,
            bracket,
            executions: self.executions,
            evaluated: reader.footer().map(|footer| footer.evaluated),
            program_exit: None,
            events: self.replay.events(),
            allocator_model,
        }
    }
}
