//! Card memory through CUDA's driver library, with a stand-in that keeps the books.

use driver_standin::{Description, Standin};
use vramfit_core::machine::{Card, Machine, Memory, Mig};
use vramfit_gpu::{Absence, Driver, Free, Sampler, Wrong};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn card(index: u32, uuid: &str) -> Card {
    Card {
        index,
        uuid: uuid.to_owned(),
        name: "Tesla T4".to_owned(),
        memory: Some(Memory {
            total_bytes: 16 * GIB,
            reserved_bytes: Some(GIB / 2),
            used_bytes: 0,
            free_bytes: 16 * GIB - GIB / 2,
        }),
        ..Card::default()
    }
}

fn machine(cards: Vec<Card>) -> Description {
    Description {
        machine: Machine {
            cards,
            ..Machine::default()
        },
        context_bytes: 100 * MIB,
        ..Description::default()
    }
}

fn one_card() -> Description {
    machine(vec![card(0, "GPU-0a1b2c3d-1111-2222-3333-444455556666")])
}

fn stand_in(description: &Description) -> (tempfile::TempDir, Standin) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let standin = Standin::new(folder.path(), description);
    (folder, standin)
}

fn open(standin: &Standin) -> Driver {
    Driver::open_library(standin.library().as_os_str()).expect("the stand-in answers")
}

fn failing(function: &str, code: u32) -> Description {
    let mut description = one_card();
    description.errors.insert(function.to_owned(), code);
    description
}

#[test]
fn cards_are_those_that_a_program_can_be_given() {
    let mut parent = card(0, "GPU-00000000-0000-0000-0000-000000000000");
    parent.mig = Mig::Parent;
    let mut slice = card(0, "MIG-0a1b2c3d-1111-2222-3333-444455556666");
    slice.mig = Mig::Slice {
        number: 0,
        gpu_instance: Some(1),
        parent_total_bytes: Some(16 * GIB),
    };
    let (_folder, standin) = stand_in(&machine(vec![parent, slice]));
    let cards = open(&standin).cards().expect("cards");
    assert_eq!(cards.len(), 1);
    assert_eq!(cards[0].index, 0);
    assert_eq!(cards[0].uuid, "0a1b2c3d-1111-2222-3333-444455556666");
    assert_eq!(cards[0].name, "Tesla T4");
    assert_eq!(cards[0].total_bytes, 16 * GIB - GIB / 2);
}

#[test]
fn what_is_taken_is_gone_until_it_is_dropped() {
    let (_folder, standin) = stand_in(&one_card());
    let driver = open(&standin);
    let mut sampler = Sampler::open_library(standin.library().as_os_str()).expect("NVML");
    let all = 16 * GIB - GIB / 2;

    let mut memory = driver.enter(0).expect("a context");
    let free = |free_bytes| Free {
        free_bytes,
        total_bytes: all,
    };
    assert_eq!(memory.free().expect("free"), free(all - 100 * MIB));
    assert!(memory.take(8 * GIB).expect("room"));
    assert!(memory.take(1).expect("room"));
    assert_eq!(memory.held_bytes(), 8 * GIB + 1);
    // A card hands out pages of 2 MiB.
    let left = all - 102 * MIB - 8 * GIB;
    assert_eq!(memory.free().expect("free"), free(left));
    assert!(!memory.take(8 * GIB).expect("an answer"), "it is full");
    assert_eq!(memory.held_bytes(), 8 * GIB + 1);

    // NVML sees the same, and who it is.
    let card = &sampler.machine().cards[0];
    assert_eq!(card.memory.map(|memory| memory.free_bytes), Some(left));
    assert_eq!(card.processes[0].pid, std::process::id());
    assert_eq!(card.processes[0].used_bytes, Some(8 * GIB + 102 * MIB));

    drop(memory);
    let card = &sampler.machine().cards[0];
    assert_eq!(card.memory.map(|memory| memory.free_bytes), Some(all));
    let sum: i64 = standin.book().changes().iter().map(|change| change.2).sum();
    assert_eq!(sum, 0);
}

#[test]
fn memory_that_keeps_nothing_is_noticed() {
    let mut description = one_card();
    let (_folder, standin) = stand_in(&description);
    let mut memory = open(&standin).enter(0).expect("a context");
    assert!(memory.take(200 * MIB).expect("room"));
    assert!(memory.take(10).expect("room"));
    assert_eq!(memory.verify().expect("an answer"), None);

    description.reads_zeros = true;
    standin.describe(&description);
    let wrong = memory.verify().expect("an answer");
    assert_eq!(
        wrong,
        Some(Wrong {
            offset_bytes: 0,
            written: 0x9E37_79B1,
            read: 0
        })
    );
}

#[test]
fn errors_carry_cudas_own_words() {
    let (_folder, standin) = stand_in(&failing("cuDevicePrimaryCtxRetain", 46));
    let error = open(&standin).enter(0).expect_err("the card is taken");
    assert_eq!(error.message(), "GPU 0 cannot be used");
    assert_eq!(
        error.cause_text(),
        Some(
            "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE (CUDA-capable device(s) \
             is/are busy or unavailable)"
        )
    );

    let (_folder, standin) = stand_in(&failing("cuMemAlloc_v2", 214));
    let mut memory = open(&standin).enter(0).expect("a context");
    let error = memory.take(GIB).expect_err("the memory is broken");
    let cause = error.cause_text().expect("CUDA's words");
    assert!(cause.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{cause}");

    let (_folder, standin) = stand_in(&failing("cuDeviceGetCount", 12345));
    let error = open(&standin).cards().expect_err("an unknown error");
    let cause = error.cause_text().expect("a number at least");
    assert!(cause.contains("error 12345"), "{cause}");
}

#[test]
fn a_full_card_has_no_room_for_a_context() {
    let mut description = one_card();
    description.context_bytes = 20 * GIB;
    let (_folder, standin) = stand_in(&description);
    let error = open(&standin).enter(0).expect_err("it is full");
    let hint = error.hint_text().expect("a hint");
    assert!(hint.contains("not even a context fits"), "{hint}");
}

#[test]
fn why_cuda_does_not_start_is_told_apart() {
    let missing = Driver::open_library("/nonexistent/libcuda.so.1".as_ref()).err();
    assert!(matches!(missing, Some(Absence::LibraryMissing { .. })));
    let start = |description: &Description| {
        let (_folder, standin) = stand_in(description);
        Driver::open_library(standin.library().as_os_str()).err()
    };
    assert_eq!(start(&machine(vec![])), Some(Absence::NoCards));
    assert_eq!(
        start(&failing("cuInit", 803)),
        Some(Absence::VersionMismatch)
    );
    assert_eq!(start(&failing("cuInit", 800)), Some(Absence::NoPermission));
    assert_eq!(
        start(&failing("cuInit", 999)),
        Some(Absence::Other(
            "cuInit: CUDA_ERROR_UNKNOWN (unknown error)".to_owned()
        ))
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let old = Standin::without(folder.path(), &one_card(), &["cuMemGetInfo_v2"]);
    let absence = Driver::open_library(old.library().as_os_str()).err();
    let Some(Absence::TooOld { function, .. }) = absence else {
        panic!("{absence:?}");
    };
    assert_eq!(function, "cuMemGetInfo_v2");
}
