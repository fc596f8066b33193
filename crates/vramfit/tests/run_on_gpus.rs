//! `vramfit run` on a machine with GPUs, which a fake driver has.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use fake_driver::{FakeDriver, memory};
use vramfit_model::gpu;
use vramfit_model::host::{HostGpu, Mig, Process};
use vramfit_model::settings::LIBRARIES_BYTES;

const GIB: u64 = 1 << 30;
const PAGE: u64 = 2 << 20;

/// What `run --print` sets, what it says, and its exit code.
struct Printed {
    set: BTreeMap<String, String>,
    said: String,
    code: Option<i32>,
}

impl Printed {
    /// The pool that the fraction makes of a GPU.
    fn pool_bytes(&self, total: u64) -> u64 {
        let fraction = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
            .iter()
            .find_map(|name| self.set.get(*name))
            .unwrap_or_else(|| panic!("no fraction: {}", self.said));
        (total as f64 * fraction.parse::<f64>().expect("a number")) as u64
    }
}

fn print(gpus: Vec<HostGpu>, options: &[&str], environment: &[(&str, &str)]) -> Printed {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let driver = FakeDriver::new(folder.path(), &gpus.into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramfit"));
    for (name, _) in std::env::vars() {
        if ["XLA_", "JAX_", "VRAMFIT_", "CUDA_"].iter().any(|family| name.starts_with(family)) {
            command.env_remove(name);
        }
    }
    let done = command
        .args(["run", "--print"])
        .args(options)
        .env("VRAMFIT_NVML", driver.library())
        .envs(environment.iter().copied())
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    Printed {
        set: text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        said: String::from_utf8_lossy(&done.stderr).into_owned(),
        code: done.status.code(),
    }
}

/// A GPU of the catalog, of which processes hold a part.
fn gpu(index: u32, name: &str, used_bytes: u64) -> HostGpu {
    let gpu = gpu::find(name).expect("in the catalog");
    let reserved = 300 << 20;
    HostGpu {
        index,
        uuid: format!("GPU-0000000{index}-1111-2222-3333-444444444444"),
        name: gpu.description,
        memory: Some(memory(gpu.total_memory_bytes + reserved, reserved, used_bytes)),
        ..HostGpu::default()
    }
}

fn total(name: &str) -> u64 {
    gpu::find(name).expect("in the catalog").total_memory_bytes
}

/// Checks that a pool is as large as it can be, and not larger.
fn assert_pool(printed: &Printed, gpu_bytes: u64, wanted: u64) {
    let pool = printed.pool_bytes(gpu_bytes);
    assert!(
        pool <= wanted && wanted - pool < 2 * PAGE,
        "{pool} and not {wanted}: {}",
        printed.said
    );
}

#[test]
fn a7_what_a_display_holds_is_kept_out_of_the_share() {
    let desktop = HostGpu { display: Some(true), ..gpu(0, "rtx-4090", 1200 << 20) };
    let gpu = gpu::find("rtx-4090").expect("known");
    let outside = gpu.context_bytes_estimate + LIBRARIES_BYTES;
    let printed = print(vec![desktop], &["--processes", "2"], &[]);
    let wanted = (gpu.total_memory_bytes - (1200 << 20) - 2 * outside) / 2;
    assert_pool(&printed, gpu.total_memory_bytes, wanted);
    assert!(printed.said.contains("1.2 GiB used by other processes"), "{}", printed.said);
    assert_eq!(printed.set["VRAMFIT_PROCESSES"], "2");
}

#[test]
fn s7_a_limit_on_a_slice_is_a_part_of_the_slice() {
    let name = "a100-40g-mig-1g.5gb";
    let parent = HostGpu { mig: Mig::Parent, ..gpu(0, "a100-40g", 0) };
    let slice = HostGpu {
        uuid: "MIG-5c7e1111-2222-3333-4444-555555555555".to_owned(),
        mig: Mig::Instance {
            number: 0,
            gpu_instance: Some(7),
            parent_total_bytes: Some(total("a100-40g")),
        },
        ..gpu(0, name, 0)
    };
    let printed = print(vec![parent, slice], &["--limit", "2GiB"], &[]);
    assert_pool(&printed, total(name), 2 * GIB);
}

#[test]
fn the_gpus_are_those_that_the_program_will_see() {
    let run = |option: &[&str], visible: Option<&str>| {
        let gpus = vec![gpu(0, "t4", 0), gpu(1, "t4", 10 * GIB)];
        let variable = visible.map(|list| ("CUDA_VISIBLE_DEVICES", list));
        print(gpus, option, variable.as_slice())
    };
    let [free, held, both] =
        [Some("0"), Some("1"), None].map(|visible| run(&["--keep-free", "1GiB"], visible));
    let pools = [&free, &held, &both].map(|printed| printed.pool_bytes(total("t4")));
    // With both, the fraction must not be too much on the fuller one; and NCCL needs room, too.
    assert!(pools[0] > 12 * GIB && pools[1] < 4 * GIB && pools[2] < pools[1], "{pools:?}");
    let none = run(&["--limit", "1GiB"], Some(""));
    assert_eq!(none.code, Some(2), "{}", none.said);
    assert!(none.said.contains("hides every GPU"), "{}", none.said);
}

#[test]
fn a_limit_holds_on_the_largest_of_different_gpus() {
    let printed = print(vec![gpu(0, "t4", 0), gpu(1, "h100-80g", 0)], &["--limit", "8GiB"], &[]);
    assert_pool(&printed, total("h100-80g"), 8 * GIB);
}

/// A process that was started as one of this many, and ends when it is dropped.
struct Sibling(Child);

impl Sibling {
    fn of(division: &str) -> Sibling {
        let mut command = Command::new("sleep");
        command.arg("600").env("VRAMFIT_PROCESSES", division);
        Sibling(command.stdout(Stdio::null()).spawn().expect("sleep starts"))
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it was started");
    }
}

#[test]
fn a5_a_process_of_the_same_division_is_no_stranger() {
    let with = |process: Option<&Sibling>, used| {
        let processes = process.map(|sibling| Process {
            pid: sibling.0.id(),
            used_bytes: Some(used),
            ..Process::default()
        });
        let gpu = HostGpu { processes: processes.into_iter().collect(), ..gpu(0, "t4", used) };
        print(vec![gpu], &["--processes", "2"], &[]).pool_bytes(total("t4"))
    };
    let alone = with(None, 0);
    assert_eq!(with(Some(&Sibling::of("2")), 7 * GIB), alone);
    assert!(with(Some(&Sibling::of("3")), 7 * GIB) < alone / 2);
}

#[test]
fn too_little_room_is_refused_with_who_holds_it() {
    let printed = print(vec![gpu(0, "t4", 14 * GIB)], &["--processes", "2"], &[]);
    assert_eq!(printed.code, Some(2));
    assert!(printed.said.contains("14.0 GiB used by other processes"), "{}", printed.said);
}
