//! The integration tests of the crate, as one program: linking is most of what a test program costs.

mod recorded;

/// Recorded files of other writers, whole and damaged.
mod hdf5 {
    mod damaged;
    mod matrix;
}
mod load;
/// The order of rows: a permutation that is computed, not stored.
mod order {
    mod choice;
    mod properties;
    mod quality;
    mod values;
}
mod write_recovery;
