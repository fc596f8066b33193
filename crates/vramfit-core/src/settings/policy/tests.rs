//! Each rule of the policy; the laws that hold for all of them are in `tests/settings_laws.rs`.

use super::*;
use crate::error::ErrorKind;

const NEW: Version = Version::new(0, 10, 2);
const OLD: Version = Version::new(0, 4, 31);

fn with(policy: Policy, version: Version, environment: &[(&str, &str)]) -> Result<Assignments> {
    told(&policy, Some(version), environment)
}

fn told(
    policy: &Policy,
    version: Option<Version>,
    environment: &[(&str, &str)],
) -> Result<Assignments> {
    variables_for(policy, version, |name| {
        environment
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

/// What is set, without the reasons.
fn values(done: &Assignments) -> Vec<(&str, &str)> {
    done.set.iter().map(|set| (set.name, &*set.value)).collect()
}

fn share(share: Share) -> Policy {
    Policy {
        share: Some(share),
        ..Policy::default()
    }
}

#[test]
fn nothing_wanted_is_nothing_done() {
    for environment in [&[][..], &[(FRACTION, "0.5")], &[(OLD_FRACTION, "0.5")]] {
        let done = with(Policy::default(), NEW, environment).unwrap();
        assert_eq!(done, Assignments::default(), "{environment:?}");
    }
}

#[test]
fn the_fraction_has_the_name_that_the_version_reads() {
    for (version, name) in [
        (OLD, OLD_FRACTION),
        (Version::new(0, 4, 32), OLD_FRACTION),
        (Version::new(0, 4, 33), FRACTION),
        (NEW, FRACTION),
    ] {
        let done = with(share(Share::Fraction(0.9)), version, &[]).unwrap();
        assert_eq!(values(&done), [(name, "0.9")], "{version}");
        assert!(done.remove.is_empty() && done.notes.is_empty(), "{version}");
    }
}

#[test]
fn the_other_name_is_removed_and_told() {
    let done = with(share(Share::Fraction(0.5)), NEW, &[(OLD_FRACTION, "0.8")]).unwrap();
    assert_eq!(done.remove, [OLD_FRACTION]);
    assert!(done.notes[0].contains("was 0.8"), "{:?}", done.notes);
    let done = with(share(Share::Fraction(0.5)), OLD, &[(FRACTION, "0.8")]).unwrap();
    assert_eq!(done.remove, [FRACTION]);
    assert!(
        done.notes[0].contains("does not read it"),
        "{:?}",
        done.notes
    );
}

#[test]
fn a_pair_in_the_environment_is_parted_where_jax_refuses_it() {
    let both = [(FRACTION, "0.5"), (OLD_FRACTION, "0.8")];
    assert_eq!(
        with(Policy::default(), NEW, &both).unwrap().remove,
        [OLD_FRACTION]
    );
    assert!(
        with(Policy::default(), OLD, &both)
            .unwrap()
            .remove
            .is_empty()
    );
    // JAX takes an empty value as unset.
    let empty = [(FRACTION, "0.5"), (OLD_FRACTION, "")];
    assert!(
        with(Policy::default(), NEW, &empty)
            .unwrap()
            .remove
            .is_empty()
    );
}

#[test]
fn a_changed_value_is_told_and_an_equal_one_is_not() {
    let told = |old| {
        with(share(Share::Fraction(0.5)), NEW, &[(FRACTION, old)])
            .unwrap()
            .notes
            .len()
    };
    assert_eq!((told("0.8"), told("0.5"), told("")), (1, 0, 0));
}

#[test]
fn impossible_shares_are_refused() {
    for part in [0.0, -0.5, 1.5, 100.0, f64::NAN, f64::INFINITY] {
        let error = with(share(Share::Fraction(part)), NEW, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{part}");
    }
    let hint = with(share(Share::Fraction(90.0)), NEW, &[]).unwrap_err();
    assert!(hint.hint_text().unwrap().contains("0.9"));
    for limit_bytes in [0, 101] {
        let limit = Share::Limit {
            limit_bytes,
            total_bytes: 100,
        };
        assert!(with(share(limit), NEW, &[]).is_err(), "{limit_bytes}");
    }
}

#[test]
fn more_than_the_card_needs_unified_memory() {
    let unified = [("TF_FORCE_UNIFIED_MEMORY", "1")];
    let done = with(share(Share::Fraction(4.0)), NEW, &unified).unwrap();
    assert_eq!(values(&done), [(FRACTION, "4")]);
}

#[test]
fn allocators_come_with_versions() {
    let ask = |kind, version: &str| {
        let policy = Policy {
            allocator: Some(kind),
            ..Policy::default()
        };
        with(policy, version.parse().unwrap(), &[])
    };
    for (kind, before, first) in [
        (Kind::Vmm, "0.9.2", "0.10.0"),
        (Kind::Address, "0.10.2", "0.11.0"),
    ] {
        let error = ask(kind, before).unwrap_err();
        assert!(error.message().contains(first), "{error}");
        assert_eq!(
            values(&ask(kind, first).unwrap()),
            [(ALLOCATOR, kind.name())]
        );
    }
    assert!(ask(Kind::CudaAsync, "0.4.26").is_ok());
}

#[test]
fn what_an_allocator_ignores_is_told() {
    let notes = |policy, environment: &[(&str, &str)]| {
        with(policy, NEW, environment).unwrap().notes.join("; ")
    };
    let fraction = share(Share::Fraction(0.5));
    let platform = Policy {
        allocator: Some(Kind::Platform),
        ..fraction
    };
    assert!(notes(platform, &[]).contains("neither a fraction nor"));
    assert!(notes(fraction, &[(ALLOCATOR, "Platform")]).contains("neither a fraction nor"));
    assert!(notes(fraction, &[(ALLOCATOR, "cuda_async")]).contains("not as a limit"));
    assert_eq!(notes(fraction, &[]), "");
}

#[test]
fn preallocation_is_written_in_words_that_jax_reads() {
    for (on, text) in [(true, "true"), (false, "false")] {
        let policy = Policy {
            preallocate: Some(on),
            ..Policy::default()
        };
        assert_eq!(
            values(&with(policy, NEW, &[]).unwrap()),
            [(PREALLOCATE, text)]
        );
    }
}

#[test]
fn create_options_that_win_are_told() {
    let options = [(CREATE_OPTIONS, "allocator:platform;num_nodes:1")];
    let policy = Policy {
        allocator: Some(Kind::Bfc),
        ..Policy::default()
    };
    let done = with(policy, NEW, &options).unwrap();
    assert!(
        done.notes.iter().any(|note| note.contains(CREATE_OPTIONS)),
        "{:?}",
        done.notes
    );
}

const GIB: u64 = 1 << 30;

const ROOM: Room = Room {
    total_bytes: 16 * GIB,
    held_bytes: 0,
    outside_bytes: GIB,
};

/// A policy that mends what it finds, on a card of 16 GiB.
const MENDING: Policy = Policy {
    share: None,
    allocator: None,
    preallocate: None,
    require_gpu: false,
    remat: None,
    x64: None,
    jit: None,
    host_devices: None,
    room: Some(ROOM),
    mend: true,
};

#[test]
fn a_policy_that_mends_leaves_a_sound_environment_alone() {
    for environment in [
        &[][..],
        &[(FRACTION, "0.5"), (PREALLOCATE, "false")],
        &[
            (OLD_FRACTION, "0.9"),
            (PREALLOCATE, "true"),
            (ALLOCATOR, "platform"),
        ],
        &[
            ("XLA_FLAGS", "--xla_gpu_autotune_level=0"),
            ("JAX_PLATFORMS", "cpu"),
        ],
    ] {
        let done = with(MENDING, NEW, environment).unwrap();
        assert_eq!(done, Assignments::default(), "{environment:?}");
    }
}

#[test]
fn the_invented_limit_is_made_true() {
    let limit = ("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592");
    let done = with(MENDING, NEW, &[limit, (OLD_FRACTION, "0.95")]).unwrap();
    assert_eq!(values(&done), [(FRACTION, "0.5")]);
    assert_eq!(done.remove, [OLD_FRACTION]);
    assert!(
        done.notes[0].contains("read by no release"),
        "{:?}",
        done.notes
    );
    // A fraction that asks for less holds.
    let done = with(MENDING, NEW, &[limit, (FRACTION, "0.25")]).unwrap();
    assert!(
        done.set.is_empty() && done.notes[0].contains("4.0 GiB anyway"),
        "{done:?}"
    );
    // Without the card nothing can be made of it; an option of ours goes before it.
    let blind = Policy {
        room: None,
        ..MENDING
    };
    let done = with(blind, NEW, &[limit]).unwrap();
    assert!(
        done.set.is_empty() && done.notes[0].contains("`--gpu`"),
        "{done:?}"
    );
    let asked = Policy {
        share: Some(Share::Fraction(0.9)),
        ..MENDING
    };
    let done = with(asked, NEW, &[limit]).unwrap();
    assert_eq!(values(&done), [(FRACTION, "0.9")]);
    assert!(done.notes[0].contains("yield to the option"), "{done:?}");
    let word = with(
        MENDING,
        NEW,
        &[("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "lots")],
    )
    .unwrap();
    assert!(
        word.set.is_empty() && word.notes[0].contains("no amount"),
        "{word:?}"
    );
}

/// All eight variables of a recipe that is copied from project to project.
const RECIPE: [(&str, &str); 8] = [
    (PREALLOCATE, "true"),
    (ALLOCATOR, "platform"),
    (OLD_FRACTION, "0.95"),
    ("JAX_PLATFORM_NAME", "gpu"),
    ("XLA_FLAGS", "--xla_force_host_platform_device_count=1"),
    ("JAX_DISABLE_JIT", "false"),
    ("JAX_ENABLE_X64", "false"),
    ("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592"),
];

#[test]
fn a_limit_that_the_allocator_cannot_keep_is_an_error_and_a_choice_ends_it() {
    let error = with(MENDING, NEW, &RECIPE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("at most 8.0 GiB"), "{error}");
    assert!(error.message().contains("keeps to no limit"), "{error}");
    assert!(error.hint_text().unwrap().starts_with("choose"), "{error}");
    // `cuda_async` keeps its pool at the amount, and goes beyond it.
    let async_pool = [RECIPE[7], (ALLOCATOR, "cuda_async")];
    assert!(with(MENDING, NEW, &async_pool).is_err());
    // Chosen by an option, the allocator wins and nothing is said to be limited.
    let chosen = Policy {
        allocator: Some(Kind::Platform),
        ..MENDING
    };
    let done = with(chosen, NEW, &RECIPE).unwrap();
    assert_eq!(done.value(FRACTION), None, "{done:?}");
    assert!(
        done.notes
            .iter()
            .any(|note| note.contains("yield to `platform`"))
    );
    // With a pool the same limit holds.
    let pooled = Policy {
        allocator: Some(Kind::Bfc),
        ..MENDING
    };
    let done = with(pooled, NEW, &RECIPE).unwrap();
    assert_eq!(done.value(FRACTION), Some("0.5"));
}

#[test]
fn amounts_that_an_allocator_without_a_pool_cannot_keep_are_refused() {
    let amounts = [
        Share::Limit {
            limit_bytes: GIB,
            total_bytes: 16 * GIB,
        },
        Share::Divided {
            processes: 2,
            keep_free_bytes: 0,
            room: Some(ROOM),
        },
    ];
    for amount in amounts {
        for kind in [Kind::Platform, Kind::CudaAsync, Kind::Bfc] {
            let policy = Policy {
                allocator: Some(kind),
                ..share(amount)
            };
            let done = with(policy, NEW, &[]);
            assert_eq!(done.is_err(), kind == Kind::Platform, "{kind:?} {amount:?}");
        }
        let held = with(share(amount), NEW, &[(ALLOCATOR, "platform")]).unwrap_err();
        let hint = held.hint_text().unwrap();
        assert!(hint.contains("--allocator default"), "{hint}");
    }
}

#[test]
fn words_for_off_that_mean_on_are_put_right() {
    for word in ["FALSE", "no", "off", " false"] {
        let done = with(MENDING, NEW, &[(PREALLOCATE, word)]).unwrap();
        assert_eq!(values(&done), [(PREALLOCATE, "false")], "{word}");
    }
    let done = with(MENDING, NEW, &[(ALLOCATOR, "")]).unwrap();
    assert_eq!(values(&done), [(ALLOCATOR, "default")]);
}

#[test]
fn one_name_of_the_fraction_is_left_where_the_release_is_not_known() {
    let unknown = |environment| told(&MENDING, None, environment).unwrap();
    let both = unknown(&[(FRACTION, "0.5"), (OLD_FRACTION, "0.8")]);
    assert_eq!(values(&both), [(OLD_FRACTION, "0.5")]);
    assert_eq!(both.remove, [FRACTION]);
    assert_eq!(unknown(&[(FRACTION, "0.5")]), Assignments::default());
    let asked = Policy {
        share: Some(Share::Fraction(0.25)),
        ..MENDING
    };
    let done = told(&asked, None, &[(FRACTION, "0.5")]).unwrap();
    assert_eq!(values(&done), [(OLD_FRACTION, "0.25")]);
    assert_eq!(done.remove, [FRACTION]);
    // An old release would not see the new name at all.
    let old = with(MENDING, OLD, &[(FRACTION, "0.5")]).unwrap();
    assert_eq!(values(&old), [(OLD_FRACTION, "0.5")]);
}

#[test]
fn a_gpu_is_required_by_naming_the_platform() {
    let asked = Policy {
        require_gpu: true,
        ..Policy::default()
    };
    for (held, set) in [
        ("", Some("cuda,cpu")),
        ("cpu", Some("cuda,cpu")),
        ("cpu,cuda", Some("cuda,cpu")),
        ("cuda", None),
        ("gpu,cpu", None),
    ] {
        let done = with(asked, NEW, &[("JAX_PLATFORMS", held)]).unwrap();
        assert_eq!(done.value("JAX_PLATFORMS"), set, "{held}");
    }
    // JAX passes over `cuda` where no device file is visible, unless it is the default by name.
    for (held, set) in [("", Some("cuda")), ("cpu", Some("cuda")), ("gpu", None)] {
        let done = with(asked, NEW, &[("JAX_PLATFORM_NAME", held)]).unwrap();
        assert_eq!(done.value("JAX_PLATFORM_NAME"), set, "{held}");
    }
    let amd = with(asked, NEW, &[("JAX_PLATFORMS", "rocm,cpu")]).unwrap();
    assert_eq!(amd, Assignments::default());
}

#[test]
fn the_deprecated_platform_name_gets_what_it_means() {
    let done = with(MENDING, NEW, &[("JAX_PLATFORM_NAME", "gpu")]).unwrap();
    assert_eq!(values(&done), [("JAX_PLATFORMS", "cuda,cpu")]);
    assert!(done.notes[0].contains("deprecated"), "{done:?}");
    // Both together are what requiring a GPU sets: nothing is left to say.
    let both = [("JAX_PLATFORM_NAME", "gpu"), ("JAX_PLATFORMS", "cuda,cpu")];
    assert_eq!(with(MENDING, NEW, &both).unwrap(), Assignments::default());
    let chosen = [("JAX_PLATFORM_NAME", "gpu"), ("JAX_PLATFORMS", "cpu")];
    let done = with(MENDING, NEW, &chosen).unwrap();
    assert!(
        done.set.is_empty() && done.notes[0].contains("deprecated"),
        "{done:?}"
    );
    let cpu = with(MENDING, NEW, &[("JAX_PLATFORM_NAME", "cpu")]).unwrap();
    assert!(
        cpu.set.is_empty() && cpu.notes[0].contains("stays off"),
        "{cpu:?}"
    );
}

const REMAT: &str = "JAX_COMPILER_ENABLE_REMAT_PASS";

fn remat(on: bool) -> Policy {
    Policy {
        remat: Some(on),
        ..Policy::default()
    }
}

#[test]
fn rematerialisation_has_the_name_that_the_version_reads() {
    let (old, first) = (Version::new(0, 4, 33), Version::new(0, 4, 34));
    let flag = "--xla_disable_hlo_passes=rematerialization";
    let done = with(remat(false), old, &[]).unwrap();
    assert_eq!(values(&done), [("XLA_FLAGS", flag)]);
    assert_eq!(
        told(&remat(false), None, &[]).unwrap(),
        done,
        "a flag that all have"
    );
    let done = with(remat(false), first, &[]).unwrap();
    assert_eq!(values(&done), [(REMAT, "false")]);
    assert_eq!(
        values(&with(remat(true), first, &[]).unwrap()),
        [(REMAT, "true")]
    );
    assert!(
        with(remat(true), old, &[]).unwrap().set.is_empty(),
        "it is on already"
    );
}

#[test]
fn other_disabled_passes_stay_disabled() {
    let users = [
        ("XLA_FLAGS", "--xla_disable_hlo_passes=cse --xla_dump_to=/d"),
        (REMAT, "false"),
    ];
    for version in [NEW, Version::new(0, 11, 0), OLD] {
        let done = with(remat(false), version, &users).unwrap();
        assert_eq!(
            done.value("XLA_FLAGS").unwrap(),
            "--xla_disable_hlo_passes=cse --xla_dump_to=/d \
             --xla_disable_hlo_passes=cse,rematerialization",
            "{version}"
        );
        let left_on = (version != OLD).then_some("true");
        assert_eq!(done.value(REMAT), left_on, "off, it would drop `cse`");
    }
    // Once that was put right in JAX, the variable is enough.
    let done = with(remat(false), Version::new(0, 12, 0), &users[..1]).unwrap();
    assert_eq!(values(&done), [(REMAT, "false")]);
    let off = [("XLA_FLAGS", "--xla_disable_hlo_passes=rematerialization")];
    let done = with(remat(true), NEW, &off).unwrap();
    assert!(
        done.notes.iter().any(|note| note.contains("that stays")),
        "{done:?}"
    );
}

#[test]
fn flags_of_the_users_stay_and_win() {
    let devices = Policy {
        host_devices: Some(4),
        ..Policy::default()
    };
    let flag = "--xla_force_host_platform_device_count";
    let done = with(devices, NEW, &[("XLA_FLAGS", "--a=1")]).unwrap();
    assert_eq!(done.value("XLA_FLAGS").unwrap(), format!("--a=1 {flag}=4"));
    let done = with(devices, NEW, &[("XLA_FLAGS", &*format!("{flag}=8"))]).unwrap();
    assert!(
        done.set.is_empty() && done.notes[0].contains("=8` already"),
        "{done:?}"
    );
    let done = with(devices, NEW, &[("XLA_FLAGS", &*format!("{flag}=4"))]).unwrap();
    assert_eq!(done, Assignments::default());
    let done = with(devices, NEW, &[("XLA_FLAGS", "flags.txt")]).unwrap();
    assert!(
        done.set.is_empty() && done.notes[0].contains("names a file"),
        "{done:?}"
    );
}

#[test]
fn truth_is_written_in_words_that_jax_reads() {
    let policy = Policy {
        x64: Some(false),
        jit: Some(true),
        ..Policy::default()
    };
    let done = with(policy, NEW, &[]).unwrap();
    assert_eq!(
        values(&done),
        [("JAX_ENABLE_X64", "false"), ("JAX_DISABLE_JIT", "false")]
    );
}

#[test]
fn what_a_share_leaves_is_told_in_bytes() {
    let of = |part, held_bytes| {
        let policy = Policy {
            room: Some(Room { held_bytes, ..ROOM }),
            ..share(Share::Fraction(part))
        };
        with(policy, NEW, &[]).unwrap()
    };
    let done = of(0.95, 0);
    assert!(done.set[0].reason.contains("leaves 819.2 MiB"), "{done:?}");
    assert!(done.notes[0].contains("less than the 1.0 GiB"), "{done:?}");
    let done = of(0.75, 4 * GIB);
    assert!(done.notes[0].contains("others hold 4.0 GiB"), "{done:?}");
    assert!(of(0.75, 2 * GIB).notes.is_empty());
    // One that the environment sets is judged alike.
    let policy = Policy {
        room: Some(ROOM),
        ..Policy::default()
    };
    let done = with(policy, NEW, &[(OLD_FRACTION, "0.95")]).unwrap();
    assert!(
        done.notes[0].contains("0.95 is set: 819.2 MiB beside"),
        "{done:?}"
    );
}

#[test]
fn a_divided_card_says_what_was_taken_off() {
    let policy = |room| Policy {
        share: Some(Share::Divided {
            processes: 2,
            keep_free_bytes: GIB,
            room,
        }),
        room,
        ..Policy::default()
    };
    let done = with(policy(Some(ROOM)), NEW, &[]).unwrap();
    // (16 - 1 - 2 * 1) / 2 of 16 GiB.
    assert_eq!(values(&done), [(FRACTION, "0.40625")]);
    for part in [
        "6.5 GiB of",
        "2 processes",
        "1.0 GiB each",
        "1.0 GiB kept free",
    ] {
        assert!(done.set[0].reason.contains(part), "{done:?} lacks {part}");
    }
    let error = with(policy(None), NEW, &[]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("--gpu"), "{error}");
}

#[test]
fn what_cuda_async_makes_of_preallocation_is_told() {
    let policy = Policy {
        allocator: Some(Kind::CudaAsync),
        ..Policy::default()
    };
    let amount = ("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "1073741824");
    let told =
        |environment: &[(&str, &str)]| with(policy, NEW, environment).unwrap().notes.join("; ");
    assert!(told(&[amount]).contains("has no effect"));
    assert!(told(&[amount, (PREALLOCATE, "false")]).contains("keeps nothing"));
    assert_eq!(told(&[]), "");
    let share = Policy {
        share: Some(Share::Fraction(0.5)),
        preallocate: Some(false),
        ..policy
    };
    let notes = with(share, NEW, &[]).unwrap().notes.join("; ");
    assert!(notes.contains("the share has no effect"), "{notes}");
}
