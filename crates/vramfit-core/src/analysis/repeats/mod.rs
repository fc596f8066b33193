//! What is counted before and after a pass of repeated events, so that passes that do the same can be skipped
//! ([`crate::replay::EventConsumer`]).
//!
//! Every snapshot takes its structure apart field by field without `..`: whoever adds a field to what is
//! counted is told by the compiler to decide here what the field does from pass to pass.
//!
//! | file | what it compares |
//! | --- | --- |
//! | `analyzer.rs` | all that is counted |
//! | `devices.rs` | what is counted on one device |
//! | `programs.rs` | programs and their calls, and for how many passes the same program leads |

mod analyzer;
mod devices;
mod programs;

pub(super) use analyzer::{PassRecord, Snapshot};
pub(super) use programs::Call;

use super::analyzer::TraceAnalyzer;
use crate::error::Result;
use crate::replay::EventConsumer;
use crate::trace::{Event, Note};

/// Counts that go through the same events.
impl EventConsumer for Vec<&mut TraceAnalyzer> {
    type Snapshot = Vec<Snapshot>;

    fn live_allocations(&self) -> u64 {
        self.iter().map(|count| count.live_allocations()).sum()
    }

    fn learn(&mut self, notes: &[Note]) {
        self.iter_mut().for_each(|count| count.learn(notes));
    }

    fn event(&mut self, event: &Event) -> Result<bool> {
        for count in self {
            count.event(event)?;
        }
        Ok(true)
    }

    fn watch(&mut self) -> Vec<Snapshot> {
        self.iter_mut().map(|count| count.watch()).collect()
    }

    /// As many passes as are the same in all counts.
    fn skip(&mut self, before: Vec<Snapshot>, most: u64) -> u64 {
        let notes: Vec<_> = self.iter_mut().map(|count| count.unwatch()).collect();
        let mut passes = most;
        let mut periods = Vec::with_capacity(self.len());
        for ((count, before), notes) in self.iter().zip(&before).zip(&notes) {
            let Some((period, limit)) = count.period_since(before, notes) else {
                return 0;
            };
            periods.push(period);
            passes = passes.min(limit);
        }
        if passes == 0 {
            return 0;
        }
        let all = self.iter_mut().zip(&before).zip(&notes).zip(periods);
        for (((count, before), notes), period) in all {
            count.skip(&period, before, notes, passes);
        }
        passes
    }
}
