//! The whole path from NVML's C functions to a [`Host`], with a fake library.

use std::time::{Duration, Instant};

use fake_driver::{Description, FakeDriver, a100};
use vramfit_gpu::{DriverUnavailable, Sampler};
use vramfit_model::host::{ComputeMode, GpuMemory, Host, HostGpu, Mig, Process, ProcessKind};
use vramfit_model::{Error, ErrorKind};

const GIB: u64 = 1 << 30;

fn memory(total: u64, used: u64) -> Option<GpuMemory> {
    Some(fake_driver::memory(total, 512 << 20, used))
}

fn gpu(index: u32) -> HostGpu {
    HostGpu {
        memory: memory(80 * GIB, 3 * GIB),
        utilization_percent: Some(97),
        temperature_c: Some(61),
        power_mw: Some((312_000, 400_000)),
        ..a100(index)
    }
}

fn own_process(used_bytes: Option<u64>) -> Process {
    Process { pid: std::process::id(), used_bytes, ..Process::default() }
}

fn failing(mut description: Description, errors: &[(&str, u32)]) -> Description {
    let errors = errors.iter();
    let errors = errors.map(|(name, code)| ((*name).to_owned(), *code));
    description.errors = errors.collect();
    description
}

fn open(driver: &FakeDriver) -> Result<Sampler, DriverUnavailable> {
    Sampler::open_library(driver.library().as_os_str())
}

/// What is read from a machine.
fn read(description: &Description) -> Host {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = FakeDriver::new(folder.path(), description);
    open(&driver).expect("the fake driver answers").scan()
}

#[test]
fn what_the_driver_tells_of_two_gpus_arrives() {
    let mut described = Description::from(vec![gpu(0), gpu(1)]);
    described.host.gpus[1].display = Some(true);
    described.host.gpus[1].compute_mode = Some(ComputeMode::ExclusiveProcess);
    assert_eq!(read(&described), described.host);
}

#[test]
fn processes_are_merged_and_described() {
    let own = std::process::id();
    let mut described = Description::from(vec![gpu(0)]);
    described.host.gpus[0].processes = vec![
        Process { kind: ProcessKind::Both, ..own_process(Some(2 * GIB)) },
        Process { pid: 4_194_305, kind: ProcessKind::Graphics, ..own_process(Some(GIB)) },
    ];
    let read = read(&described);
    let [ours, stranger] = &read.gpus[0].processes[..] else {
        panic!("{:?}", read.gpus[0].processes);
    };
    assert_eq!((ours.pid, ours.kind), (own, ProcessKind::Both));
    assert_eq!(ours.used_bytes, Some(2 * GIB));
    let command = ours.command.as_deref().expect("our own command line");
    let program = std::env::current_exe().expect("a running program");
    let name = program.file_name().expect("a file").to_string_lossy();
    assert!(command.contains(&*name), "{command}");
    assert_eq!(stranger.kind, ProcessKind::Graphics);
    assert_eq!(stranger.command, None);
    let unknown = &read.gpus[0].unknown[..];
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].starts_with("commands: no process 4194305"), "{unknown:?}");
}

#[test]
fn a_long_list_of_processes_is_read_whole() {
    let mut described = Description::from(vec![gpu(0)]);
    described.host.gpus[0].processes = (0..200)
        .map(|at| Process {
            pid: 4_194_305 + at,
            used_bytes: Some(u64::from(at)),
            ..Process::default()
        })
        .collect();
    let read = read(&described);
    assert_eq!(read.gpus[0].processes.len(), 200);
    assert_eq!(read.gpus[0].processes[0].used_bytes, Some(199));
}

#[test]
fn memory_of_processes_may_be_withheld() {
    let mut described = Description::from(vec![gpu(0)]);
    described.host.gpus[0].processes = vec![own_process(None)];
    let read = read(&described);
    assert_eq!(read.gpus[0].processes[0].used_bytes, None);
    assert!(
        read.gpus[0].unknown[0].starts_with("memory per process: "),
        "{:?}",
        read.gpus[0].unknown
    );
}

#[test]
fn a_slice_has_its_own_memory_and_not_its_parents() {
    let mut parent = gpu(0);
    parent.mig = Mig::Parent;
    parent.utilization_percent = None;
    let slice = |number, gpu_instance, gib| HostGpu {
        index: 0,
        uuid: format!("MIG-{number}"),
        name: "NVIDIA A100-SXM4-80GB MIG 3g.40gb".to_owned(),
        compute_capability: Some((8, 0)),
        memory: memory(gib * GIB, GIB),
        mig: Mig::Instance {
            number,
            gpu_instance: Some(gpu_instance),
            parent_total_bytes: Some(80 * GIB),
        },
        ..HostGpu::default()
    };
    // The driver leaves gaps in the numbers.
    let described = Description::from(vec![parent, slice(0, 2, 40), slice(3, 9, 20), gpu(1)]);
    let read = read(&described);
    assert_eq!(read, described.host);
    let usable: Vec<_> = read.gpus.iter().map(HostGpu::is_usable).collect();
    assert_eq!(usable, [false, true, true, true]);
}

