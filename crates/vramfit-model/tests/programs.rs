//! What is read from serialized executables, against XLA's own figures for the same programs.
//!
//! `fixtures/programs/` holds what the CUDA plugins of several releases of JAX wrote, and what
//! their `memory_analysis()` said; `scripts/record/programs.py` recorded both.

use std::fs;
use std::path::{Path, PathBuf};

use vramfit_model::program::{BufferClass, OptimizedModule, Program, executable_and_options};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/programs")
}

fn recorded() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(fixtures())
        .expect("the fixtures are part of the repository")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pb"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("readable"))
        })
        .collect();
    files.sort();
    files
}

fn parse(bytes: &[u8]) -> Program {
    let outer = executable_and_options(bytes).expect("a message");
    Program::parse(bytes, &outer.compile_options).expect("a program")
}

#[test]
fn sizes_are_those_of_memory_analysis() {
    let files = recorded();
    for release in ["jax0.6.2", "jax0.8.1", "jax0.9.2", "jax0.10.2", "jax0.11.2", "jax0.12.0"] {
        let of_release = files.iter().filter(|(name, _)| name.starts_with(&format!("{release}-")));
        assert!(of_release.count() >= 4, "{release} was recorded");
    }
    for (name, bytes) in files {
        let program = parse(&bytes);
        let expected =
            fs::read_to_string(fixtures().join(format!("{name}.json"))).expect("recorded");
        let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
        for (prefix, sizes) in [("", program.sizes), ("host_", program.host_sizes)] {
            for (key, ours) in [
                ("argument", sizes.argument_bytes),
                ("output", sizes.output_bytes),
                ("alias", sizes.alias_bytes),
                ("temp", sizes.temp_bytes),
            ] {
                let key = format!("{prefix}{key}_size_in_bytes");
                assert_eq!(Some(ours), expected[&key].as_u64(), "{name}: {key}");
            }
        }
    }
}

#[test]
fn every_output_is_found_in_an_allocation_of_its_size() {
    for (name, bytes) in recorded() {
        let program = parse(&bytes);
        assert!(!program.outputs.is_empty(), "{name}");
        for (output, allocation) in program.outputs.iter().zip(&program.output_allocations) {
            let allocation = program.allocations[allocation.expect(&name)];
            assert!(
                matches!(allocation.class, BufferClass::Output | BufferClass::Parameter(_)),
                "{name}: {allocation:?}"
            );
            assert_eq!(allocation.bytes, output.bytes(), "{name}");
        }
    }
}

#[test]
fn a_donated_step_aliases_its_state() {
    for (name, bytes) in recorded() {
        if !name.ends_with("donated_step") {
            continue;
        }
        let program = parse(&bytes);
        assert_eq!((program.parameters.len(), program.outputs.len()), (3, 3), "{name}");
        let aliases: Vec<_> = program.aliases.iter().map(|a| (a.output, a.parameter)).collect();
        assert_eq!(aliases, [(0, 0), (1, 1)], "{name}");
        assert_eq!(program.name, "jit_step", "{name}");
    }
}

#[test]
fn a_sharded_program_knows_its_devices_and_shardings() {
    for (name, bytes) in recorded() {
        let program = parse(&bytes);
        let devices = if name.ends_with("sharded") { 2 } else { 1 };
        assert_eq!(program.options.devices.len(), devices, "{name}");
        if name.ends_with("sharded") {
            assert_eq!(program.parameters[0].dims, [128, 128], "{name}: half of the rows");
            assert_eq!(program.parameter_shardings.len(), 1, "{name}");
            assert_eq!(program.output_shardings.len(), 2, "{name}");
        }
    }
}

#[test]
fn every_program_takes_at_least_its_bound() {
    let gpu = vramfit_model::gpu::find("h100-80g").expect("known");
    for (name, bytes) in recorded() {
        let program = parse(&bytes);
        let module = OptimizedModule::from_executable(&program).expect("a module");
        let time = program.time(&module.graph(), &gpu, None);
        assert!(time.low_us <= time.model_us && time.model_us > 0.0, "{name}");
        assert!(time.unknown_us <= time.model_us, "{name}");
        assert_eq!(time.xla_us, 0.0, "{name} was recorded without estimates");
    }
}

#[test]
fn damaged_executables_give_errors_and_never_a_panic() {
    for (name, bytes) in recorded() {
        for end in (0..bytes.len()).step_by(97) {
            // A cut may by chance fall between two fields and leave a valid, smaller message.
            let _ = Program::parse(&bytes[..end], &[]);
        }
        let mut damaged = bytes.clone();
        for at in (0..bytes.len()).step_by(61) {
            damaged[at] ^= 0xff;
            let _ = Program::parse(&damaged, &[]);
            damaged[at] ^= 0xff;
        }
        assert!(Program::parse(&bytes[..bytes.len() / 2], &[]).is_err(), "{name}");
    }
}
