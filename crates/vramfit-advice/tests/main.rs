//! The integration tests of the crate, as one program: linking is most of what a test program costs.

#![allow(clippy::unwrap_used, reason = "what surrounds a test fails loudly too")]

mod doctor;
/// The causes of failed runs.
mod explain {
    mod fits;
    mod frameworks;
    mod libraries;
    mod maps;
    mod messages;
    mod pool_settings;
    mod process;
    mod proofs;
    mod remedies;
    mod support;
}
mod lint;
