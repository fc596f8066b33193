//! An HDF5 file from a stranger: listing it and reading its datasets gives values or errors, soon.
//!
//! The recorded files are the corpus; `make fuzz` says where they are.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use vramfit_data::hdf5::{Container, Content, tree};
use vramfit_data::read::{Dataset, RowOptions, RowReader};
use vramfit_data::source::Source;

/// What is read of a dataset whose shape may say anything.
const MAX_BYTES: usize = 1 << 20;

fuzz_target!(|file: &[u8]| {
    let source = Source::from_bytes("fuzz", file.to_vec());
    let Ok(container) = Container::open(Arc::new(source)) else {
        return;
    };
    let nodes = tree(&container).unwrap_or_default();
    for node in nodes.iter().take(8) {
        if !matches!(node.content, Content::Dataset(_)) {
            continue;
        }
        let Ok(dataset) = Dataset::open_in(&container, &node.path) else {
            continue;
        };
        let Ok(rows) = RowReader::new(dataset, &RowOptions::default()) else {
            continue;
        };
        let count = rows.len().min((MAX_BYTES / rows.row_bytes().max(1)) as u64);
        let mut out = vec![0; count as usize * rows.row_bytes()];
        drop(rows.read(0..count, &mut out));
    }
});
