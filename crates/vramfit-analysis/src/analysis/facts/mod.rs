//! Facts about a run, each in one file: what it adds up from the events, its result, which is also its JSON, what reports
//! show of it, and its tests.
//!
//! A new fact is a file here, a line in [`facts!`] and its place in a report (`report/dryrun.rs`); if nothing that is
//! recorded tells it, an event as well. What needs other facts, such as the verdict, asks for their results.
//! Array holders and undivided batches are found in the notes of a trace; leaks, compilations, unread outputs and the range
//! of autotuning are added up from allocations, steps and programs. So they are not in that list.

pub mod array_holders;
pub mod autotune_range;
pub mod callbacks;
pub mod compilations;
pub mod leaks;
pub mod replicated_arrays;
pub mod undivided_batch;
pub mod unknown_reads;
pub mod unread_outputs;
pub mod whole_batch;

use serde::Serialize;

use crate::trace::{Event, TextId};

/// What a fact adds up while the events of a run are read.
trait Fact: Default {
    /// What it came to.
    type Result;

    /// Adds an event that leaves the pools as they are.
    fn on(&mut self, event: &Event);

    /// Returns what it came to; `text` reads the texts of the trace.
    fn finish(&self, text: &dyn Fn(TextId) -> String) -> Self::Result;
}

impl RunningFacts {
    /// Notes that the first request is refused.
    pub(super) fn on_first_failure(&mut self) {
        self.unknown_reads.on_first_failure();
    }
}

/// Lists the facts: the key in the JSON, what adds it up, and the type of its result.
macro_rules! facts {
    ($($(#[$meaning:meta])* $key:ident: $fact:ty => $result:ty;)*) => {
        /// Adds up the facts of this list.
        #[derive(Default)]
        pub(super) struct RunningFacts { $($key: $fact,)* }

        impl RunningFacts {
            /// Adds an event that leaves the pools as they are.
            pub(super) fn on(&mut self, event: &Event) {
                $(self.$key.on(event);)*
            }

            /// Returns what they came to.
            pub(super) fn finish(&self, text: &dyn Fn(TextId) -> String) -> RunFacts {
                RunFacts { $($key: self.$key.finish(text),)* }
            }
        }

        /// Facts about a run. Their names are the keys of the JSON.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct RunFacts { $($(#[$meaning])* pub $key: $result,)* }
    };
}

facts! {
    /// Reads of values that were not computed.
    unknown_reads: unknown_reads::ReadCounts => unknown_reads::UnknownReads;
    /// Python functions that programs called, or would have, whose values were not computed.
    callbacks: callbacks::CallbackCounts => Vec<callbacks::CallbackLine>;
}
