//! GPU memory through the CUDA driver library, with a fake driver.

use fake_driver::{Description, FakeDriver, memory, t4};
use vramfit_gpu::{Driver, DriverUnavailable, MemoryInfo, Mismatch, Sampler};
use vramfit_model::host::{Host, HostGpu, Mig};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn gpu(index: u32, uuid: &str) -> HostGpu {
    HostGpu { index, uuid: uuid.to_owned(), ..t4(memory(16 * GIB, GIB / 2, 0)) }
}

fn describe_host(gpus: Vec<HostGpu>) -> Description {
    Description {
        host: Host { gpus, ..Host::default() },
        context_bytes: 100 * MIB,
        ..Description::default()
    }
}

fn one_gpu() -> Description {
    describe_host(vec![gpu(0, "GPU-0a1b2c3d-1111-2222-3333-444455556666")])
}

fn fake_driver_with(description: &Description) -> (tempfile::TempDir, FakeDriver) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fake = FakeDriver::new(folder.path(), description);
    (folder, fake)
}

fn open(fake: &FakeDriver) -> Driver {
    Driver::open_library(fake.library().as_os_str()).expect("the fake driver answers")
}

fn failing(function: &str, code: u32) -> Description {
    let mut description = one_gpu();
    description.errors.insert(function.to_owned(), code);
    description
}

#[test]
fn gpus_are_those_that_a_program_can_be_given() {
    let mut parent = gpu(0, "GPU-00000000-0000-0000-0000-000000000000");
    parent.mig = Mig::Parent;
    let mut slice = gpu(0, "MIG-0a1b2c3d-1111-2222-3333-444455556666");
    slice.mig =
        Mig::Instance { number: 0, gpu_instance: Some(1), parent_total_bytes: Some(16 * GIB) };
    let (_folder, fake) = fake_driver_with(&describe_host(vec![parent, slice]));
    let gpus = open(&fake).devices().expect("devices");
    assert_eq!(gpus.len(), 1);
    assert_eq!(gpus[0].index, 0);
    assert_eq!(gpus[0].uuid, "0a1b2c3d-1111-2222-3333-444455556666");
    assert_eq!(gpus[0].name, "Tesla T4");
    assert_eq!(gpus[0].total_bytes, 16 * GIB - GIB / 2);
}

#[test]
fn what_is_taken_is_gone_until_it_is_dropped() {
    let (_folder, fake) = fake_driver_with(&one_gpu());
    let driver = open(&fake);
    let mut sampler = Sampler::open_library(fake.library().as_os_str()).expect("NVML");
    let all = 16 * GIB - GIB / 2;

    let mut memory = driver.create_context(0).expect("a context");
    let free = |free_bytes| MemoryInfo { free_bytes, total_bytes: all };
    assert_eq!(memory.memory_info().expect("free"), free(all - 100 * MIB));
    assert!(memory.allocate(8 * GIB).expect("room"));
    assert!(memory.allocate(1).expect("room"));
    assert_eq!(memory.allocated_bytes(), 8 * GIB + 1);
    // A GPU hands out pages of 2 MiB.
    let left = all - 102 * MIB - 8 * GIB;
    assert_eq!(memory.memory_info().expect("free"), free(left));
    assert!(!memory.allocate(8 * GIB).expect("an answer"), "it is full");
    assert_eq!(memory.allocated_bytes(), 8 * GIB + 1);

    // NVML sees the same, and who it is.
    let gpu = &sampler.scan().gpus[0];
    assert_eq!(gpu.memory.map(|memory| memory.free_bytes), Some(left));
    assert_eq!(gpu.processes[0].pid, std::process::id());
    assert_eq!(gpu.processes[0].used_bytes, Some(8 * GIB + 102 * MIB));

    drop(memory);
    let gpu = &sampler.scan().gpus[0];
    assert_eq!(gpu.memory.map(|memory| memory.free_bytes), Some(all));
    let sum: i64 = fake.device_allocations().changes().iter().map(|change| change.2).sum();
    assert_eq!(sum, 0);
}

#[test]
fn memory_that_keeps_nothing_is_noticed() {
    let mut description = one_gpu();
    let (_folder, fake) = fake_driver_with(&description);
    let mut memory = open(&fake).create_context(0).expect("a context");
    assert!(memory.allocate(200 * MIB).expect("room"));
    assert!(memory.allocate(10).expect("room"));
    assert_eq!(memory.verify().expect("an answer"), None);

    description.reads_zeros = true;
    fake.describe(&description);
    let wrong = memory.verify().expect("an answer");
    assert_eq!(wrong, Some(Mismatch { offset_bytes: 0, written: 0x9E37_79B1, read: 0 }));
}

#[test]
fn errors_carry_cudas_own_words() {
    let (_folder, fake) = fake_driver_with(&failing("cuDevicePrimaryCtxRetain", 46));
    let error = open(&fake).create_context(0).expect_err("the GPU is taken");
    assert_eq!(error.message(), "GPU 0 cannot be used");
    assert_eq!(
        error.cause_text(),
        Some(
            "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE (CUDA-capable device(s) \
             is/are busy or unavailable)"
        )
    );

    let (_folder, fake) = fake_driver_with(&failing("cuMemAlloc_v2", 214));
    let mut memory = open(&fake).create_context(0).expect("a context");
    let error = memory.allocate(GIB).expect_err("the memory is broken");
    let cause = error.cause_text().expect("CUDA's words");
    assert!(cause.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{cause}");

    let (_folder, fake) = fake_driver_with(&failing("cuDeviceGetCount", 12345));
    let error = open(&fake).devices().expect_err("an unknown error");
    let cause = error.cause_text().expect("a number at least");
    assert!(cause.contains("error 12345"), "{cause}");
}

#[test]
fn a_full_gpu_has_no_room_for_a_context() {
    let mut description = one_gpu();
    description.context_bytes = 20 * GIB;
    let (_folder, fake) = fake_driver_with(&description);
    let error = open(&fake).create_context(0).expect_err("it is full");
    let hint = error.hint_text().expect("a hint");
    assert!(hint.contains("not enough free memory for a CUDA context"), "{hint}");
}

#[test]
fn why_cuda_does_not_start_is_distinguished() {
    let missing = Driver::open_library("/nonexistent/libcuda.so.1".as_ref()).err();
    assert!(matches!(missing, Some(DriverUnavailable::LibraryMissing { .. })));
    let start = |description: &Description| {
        let (_folder, fake) = fake_driver_with(description);
        Driver::open_library(fake.library().as_os_str()).err()
    };
    let unknown = "cuInit: CUDA_ERROR_UNKNOWN (unknown error)".to_owned();
    for (description, expected) in [
        (describe_host(vec![]), DriverUnavailable::NoGpus),
        (failing("cuInit", 803), DriverUnavailable::VersionMismatch),
        (failing("cuInit", 800), DriverUnavailable::NoPermission),
        (failing("cuInit", 999), DriverUnavailable::Other(unknown)),
    ] {
        assert_eq!(start(&description), Some(expected));
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    let old = FakeDriver::without(folder.path(), &one_gpu(), &["cuMemGetInfo_v2"]);
    let absence = Driver::open_library(old.library().as_os_str()).err();
    let Some(DriverUnavailable::TooOld { function, .. }) = absence else {
        panic!("{absence:?}");
    };
    assert_eq!(function, "cuMemGetInfo_v2");
}
