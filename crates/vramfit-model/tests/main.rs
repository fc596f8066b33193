//! The integration tests of the crate, as one program: linking is most of what a test program costs.

#![allow(clippy::unwrap_used, reason = "what surrounds a test fails loudly too")]

mod recorded;

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
mod memory;
mod programs;
mod real_gpus;
mod settings_properties;
