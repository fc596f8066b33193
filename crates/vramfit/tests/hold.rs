//! `vramfit hold` through CUDA's driver, with a fake driver that accounts for it of a GPU.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake_driver::{Description, FakeDriver, memory, t4};
use rustix::process::{Pid, Signal, kill_process};
use vramfit_model::host::Process;

const GIB: u64 = 1 << 30;

fn one_gpu() -> Description {
    Description { context_bytes: GIB, ..vec![t4(memory(16 * GIB, GIB, 0))].into() }
}

/// A machine in a folder of its own.
struct Bench {
    _folder: tempfile::TempDir,
    driver: FakeDriver,
}

impl Bench {
    fn new(description: &Description) -> Bench {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let driver = FakeDriver::new(folder.path(), description);
        Bench { _folder: folder, driver }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hold(self.driver.library());
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("vramfit starts")
    }

    /// Changes of what the GPU's memory holds, in GiB.
    fn held_gib(&self) -> Vec<i64> {
        let changes = self.driver.device_allocations().changes();
        let gib = GIB as i64;
        changes.iter().map(|(_, _, bytes)| bytes / gib).collect()
    }
}

fn hold(library: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramfit"));
    command
        .arg("hold")
        .env("VRAMFIT_NVML", library)
        .env("VRAMFIT_CUDA", library)
        .env_remove("VRAMFIT_RUN_CONFIG")
        .env("NO_COLOR", "1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("we write UTF-8")
}

#[test]
fn exactly_so_much_is_held_in_steps_and_given_back() {
    let bench = Bench::new(&one_gpu());
    let done = bench.run(&["5GiB", "--step", "2GiB", "--for", "0s"]);
    assert_eq!(
        text(&done.stdout),
        "GPU 0: Tesla T4, the GPU has 14.0 GiB free of 15.0 GiB\n\
         \x20allocated        free\n\
         \x20  2.0 GiB    12.0 GiB\n\
         \x20  4.0 GiB    10.0 GiB\n\
         \x20  5.0 GiB     9.0 GiB\n"
    );
    assert_eq!(text(&done.stderr), "holding 5.0 GiB for 0s\nreleased 5.0 GiB (duration elapsed)\n");
    assert_eq!(done.status.code(), Some(0));
    // The context first and last, between them three pieces.
    assert_eq!(bench.held_gib(), [1, 2, 2, 1, -2, -2, -1, -1]);
}

#[test]
fn a_part_is_one_of_all_that_programs_can_use() {
    let bench = Bench::new(&one_gpu());
    let done = bench.run(&["80%", "--step", "100GiB", "--for", "0s", "--json"]);
    let lines: Vec<serde_json::Value> = text(&done.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str()).collect();
    assert_eq!(events, [Some("start"), Some("step"), Some("holding"), Some("released")]);
    assert_eq!(lines[0]["requested_bytes"], 12 * GIB);
    assert_eq!(lines[1]["allocated_bytes"], 12 * GIB);
    assert_eq!(lines[1]["free_bytes"], 2 * GIB);
    assert!(lines.iter().all(|line| line["schema"] == vramfit_base::JSON_SCHEMA));
}

#[test]
fn more_than_is_free_is_refused_with_who_holds_it() {
    let mut description = one_gpu();
    let gpu = &mut description.host.gpus[0];
    let memory = gpu.memory.as_mut().expect("it has some");
    (memory.used_bytes, memory.free_bytes) = (6 * GIB, 9 * GIB);
    gpu.processes =
        vec![Process { pid: std::process::id(), used_bytes: Some(6 * GIB), ..Process::default() }];
    let bench = Bench::new(&description);
    let done = bench.run(&["90%"]);
    let told = text(&done.stdout);
    assert!(
        told.starts_with(
            "cannot allocate 13.5 GiB: the GPU has 8.0 GiB free of 15.0 GiB usable memory\n"
        ),
        "{told}"
    );
    let holder = format!("   6.0 GiB  pid {}  ", std::process::id());
    assert!(told.contains(&holder), "{told}");
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(bench.held_gib(), [1, -1]);
}

#[test]
fn at_the_limit_it_stops_with_what_it_got() {
    let mut description = one_gpu();
    description.withheld_bytes = 5 * GIB;
    let bench = Bench::new(&description);
    let done = bench.run(&["12GiB", "--step", "4GiB"]);
    let told = text(&done.stdout);
    assert!(
        told.ends_with(
            "   8.0 GiB     6.0 GiB\nstopped at 8.0 GiB of 12.0 GiB: the GPU has no free block of \
             4.0 GiB\n"
        ),
        "{told}"
    );
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(bench.held_gib(), [1, 4, 4, -4, -4, -1]);
}

#[test]
fn verify_reads_back_what_it_wrote() {
    let mut description = one_gpu();
    let bench = Bench::new(&description);
    let done = bench.run(&["2GiB", "--for", "0s", "--verify"]);
    let told = text(&done.stdout);
    assert!(
        told.ends_with(
            "verified: all data was written and read back\n  free memory decreased by 2.0 GiB\n"
        ),
        "{told}"
    );
    assert_eq!(done.status.code(), Some(0));

    description.reads_zeros = true;
    bench.driver.describe(&description);
    let done = bench.run(&["2GiB", "--for", "0s", "--verify"]);
    let told = text(&done.stdout);
    assert!(
        told.contains("differs; read 0x00000000 at byte 0, where 0x9e3779b1 was written"),
        "{told}"
    );
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(bench.held_gib().iter().sum::<i64>(), 0);
}

#[test]
fn signals_give_the_memory_back() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let bench = Bench::new(&one_gpu());
        let mut running = bench
            .command(&["3GiB", "--step", "3GiB", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("vramfit starts");
        let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
        let is_holding = |line: &String| line.contains("\"holding\"");
        let holding = lines.by_ref().map(|line| line.expect("text")).find(is_holding);
        assert!(holding.is_some());
        assert_eq!(bench.held_gib(), [1, 3]);

        kill_process(Pid::from_child(&running), signal).expect("it runs");
        let last = lines.last().expect("a last line").expect("text");
        assert!(last.contains("interrupted"), "{last}");
        assert_eq!(running.wait().expect("it ends").code(), Some(0));
        assert_eq!(bench.held_gib(), [1, 3, -3, -1]);
    }
}

#[test]
fn an_error_on_the_way_gives_the_memory_back() {
    let mut description = one_gpu();
    description.errors.insert("cuMemsetD32_v2".to_owned(), 214);
    let bench = Bench::new(&description);
    let done = bench.run(&["2GiB", "--step", "1GiB", "--verify"]);
    let told = text(&done.stderr);
    assert!(
        told.starts_with(
            "error[no-driver]: a CUDA driver call failed\n  cause: cuMemsetD32_v2: \
             CUDA_ERROR_ECC_UNCORRECTABLE (uncorrectable ECC error encountered)\nhint: "
        ),
        "{told}"
    );
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(bench.held_gib(), [1, 1, 1, -1, -1, -1]);
}

#[test]
fn without_a_driver_the_way_without_a_gpu_is_named() {
    let done =
        hold(Path::new("/nonexistent/libcuda.so.1")).arg("1GiB").output().expect("vramfit starts");
    let told = text(&done.stderr);
    assert!(
        told.starts_with("error[no-driver]: `/nonexistent/libcuda.so.1` cannot be opened\n"),
        "{told}"
    );
    assert!(
        told.contains("`vramfit dryrun --gpu t4 -- vramfit hold 8GiB --backend jax`"),
        "{told}"
    );
    assert_eq!(done.status.code(), Some(2));
}