#[test]
fn a_slice_without_a_capability_has_its_gpus() {
    let mut parent = gpu(0);
    parent.mig = Mig::Parent;
    let slice = HostGpu {
        index: 0,
        mig: Mig::Instance { number: 0, gpu_instance: None, parent_total_bytes: None },
        ..HostGpu::default()
    };
    let read = read(&Description::from(vec![parent, slice]));
    assert_eq!(read.gpus[1].compute_capability, Some((8, 0)));
    assert_eq!(read.gpus[1].unknown, ["GPU instance, memory: not supported by this GPU"]);
}

#[test]
fn a_lost_gpu_is_listed_and_the_others_answer() {
    let mut described = Description::from(vec![gpu(0), gpu(1)]);
    described = failing(described, &[("@0", 15)]);
    let read = read(&described);
    assert_eq!(read.gpus[0].unknown, ["everything: the GPU has fallen off the bus"]);
    assert_eq!((read.gpus[0].index, read.gpus[0].memory), (0, None));
    assert_eq!(read.gpus[1], described.host.gpus[1]);
}

#[test]
fn every_figure_may_be_missing() {
    let described = Description::from(vec![HostGpu::default()]);
    let read = read(&described);
    let gpu = &read.gpus[0];
    assert_eq!((gpu.memory, gpu.power_mw, gpu.display), (None, None, None));
    assert_eq!(
        gpu.unknown,
        ["compute capability, display, compute mode, memory, utilization, temperature, power: \
          not supported by this GPU"]
    );
}

#[test]
fn older_drivers_are_asked_in_the_older_way() {
    let mut described = Description::from(vec![gpu(0)]);
    described.host.gpus[0].processes = vec![own_process(Some(GIB))];
    let folder = tempfile::tempdir().unwrap();
    let newer = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
    ];
    let driver = FakeDriver::without(folder.path(), &described, &newer);
    let read = open(&driver).expect("an older driver will do").scan();
    let gpu = &read.gpus[0];
    assert_eq!(
        gpu.memory,
        Some(GpuMemory {
            total_bytes: 80 * GIB,
            reserved_bytes: None,
            // What is reserved is not told apart.
            used_bytes: 3 * GIB + (512 << 20),
            free_bytes: 77 * GIB - (512 << 20),
        })
    );
    assert_eq!(gpu.processes[0].used_bytes, Some(GIB));
    assert_eq!(gpu.mig, Mig::Off);
    assert_eq!(gpu.unknown, [""; 0]);
}

#[test]
fn processes_are_asked_for_every_five_seconds_and_memory_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut described = Description::from(vec![gpu(0)]);
    let driver = FakeDriver::new(folder.path(), &described);
    let mut sampler = open(&driver).unwrap();
    let start = Instant::now();
    assert_eq!(sampler.sample(start).gpus[0].processes.len(), 0);

    let now = &mut described.host.gpus[0];
    now.memory = memory(80 * GIB, 9 * GIB);
    now.temperature_c = None;
    now.processes = vec![own_process(Some(6 * GIB))];
    driver.describe(&described);
    let soon = sampler.sample(start + Duration::from_secs(4));
    assert_eq!(soon.gpus[0].memory, memory(80 * GIB, 9 * GIB));
    assert_eq!(soon.gpus[0].processes.len(), 0);
    assert_eq!(soon.gpus[0].unknown, ["temperature: not supported by this GPU"]);
    let later = sampler.sample(start + Duration::from_secs(5));
    assert_eq!(later.gpus[0].processes.len(), 1);

    driver.describe(&failing(described, &[("@0", 15)]));
    let lost = sampler.sample(start + Duration::from_secs(6));
    assert_eq!(lost.gpus[0].memory, None);
    assert_eq!(lost.gpus[0].name, "NVIDIA A100-SXM4-80GB");
    assert_eq!(lost.gpus[0].unknown, ["everything: the GPU has fallen off the bus"]);
}

#[test]
fn why_there_is_no_driver_is_distinguished() {
    let missing = Sampler::open_library("/nonexistent/libnvidia-ml.so.1".as_ref());
    let missing = missing.expect_err("there is no such file");
    assert!(matches!(missing, DriverUnavailable::LibraryMissing { .. }), "{missing:?}");
    let error = Error::from(missing);
    assert_eq!(error.kind(), ErrorKind::NoDriver);
    assert_eq!(error.message(), "`/nonexistent/libnvidia-ml.so.1` cannot be opened");

    let folder = tempfile::tempdir().unwrap();
    let driver = FakeDriver::new(folder.path(), &Description::from(vec![]));
    for (code, expected) in [
        (4, DriverUnavailable::NoPermission),
        (8, DriverUnavailable::NoPower),
        (9, DriverUnavailable::NotLoaded),
        (15, DriverUnavailable::GpuLost),
        (18, DriverUnavailable::VersionMismatch),
        (999, DriverUnavailable::Other("an internal driver error occurred".to_owned())),
    ] {
        driver.describe(&failing(Description::from(vec![]), &[("nvmlInit_v2", code)]));
        assert_eq!(open(&driver).err(), Some(expected));
    }

    // Some library, but not NVML.
    let folder = tempfile::tempdir().unwrap();
    let other = FakeDriver::without(folder.path(), &Description::from(vec![]), &["nvmlInit_v2"]);
    assert!(matches!(open(&other), Err(DriverUnavailable::TooOld { .. })));
}
