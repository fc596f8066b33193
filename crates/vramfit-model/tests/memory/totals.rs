//! Sums, and names.

use vramfit_model::program::memory::Owner;
use vramfit_model::program::{BufferClass, MemorySpace};

use super::recorded::all;

#[test]
fn owners_add_up_to_what_xla_takes() {
    for recorded in all() {
        let memory = recorded.memory();
        let taken = recorded.figure("argument") + recorded.figure("output")
            - recorded.figure("alias")
            + recorded.figure("temp");
        let owners = Owner::ALL
            .iter()
            .filter(|owner| **owner != Owner::Constants)
            .map(|owner| memory.bytes_of(*owner))
            .sum::<u64>();
        assert_eq!(memory.occupied_bytes(), taken, "{}", recorded.name);
        assert_eq!(owners, taken, "{}", recorded.name);
    }
}

#[test]
fn the_block_is_its_live_bytes_and_padding() {
    for recorded in all() {
        let memory = recorded.memory();
        let live = memory.live_bytes.iter().max().copied().unwrap_or(0);
        let temp = recorded.figure("temp");
        assert_eq!(memory.temp_bytes, temp, "{}", recorded.name);
        assert_eq!(memory.padding_bytes + live, temp, "{}", recorded.name);
        let at_peak = memory.live_bytes.get(memory.peak_at as usize);
        assert_eq!(at_peak.copied().unwrap_or(0), live, "{}", recorded.name);
    }
}

#[test]
fn every_argument_and_output_has_its_path() {
    for recorded in all() {
        let memory = recorded.memory();
        let names = &recorded.names;
        let mut arguments = Vec::new();
        for buffer in &memory.buffers {
            if let Some(parameter) = buffer.parameter {
                let named = &names.arguments[parameter as usize];
                assert_eq!(&buffer.path, named, "{}", recorded.name);
                arguments.push(parameter);
            }
        }
        for (output, allocation) in recorded.program.output_allocations.iter().enumerate() {
            let at = allocation.expect("every output is found");
            let mut buffers = memory.buffers.iter();
            let buffer = buffers.find(|buffer| buffer.allocation as usize == at);
            // What reuses an argument's memory goes by the argument's name, and what lies on the host
            // is not told.
            let class = recorded.program.allocations[at].class;
            let space = recorded.program.allocations[at].space;
            if class == BufferClass::Output && space != MemorySpace::Host {
                let path = &buffer.expect("an output has a buffer").path;
                assert_eq!(path, &names.outputs[output], "{}", recorded.name);
                assert!(!path.is_empty(), "{}", recorded.name);
            }
        }
        arguments.sort_unstable();
        let all: Vec<u32> = (0..names.arguments.len() as u32).collect();
        assert_eq!(arguments, all, "{}", recorded.name);
    }
}

#[test]
fn what_the_script_wrote_has_its_line() {
    for recorded in all() {
        let memory = recorded.memory();
        let made = memory
            .buffers
            .iter()
            .filter(|buffer| buffer.parameter.is_none() && buffer.peak_bytes >= 4096);
        for buffer in made {
            let site = memory.user_site(buffer.frame).unwrap_or_default();
            assert!(
                site.contains("memory.py:"),
                "{}: `{}` of {} bytes: {site}",
                recorded.name,
                buffer.instruction,
                buffer.bytes
            );
        }
    }
}
