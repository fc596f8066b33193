//! Repeated events that bring a run back to the same state are not replayed again and again.
//!
//! A `repeat` record may stand for 2^40 events. One pass through them is replayed between two
//! snapshots of everything that later events depend on. Where both are the same, but for numbers that
//! move along by as much in every pass, each further pass does what this one did; so passes are skipped,
//! and what they count is multiplied. The answer is the same to the byte as without skipping
//! (`tests/trace_period.rs`).
//!
//! Every snapshot takes its structure apart field by field without `..`: whoever adds a field to what is
//! counted is told by the compiler to decide here what the field does from pass to pass.

use crate::error::Result;
use crate::trace::{Event, EventSource, Note};

/// One pass through repeated events, replayed between two snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// How many events were applied before it.
    pub(crate) begin: u64,
    /// Events in it.
    pub(crate) events: u64,
    /// Allocations that are numbered in it.
    pub(crate) allocations: u64,
    /// Allocations from this number on are other ones in each pass; earlier ones stay.
    pub(crate) first_moving: u64,
}

impl Period {
    /// Says whether the number of an allocation after the pass is that of before, moved along.
    pub(crate) fn repeats_allocation(&self, before: u64, after: u64) -> bool {
        match before < self.first_moving {
            true => after == before,
            false => after == before + self.allocations,
        }
    }

    /// Returns the number of an allocation after so many more passes, given that after this one.
    pub(crate) fn move_allocation(&self, number: &mut u64, passes: u64) {
        if *number >= self.first_moving + self.allocations {
            *number += passes * self.allocations;
        }
    }

    /// Says whether a time after the pass is that of before, moved along. A time counts the events up
    /// to and with that of the moment; those of an earlier pass than the one before stay.
    pub(crate) fn repeats_time(&self, before: u64, after: u64) -> bool {
        match before + self.events <= self.begin {
            true => after == before,
            false => after == before + self.events,
        }
    }

    /// Returns a time after so many more passes, given that after this one.
    pub(crate) fn move_time(&self, time: &mut u64, passes: u64) {
        if *time > self.begin {
            *time += passes * self.events;
        }
    }
}

/// Fewer passes than this are not worth two snapshots.
const MIN_PASSES: u64 = 6;
/// A snapshot costs as much as about this many events for each live allocation.
const EVENTS_FOR_ONE_ALLOCATION: u64 = 4;

/// Something that events happen to, and that can tell whether a pass of them repeats itself.
pub(crate) trait EventConsumer {
    /// What it was like before a pass.
    type Snapshot;

    /// Returns how many allocations there are now: what a snapshot costs.
    fn live_allocations(&self) -> u64;

    /// Takes in the notes that were read so far. They stand before the events that they are about.
    fn on_notes(&mut self, notes: &[Note]);

    /// Lets one event happen, and says whether it wants further ones.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] for an event that cannot have happened.
    fn on_event(&mut self, event: &Event) -> Result<bool>;

    /// Takes a snapshot and begins to note what a pass does.
    fn start_pass(&mut self) -> Self::Snapshot;

    /// Lets as many more passes be over as do the same as the one since the snapshot, at most so many,
    /// and returns how many. Notes no more.
    fn skip_passes(&mut self, before: Self::Snapshot, max_passes: u64) -> u64;
}

/// Lets the events up to and with the one of index `last` happen, skipping what repeats itself.
///
/// # Errors
/// Those of [`EventConsumer::on_event`] and [`EventSource::next_event`].
pub(crate) fn feed<F: EventConsumer>(
    source: &mut dyn EventSource,
    consumer: &mut F,
    last: u64,
) -> Result<()> {
    feed_events(source, consumer, last)?;
    consumer.on_notes(source.notes());
    Ok(())
}

fn feed_events<F: EventConsumer>(
    source: &mut dyn EventSource,
    consumer: &mut F,
    last: u64,
) -> Result<()> {
    let mut happened = 0;
    // Events until it is worth asking again whether they are repeated.
    let mut until_check = 0;
    // Passes to wait after an attempt that failed: what grows at first may settle later.
    let mut backoff = 1;
    while happened <= last {
        if until_check == 0 {
            let ahead = source.repetition().filter(|ahead| {
                let left = ahead.left.min((last - happened).saturating_add(1));
                let live = consumer.live_allocations();
                left / ahead.period >= MIN_PASSES && left / EVENTS_FOR_ONE_ALLOCATION >= live
            });
            match ahead {
                None => {
                    backoff = 1;
                    until_check = 1;
                }
                // The pass before the first snapshot must be one of this repeat, too.
                Some(ahead) if ahead.done < ahead.period => until_check = ahead.period - ahead.done,
                Some(ahead) => {
                    let before = consumer.start_pass();
                    for _ in 0..ahead.period {
                        if !step(source, consumer)? {
                            return Ok(());
                        }
                    }
                    happened += ahead.period;
                    let left = (ahead.left - ahead.period).min((last - happened).saturating_add(1));
                    let passes = consumer.skip_passes(before, left / ahead.period);
                    if passes > 0 {
                        source.skip_passes(passes)?;
                        happened += passes * ahead.period;
                    }
                    // Where skipping ended early, a program takes the lead in one of the next passes.
                    backoff = if passes > 0 { 1 } else { backoff * 2 };
                    until_check = ahead.period.saturating_mul(backoff);
                }
            }
            continue;
        }
        if !step(source, consumer)? {
            return Ok(());
        }
        happened += 1;
        until_check -= 1;
    }
    Ok(())
}

fn step<F: EventConsumer>(source: &mut dyn EventSource, consumer: &mut F) -> Result<bool> {
    let Some(event) = source.next_event()? else {
        return Ok(false);
    };
    consumer.on_notes(source.notes());
    consumer.on_event(&event)
}
