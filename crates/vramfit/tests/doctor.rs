//! `vramfit doctor` on machines whose driver is fake, with a Python that has no JAX.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fake_driver::{Description, FakeDriver, a100, memory};
use serde_json::Value;
use vramfit_model::host::{ComputeMode, Mig, Process, ProcessKind};

const GIB: u64 = 1 << 30;

/// Writes a program that answers as a Python without JAX does.
fn python_without_jax(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("python");
    let answer = r#"{"python":"3.12.1","executable":"/bare/python","packages":{}}"#;
    std::fs::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("made executable");
    path
}

struct Told {
    code: Option<i32>,
    record: Value,
}

impl Told {
    /// Returns status and sentence of every finding of a check.
    fn of(&self, id: &str) -> Vec<(&str, &str)> {
        let checks = self.record["checks"].as_array().expect("a list");
        checks
            .iter()
            .filter(|check| check["id"] == id)
            .map(|check| {
                let text = |key: &str| check[key].as_str().unwrap_or_default();
                (text("status"), text("message"))
            })
            .collect()
    }
}

fn doctor(description: &Description, options: &[&str]) -> Told {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = FakeDriver::new(folder.path(), description);
    let python = python_without_jax(folder.path());
    let done = Command::new(env!("CARGO_BIN_EXE_vramfit"))
        .args(["doctor", "--json", "--python"])
        .arg(&python)
        .args(options)
        .env("VRAMFIT_NVML", driver.library())
        .env_remove("VRAMFIT_RUN_CONFIG")
        .output()
        .expect("the binary starts");
    let out = String::from_utf8_lossy(&done.stdout);
    let record = serde_json::from_str(&out)
        .unwrap_or_else(|error| panic!("{error}: {out}{}", String::from_utf8_lossy(&done.stderr)));
    Told { code: done.status.code(), record }
}

#[test]
fn two_gpus_one_of_them_exclusive_and_held() {
    let mut held = a100(1);
    held.display = Some(true);
    held.compute_mode = Some(ComputeMode::ExclusiveProcess);
    held.processes = vec![Process {
        pid: std::process::id(),
        used_bytes: Some(2 * GIB),
        kind: ProcessKind::Both,
        ..Process::default()
    }];
    let told = doctor(&Description::from(vec![a100(0), held]), &[]);
    assert_eq!(told.code, Some(1));
    assert_eq!(told.of("driver")[0].0, "pass");
    let gpus = told.of("gpu");
    assert_eq!((gpus[0].0, gpus[1].0), ("pass", "fail"));
    for words in ["80.0 GiB", "drives a display", "allows one process"] {
        assert!(gpus[1].1.contains(words), "{gpus:?} lacks {words}");
    }
    assert_eq!(told.of("jax")[0], ("fail", "`/bare/python` has no `jax`"));
    assert_eq!(told.of("backend")[0].0, "skip");
    assert_eq!(told.record["host"]["gpus"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_divided_gpu_is_reported_by_its_slices() {
    let mut parent = a100(0);
    parent.mig = Mig::Parent;
    let mut slice = a100(0);
    slice.uuid = "MIG-0".to_owned();
    slice.memory = Some(memory(20 * GIB, 0, 0));
    slice.mig =
        Mig::Instance { number: 0, gpu_instance: Some(2), parent_total_bytes: Some(81 * GIB) };
    let told = doctor(&Description::from(vec![parent, slice]), &[]);
    let gpus = told.of("gpu");
    assert!(gpus[0].1.contains("partitioned into MIG slices"), "{gpus:?}");
    assert!(gpus[1].1.contains("20.0 GiB, a MIG slice"), "{gpus:?}");
}

#[test]
fn a_driver_that_was_updated_while_it_ran_fails_with_its_cure() {
    let mut mismatched = Description::from(vec![a100(0)]);
    // NVML_ERROR_LIB_RM_VERSION_MISMATCH
    mismatched.errors.insert("nvmlInit_v2".to_owned(), 18);
    let told = doctor(&mismatched, &[]);
    let (status, sentence) = told.of("driver")[0];
    assert_eq!(status, "fail");
    assert!(sentence.contains("different versions"), "{sentence}");
}

#[test]
fn training_is_reported_in_five_checks() {
    let told = doctor(&Description::from(vec![a100(0)]), &["--train", "--require", "gpu"]);
    let checks = told.record["checks"].as_array().expect("a list");
    let names: Vec<_> = checks.iter().map(|check| check["id"].as_str()).collect();
    let expected = ["backend", "computation", "transfers", "jit", "readiness"];
    assert_eq!(names, expected.map(Some));
    assert_eq!(told.of("readiness")[0].0, "fail");
    assert_eq!(told.code, Some(1));
}
