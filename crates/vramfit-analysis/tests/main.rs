//! The integration tests of the crate, as one program: linking is most of what a test program costs.

#![allow(clippy::unwrap_used, reason = "what surrounds a test fails loudly too")]

#[path = "../../vramfit-model/tests/recorded/mod.rs"]
mod recorded;
mod recorder;
mod samples;

/// The pages about causes.
mod explain;
mod planning;
/// The texts, charts and files of reports, compared with those in `report/`.
mod report {
    mod forms;
    mod headlines;
    mod whole;
}
/// Traces that are written, read, and summarized.
mod trace {
    mod autotune_range;
    mod compare;
    mod created;
    mod difference;
    mod format;
    mod others;
    mod repeats;
    mod scratch;
    mod step_time;
    mod summary;
    mod timeline;
}
