//! Runs every recorded command line in `cli/` and compares what it says and its exit code.
//!
//! These run the plain binary, without Python: what needs JAX is tested in `tests/test_cli.py`.
//! After an intended change, `make golden` records the new output.

use fake_driver::{Description, FakeDriver, memory, t4};
use vramfit_model::host::{HostGpu, Process};

/// Sixty columns more or less, or a color, must not depend on who runs the tests.
fn cases() -> trycmd::TestCases {
    let cases = trycmd::TestCases::new();
    cases.env("NO_COLOR", "1").env("COLUMNS", "100").env("LC_ALL", "C.UTF-8");
    cases
}

#[test]
fn recorded_command_lines() {
    cases()
        // No driver, also where there is one: a recorded line must not touch a GPU.
        .env("VRAMFIT_NVML", "/nonexistent/libnvidia-ml.so.1")
        .env("VRAMFIT_CUDA", "/nonexistent/libcuda.so.1")
        .case("tests/cli/*.trycmd")
        // What the pages show is what the command says.
        .case("../../docs/commands/gpus.md")
        .case("../../docs/commands/env.md")
        .case("../../docs/reference/errors.md");
}

#[test]
fn pages_about_real_gpus() {
    let used = 6 << 30;
    let gpu = HostGpu {
        processes: vec![Process {
            // Beyond the largest number that Linux gives.
            pid: 4_194_305,
            used_bytes: Some(used),
            ..Process::default()
        }],
        ..t4(memory(16_106_127_360, 450_297_856, used))
    };
    let machine = Description { context_bytes: 100 << 20, ..vec![gpu].into() };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = FakeDriver::new(folder.path(), &machine);
    let library = driver.library().to_str().expect("a plain path");
    cases()
        .env("VRAMFIT_NVML", library)
        .env("VRAMFIT_CUDA", library)
        .case("../../docs/commands/hold.md");
}

#[test]
fn all_recorded_json_has_one_schema() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let expected = format!("{{\"schema\":{},", vramfit_base::JSON_SCHEMA);
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("the recorded lines").flatten() {
        if entry.path().extension().is_none_or(|end| end != "trycmd") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).expect("text");
        for line in text.lines().filter(|line| line.starts_with("{\"")) {
            assert!(line.starts_with(&expected), "{}: {line}", entry.path().display());
            found += 1;
        }
    }
    assert!(found > 8, "{found}");
}
