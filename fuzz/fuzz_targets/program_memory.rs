//! What XLA dumped of a program, damaged in every way: it gives an answer or an error, soon.
//!
//! The recorded dumps are the corpus; `make fuzz` says where they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vramfit_model::program::memory::Names;
use vramfit_model::program::{Program, ProgramMemory};

fuzz_target!(|dump: &[u8]| {
    let read = ProgramMemory::from_dump(&Program::default(), dump, &Names::default());
    if let Ok(memory) = read {
        let stored = ProgramMemory::from_stored(&memory.to_stored());
        assert_eq!(stored.ok(), Some(memory));
    }
    drop(ProgramMemory::from_stored(dump));
});
