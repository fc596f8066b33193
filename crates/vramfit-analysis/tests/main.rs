//! The integration tests of the crate, as one program: linking is most of what a test program costs.

#![allow(clippy::unwrap_used, reason = "what surrounds a test fails loudly too")]

#[path = "../../vramfit-model/tests/recorded/mod.rs"]
mod recorded;
mod recorder;
mod samples;

<<<<<<< HEAD:crates/vramfit-analysis/tests/main.rs
/// The pages about causes.
mod explain;
=======
/// The models of JAX's allocators: their laws, and recordings of XLA's own.
mod allocator {
    mod golden_bfc;
    mod golden_bfc_growth;
    mod golden_bfc_spatial;
    mod golden_oom_dump;
    mod laws;
    mod obtainable;
}
mod client_options;
mod doctor;
/// The causes of failed runs, and what their pages promise.
mod explain {
    mod fits;
    mod messages;
    mod pages;
    mod process;
    mod proofs;
    mod remedies;
}
mod lint;
mod memory;
>>>>>>> wt-c:crates/vramfit-core/tests/main.rs
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
    mod difference;
    mod format;
    mod others;
    mod repeats;
    mod scratch;
    mod step_time;
    mod summary;
    mod timeline;
}
