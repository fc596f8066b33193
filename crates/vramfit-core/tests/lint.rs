//! The lint against settings seen in the wild, against sound ones, and against anything at all.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vramfit_core::lint::{
    Finding, Moment, Packages, Severity, Surroundings, apply, lint, markdown, mend, rules,
};
use vramfit_core::machine::{Card, ComputeMode, Machine, Memory, Mig, Process, ProcessKind};
use vramfit_core::settings::{self, Version};

const GIB: u64 = 1 << 30;
const NEW: &str = "XLA_CLIENT_MEM_FRACTION";
const OLD: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
const UNIFIED: &str = "TF_FORCE_UNIFIED_MEMORY";

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn with(variables: &[(&str, &str)]) -> Surroundings {
    Surroundings {
        environment: environment(variables),
        jax: Some(Version::new(0, 10, 2)),
        ..Surroundings::default()
    }
}

fn on(card: Card, variables: &[(&str, &str)]) -> Surroundings {
    Surroundings {
        machine: Machine {
            cards: vec![card],
            ..Machine::default()
        },
        ..with(variables)
    }
}

fn h100() -> Card {
    card("NVIDIA H100 80GB HBM3", 84_942_979_072)
}

fn card(name: &str, total_bytes: u64) -> Card {
    Card {
        uuid: "GPU-5a1f".to_owned(),
        name: name.to_owned(),
        memory: Some(Memory {
            total_bytes,
            free_bytes: total_bytes,
            ..Memory::default()
        }),
        ..Card::default()
    }
}

fn ids(surroundings: &Surroundings) -> Vec<&'static str> {
    lint(surroundings).iter().map(|found| found.id).collect()
}

fn only(surroundings: &Surroundings) -> Finding {
    let mut findings = lint(surroundings);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

fn mended(surroundings: &Surroundings, name: &str) -> Option<String> {
    mend(surroundings).remove(name)
}

// The twelve wrong settings that were collected from public issues and projects.

#[test]
fn wrong_01_a_fraction_in_percent_or_copied_from_the_documentation() {
    for (text, id, instead) in [
        ("100", "fraction-out-of-range", None),
        ("75", "fraction-out-of-range", Some("0.75")),
        (".XX", "fraction-not-a-number", None),
        ("75%", "fraction-not-a-number", Some("0.75")),
        ("0,9", "fraction-not-a-number", Some("0.9")),
        ("0", "fraction-out-of-range", None),
        ("-0.5", "fraction-out-of-range", None),
        ("nan", "fraction-out-of-range", None),
        ("1e-60", "fraction-out-of-range", None),
    ] {
        for name in [NEW, OLD] {
            let surroundings = with(&[(name, text)]);
            let finding = only(&surroundings);
            assert_eq!((finding.id, finding.subject.as_str()), (id, name), "{text}");
            assert_eq!(finding.severity, Severity::Error);
            assert_eq!(mended(&surroundings, name).as_deref(), instead, "{text}");
        }
    }
}

#[test]
fn wrong_02_several_times_the_card_without_unified_memory_or_without_a_pool() {
    assert_eq!(only(&with(&[(NEW, "4.0")])).id, "fraction-out-of-range");
    assert_eq!(ids(&with(&[(NEW, "4.0"), (UNIFIED, "1")])), [""; 0]);
    let three = with(&[(NEW, "4.0"), (UNIFIED, "1"), (ALLOCATOR, "platform")]);
    assert_eq!(ids(&three), ["ignored-by-allocator"]);
}

#[test]
fn wrong_03_a_number_for_the_switch_and_a_switch_for_the_number() {
    let swapped = with(&[(PREALLOCATE, "0.5"), (NEW, "true")]);
    assert_eq!(
        BTreeSet::from_iter(ids(&swapped)),
        BTreeSet::from(["fraction-not-a-number", "preallocate-not-a-boolean"])
    );
    let number = with(&[(PREALLOCATE, "0.5")]);
    assert_eq!(only(&number).id, "preallocate-not-a-boolean");
    assert_eq!(mended(&number, NEW).as_deref(), Some("0.5"));
    for off in ["FALSE", "no", "off", "fAlSe", " false"] {
        let surroundings = with(&[(PREALLOCATE, off)]);
        let finding = only(&surroundings);
        assert_eq!(finding.id, "preallocate-not-a-boolean", "{off}");
        assert!(finding.message.contains("on"), "{}", finding.message);
        assert_eq!(mended(&surroundings, PREALLOCATE).as_deref(), Some("false"));
    }
}

#[test]
fn wrong_04_both_names_of_the_fraction() {
    let both = with(&[(NEW, "0.5"), (OLD, "0.8")]);
    let finding = only(&both);
    assert_eq!(
        (finding.id, finding.severity),
        ("two-fractions", Severity::Error)
    );
    assert_eq!(mend(&both), environment(&[(NEW, "0.5")]));
    // Releases that do not know the newer name do not refuse the pair: they ignore it.
    let old = Surroundings {
        jax: Some(Version::new(0, 4, 31)),
        ..both
    };
    assert_eq!(only(&old).id, "not-in-this-release");
    assert_eq!(mend(&old), environment(&[(OLD, "0.8")]));
}

#[test]
fn wrong_05_set_in_the_program_after_jax_was_imported() {
    let set = |name: &str, moment: Moment| Surroundings {
        moment,
        set_now: BTreeSet::from([name.to_owned()]),
        ..with(&[(name, "false")])
    };
    let culprit = Some("model.py:3".to_owned());
    let imported = |culprit| Moment::AfterImport { culprit };
    let used = |culprit| Moment::AfterBackend { culprit };
    let finding = only(&set("JAX_ENABLE_X64", imported(culprit.clone())));
    assert_eq!(
        (finding.id, finding.severity),
        ("set-too-late", Severity::Error)
    );
    assert!(
        finding.message.contains("model.py:3"),
        "{}",
        finding.message
    );
    assert!(finding.fix.contains("jax.config.update"), "{}", finding.fix);
    // The folk rule says "before import jax"; the pool is decided at the first use.
    assert_eq!(ids(&set(PREALLOCATE, imported(None))), [""; 0]);
    assert_eq!(only(&set(PREALLOCATE, used(culprit))).id, "set-too-late");
    let inherited = Surroundings {
        set_now: BTreeSet::new(),
        ..set(PREALLOCATE, used(None))
    };
    assert_eq!(ids(&inherited), [""; 0]);
}

#[test]
fn wrong_06_settings_that_do_not_reach_containers_or_the_steps_of_a_job() {
    let prefixed = with(&[("SINGULARITYENV_XLA_PYTHON_CLIENT_PREALLOCATE", "false")]);
    assert_eq!(only(&prefixed).id, "container-prefix");
    assert_eq!(mended(&prefixed, PREALLOCATE).as_deref(), Some("false"));
    let twice = with(&[
        ("APPTAINERENV_XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        (PREALLOCATE, "false"),
    ]);
    assert_eq!(ids(&twice), [""; 0]);
    let job = with(&[("SLURM_EXPORT_ENV", "NONE"), (NEW, "0.9")]);
    let finding = only(&job);
    assert_eq!(finding.id, "srun-drops-settings");
    assert!(finding.message.contains(NEW), "{}", finding.message);
    for list in ["ALL", "HOME,XLA_CLIENT_MEM_FRACTION", "ALL,A=1"] {
        assert_eq!(
            ids(&with(&[("SLURM_EXPORT_ENV", list), (NEW, "0.9")])),
            [""; 0],
            "{list}"
        );
    }
}

#[test]
fn wrong_07_three_settings_that_cancel_out() {
    let all = with(&[
        (PREALLOCATE, "false"),
        (NEW, "0.8"),
        (ALLOCATOR, "platform"),
    ]);
    assert_eq!(ids(&all), ["ignored-by-allocator", "ignored-by-allocator"]);
    assert_eq!(mend(&all), environment(&[(ALLOCATOR, "platform")]));
}

#[test]
fn wrong_08_a_fraction_of_the_whole_card_on_a_slice() {
    let slice = Card {
        mig: Mig::Slice {
            number: 0,
            gpu_instance: Some(1),
            parent_total_bytes: Some(32 * GIB),
        },
        ..card("NVIDIA A30 MIG 2g.12gb", 16 * GIB)
    };
    let finding = only(&on(slice.clone(), &[(NEW, "0.45")]));
    assert_eq!(finding.id, "mig-share-of-parent");
    assert!(finding.fix.contains("=0.90"), "{}", finding.fix);
    assert_eq!(finding.cost_bytes.map(|bytes| bytes / GIB), Some(7));
    let unified = on(slice.clone(), &[(NEW, "2.0"), (UNIFIED, "true")]);
    assert_eq!(only(&unified).id, "mig-share-of-parent");
    // Below a third of the slice nobody computed it from the card.
    for part in ["0.9", "0.2"] {
        assert_eq!(ids(&on(slice.clone(), &[(NEW, part)])), [""; 0], "{part}");
    }
    // An amount that only the whole card has.
    let limit = on(
        slice,
        &[("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "25769803776")],
    );
    assert!(only(&limit).fix.contains("more than the card's 16.0 GiB"));
}

#[test]
fn wrong_09_names_that_nothing_reads() {
    for (name, value, id, right) in [
        (
            "JAX_CUDA_VISIBLE_DEVICES",
            "1",
            "read-by-nobody",
            Some("CUDA_VISIBLE_DEVICES"),
        ),
        (
            "CUDA_VISIBLE_DIVICES",
            "1",
            "misspelt-name",
            Some("CUDA_VISIBLE_DEVICES"),
        ),
        (
            "TF_FORCE_GPU_ALLOW_GROWTH",
            "true",
            "tensorflow-name",
            Some(PREALLOCATE),
        ),
        (
            "TF_GPU_ALLOCATOR",
            "cuda_malloc_async",
            "tensorflow-name",
            Some(ALLOCATOR),
        ),
        ("JAX_MOCK_GPU_TOPOLOGY", "1x1x1", "read-by-nobody", None),
        (
            "XLA_PYTHON_CLIENT_MEM_FRACTON",
            "0.9",
            "misspelt-name",
            Some(OLD),
        ),
        (
            "XLA_PYTHON_CLIENT_MEMORY_FRACTION",
            "0.9",
            "misspelt-name",
            Some(OLD),
        ),
        (
            "XLA_CLIENT_PREALLOCATE",
            "false",
            "misspelt-name",
            Some(PREALLOCATE),
        ),
        (
            "NCCL_BUFSIZE",
            "1048576",
            "misspelt-name",
            Some("NCCL_BUFFSIZE"),
        ),
        ("JAX_MAKE_IT_FIT", "1", "unknown-name", None),
    ] {
        let surroundings = with(&[(name, value)]);
        let finding = only(&surroundings);
        assert_eq!((finding.id, finding.subject.as_str()), (id, name));
        if let Some(right) = right {
            assert!(
                mended(&surroundings, right).is_some(),
                "{name}: {finding:#?}"
            );
            assert_eq!(mended(&surroundings, name), None, "{name}");
        }
    }
    // The invented limit becomes true on a card that is known.
    let limit = [("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592")];
    assert_eq!(only(&with(&limit)).id, "read-by-nobody");
    assert!(only(&with(&limit)).fix.contains("--limit 8589934592"));
    let share: f64 = mended(&on(h100(), &limit), NEW).unwrap().parse().unwrap();
    let pool = 84_942_979_072.0 * share;
    assert!(
        pool <= 8.0 * GIB as f64 && pool > 7.99 * GIB as f64,
        "{share}"
    );
}

#[test]
fn wrong_10_a_flag_without_its_dashes() {
    let broken = with(&[(
        "XLA_FLAGS",
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 --xla_dump_to=/tmp/x",
    )]);
    let finding = only(&broken);
    assert_eq!(finding.id, "flag-without-dashes");
    assert!(
        finding.message.contains("the flag behind it"),
        "{}",
        finding.message
    );
    assert_eq!(
        mended(&broken, "XLA_FLAGS").as_deref(),
        Some("--xla_cpu_multi_thread_eigen=false --xla_dump_to=/tmp/x")
    );
    let first = with(&[("XLA_FLAGS", "xla_gpu_autotune_level=0")]);
    assert_eq!(only(&first).id, "flag-without-dashes");
    assert_eq!(
        mended(&first, "XLA_FLAGS").as_deref(),
        Some("--xla_gpu_autotune_level=0")
    );
    assert_eq!(ids(&with(&[("XLA_FLAGS", "/etc/xla/flags.txt")])), [""; 0]);
}

#[test]
fn wrong_11_nvidia_smi_shows_the_pool_and_not_the_need() {
    let pool = 84_942_979_072 / 4 * 3;
    let busy = Card {
        processes: vec![Process {
            pid: 4711,
            used_bytes: Some(pool + 600 * 1024 * 1024),
            command: Some("python train.py".to_owned()),
            ..Process::default()
        }],
        ..h100()
    };
    let finding = only(&on(busy, &[]));
    assert_eq!(
        (finding.id, finding.severity),
        ("pool-is-not-need", Severity::Note)
    );
    assert!(finding.message.contains("4711"), "{}", finding.message);
}

#[test]
fn wrong_12_a_fraction_that_leaves_the_libraries_too_little() {
    let small = card("NVIDIA GeForce RTX 3060 Ti", 8 * GIB);
    let surroundings = on(small, &[(NEW, "0.95")]);
    let finding = only(&surroundings);
    assert_eq!(finding.id, "too-little-left");
    assert!(finding.message.contains("409.6 MiB"), "{}", finding.message);
    assert!(finding.cost_bytes.is_some_and(|bytes| bytes > 100 << 20));
    let part: f64 = mended(&surroundings, NEW).unwrap().parse().unwrap();
    assert!((0.85..0.95).contains(&part), "{part}");
    // 5 % of a large card are more than libraries need.
    assert_eq!(ids(&on(h100(), &[(NEW, "0.95")])), [""; 0]);
    assert_eq!(only(&on(h100(), &[(NEW, "0.99")])).id, "too-little-left");
    // Where the card is not known the finding says what it would be.
    assert!(only(&with(&[(NEW, "0.95")])).message.contains("8 GiB"));
}

// Sound surroundings: nothing to say.

#[test]
fn a_clean_environment_gives_no_finding() {
    for surroundings in [
        Surroundings::default(),
        with(&[]),
        on(h100(), &[]),
        with(&[("PATH", "/usr/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")]),
    ] {
        assert_eq!(lint(&surroundings), []);
    }
}

#[test]
fn a_plausible_environment_gives_no_finding() {
    let everything = [
        ("JAX_PLATFORMS", "cuda,cpu"),
        (NEW, "0.9"),
        (PREALLOCATE, "true"),
        ("JAX_ENABLE_X64", "True"),
        ("JAX_COMPILATION_CACHE_DIR", "/cache"),
        ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5"),
        ("JAX_DEBUG_NANS", "0"),
        ("JAX_TRACEBACK_FILTERING", "off"),
        ("JAX_COORDINATOR_ADDRESS", "node0:1234"),
        ("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "512"),
        (
            "XLA_FLAGS",
            "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_autotune_level=2 \
             --xla_force_host_platform_device_count=8",
        ),
        ("TF_CPP_MIN_LOG_LEVEL", "2"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("CUDA_MODULE_LOADING", "LAZY"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_MIN_NCHANNELS", "4"),
        ("NCCL_MIN_CTAS", "4"),
        ("NCCL_MY_OWN_PLUGIN_KNOB", "4"),
        ("TF_CONFIG", "{}"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("SLURM_JOB_ID", "7"),
    ];
    assert_eq!(lint(&with(&everything)), []);
    assert_eq!(lint(&on(h100(), &everything)), []);
    for (name, value) in [
        (OLD, "0.8"),
        (PREALLOCATE, "false"),
        (ALLOCATOR, "cuda_async"),
        (ALLOCATOR, "Platform"),
        ("JAX_PLATFORMS", "cpu"),
        ("JAX_PLATFORMS", "METAL"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("CUDA_VISIBLE_DEVICES", "-1"),
        ("XLA_FLAGS", ""),
    ] {
        assert_eq!(lint(&on(h100(), &[(name, value)])), [], "{name}={value}");
    }
}

#[test]
fn every_name_that_jax_has_is_known_to_the_lint() {
    let names = include_str!("../src/lint/names/jax.tsv");
    for line in names.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('\t').next().unwrap();
        let surroundings = with(&[(name, "1")]);
        let wrong = ids(&surroundings)
            .into_iter()
            .any(|id| matches!(id, "unknown-name" | "misspelt-name"));
        assert!(!wrong, "{name}: {:#?}", lint(&surroundings));
    }
}

// The other rules, one by one.

#[test]
fn allocators_are_judged_by_release() {
    let ask = |word: &str, version: &str| Surroundings {
        jax: Some(version.parse().unwrap()),
        ..with(&[(ALLOCATOR, word)])
    };
    for (word, version, instead) in [
        ("", "0.10.2", None),
        ("vmm", "0.9.2", Some("cuda_async")),
        ("address", "0.10.2", Some("platform")),
        ("cuda_malloc_async", "0.10.2", Some("cuda_async")),
        ("platfrom", "0.10.2", Some("platform")),
        ("jemalloc", "0.10.2", None),
    ] {
        let surroundings = ask(word, version);
        assert_eq!(only(&surroundings).id, "allocator-unknown", "{word}");
        assert_eq!(
            mended(&surroundings, ALLOCATOR).as_deref(),
            instead,
            "{word}"
        );
    }
    for (word, version) in [("vmm", "0.10.0"), ("address", "0.11.0"), ("BFC", "0.4.26")] {
        assert_eq!(ids(&ask(word, version)), [""; 0], "{word} {version}");
    }
}

#[test]
fn switches_and_numbers_are_read_as_their_reader_reads_them() {
    for (name, value, id) in [
        ("JAX_ENABLE_X64", "maybe", "not-a-truth-value"),
        ("JAX_ENABLE_X64", "", "not-a-truth-value"),
        ("JAX_DEBUG_NANS", "2", "not-a-truth-value"),
        ("JAX_NUM_CPU_DEVICES", "two", "not-a-number"),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "10GiB", "not-a-number"),
        (
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
            "1s",
            "not-a-number",
        ),
        (
            "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
            "512.0",
            "not-a-number",
        ),
        (
            "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE",
            "true",
            "not-a-number",
        ),
        (UNIFIED, "yes", "switch-is-ignored"),
        ("JAX_PLATFORMS", "nvidia", "platform-unknown"),
        ("JAX_PLATFORMS", "CUDA,cpu", "platform-unknown"),
        ("JAX_PLATFORM_NAME", "gpu", "platform-name-deprecated"),
        (
            "JAX_PJRT_CLIENT_CREATE_OPTIONS",
            "memory_fraction:0.5",
            "create-options-malformed",
        ),
        (
            "JAX_PJRT_CLIENT_CREATE_OPTIONS",
            "allocator",
            "create-options-malformed",
        ),
    ] {
        assert_eq!(only(&with(&[(name, value)])).id, id, "{name}={value}");
    }
    let aborts = "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE";
    assert_eq!(
        mended(&with(&[(aborts, "true")]), aborts).as_deref(),
        Some("1")
    );
    let platform = with(&[("JAX_PLATFORM_NAME", "gpu")]);
    assert_eq!(mend(&platform), environment(&[("JAX_PLATFORMS", "cuda")]));
}

#[test]
fn flags_that_xla_would_abort_at_are_told() {
    for (flags, id) in [
        ("--xla_gpu_autotune_levl=0", "flag-misspelt"),
        ("--xla_tpu_enable_x=true", "flag-of-another-program"),
        ("--tf_xla_auto_jit=2", "flag-of-another-program"),
        (
            "--xla_gpu_enable_allocator_spatial_partitioning=false",
            "flag-not-in-this-release",
        ),
        ("--xla_gpu_autotune_level=off", "flag-value"),
        (
            "--xla_gpu_enable_while_loop_double_buffering=no",
            "flag-value",
        ),
        (
            "--xla_force_host_platform_device_count=1",
            "flag-about-cpu-only",
        ),
    ] {
        let surroundings = with(&[("XLA_FLAGS", flags)]);
        assert_eq!(only(&surroundings).id, id, "{flags}");
    }
    let trap = with(&[
        ("XLA_FLAGS", "--xla_disable_hlo_passes=dce"),
        ("JAX_COMPILER_ENABLE_REMAT_PASS", "false"),
    ]);
    assert_eq!(only(&trap).id, "remat-switch-drops-passes");
    assert_eq!(
        mend(&trap),
        environment(&[(
            "XLA_FLAGS",
            "--xla_disable_hlo_passes=dce,rematerialization"
        )])
    );
}

#[test]
fn settings_that_do_not_go_together() {
    for (variables, id) in [
        (
            &[(UNIFIED, "1"), (NEW, "0.8")][..],
            "unified-fraction-below-one",
        ),
        (
            &[(ALLOCATOR, "vmm"), (PREALLOCATE, "true")],
            "ignored-by-allocator",
        ),
        (
            &[
                (ALLOCATOR, "cuda_async"),
                ("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "-1"),
            ],
            "ignored-by-allocator",
        ),
        (
            &[("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "-1")],
            "ignored-by-allocator",
        ),
        (
            &[
                (ALLOCATOR, "bfc"),
                ("JAX_PJRT_CLIENT_CREATE_OPTIONS", "allocator:platform"),
            ],
            "create-options-override",
        ),
    ] {
        assert_eq!(only(&with(variables)).id, id, "{variables:?}");
    }
}

#[test]
fn who_holds_the_card_is_named_and_the_share_computed_from_what_is_free() {
    let busy = Card {
        memory: Some(Memory {
            total_bytes: 24 * GIB,
            used_bytes: 10 * GIB,
            free_bytes: 14 * GIB,
            ..Memory::default()
        }),
        processes: vec![
            Process {
                pid: 7,
                used_bytes: Some(GIB),
                kind: ProcessKind::Graphics,
                command: Some("Xorg".to_owned()),
                ..Process::default()
            },
            Process {
                pid: 42,
                used_bytes: Some(9 * GIB),
                command: Some("python serve.py".to_owned()),
                ..Process::default()
            },
        ],
        ..card("NVIDIA GeForce RTX 3090", 24 * GIB)
    };
    let surroundings = on(busy, &[]);
    let finding = only(&surroundings);
    assert_eq!(finding.id, "held-by-others");
    for part in [
        "10.0 GiB",
        "`python serve.py` (42, 9.0 GiB)",
        "`Xorg` (7, display, 1.0 GiB)",
    ] {
        assert!(finding.message.contains(part), "{}", finding.message);
    }
    let part: f64 = mended(&surroundings, NEW).unwrap().parse().unwrap();
    assert!(part * 24.0 < 14.0 && part > 0.5, "{part}");
    let full = Card {
        memory: Some(Memory {
            total_bytes: 24 * GIB,
            used_bytes: 24 * GIB,
            ..Memory::default()
        }),
        ..card("NVIDIA GeForce RTX 3090", 24 * GIB)
    };
    let finding = only(&on(full, &[]));
    assert!(finding.changes.is_empty() && finding.message.contains("does not name"));
}

#[test]
fn tensorflow_is_told_of_unless_it_is_held_back() {
    let installed = |version: &str, variables: &[(&str, &str)]| Surroundings {
        packages: Some(Packages {
            tensorflow: Some(version.to_owned()),
            cuda_plugin: true,
            ..Packages::default()
        }),
        ..on(h100(), variables)
    };
    let second = only(&installed("2.19.0", &[]));
    assert_eq!(second.id, "tensorflow-beside-jax");
    assert_eq!(second.cost_bytes, Some(84_942_979_072));
    assert!(second.fix.contains("set_visible_devices"), "{}", second.fix);
    let first = only(&installed("1.15.5", &[]));
    assert!(first.fix.contains("allow_growth=True"), "{}", first.fix);
    assert_eq!(
        ids(&installed(
            "2.19.0",
            &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")]
        )),
        [""; 0]
    );
    assert_eq!(
        ids(&installed("2.19.0", &[("JAX_PLATFORMS", "cpu")])),
        [""; 0]
    );
    let without_gpu = Surroundings {
        packages: Some(Packages {
            tensorflow_cpu: Some("2.19.0".to_owned()),
            cuda_plugin: true,
            ..Packages::default()
        }),
        ..on(h100(), &[])
    };
    assert_eq!(ids(&without_gpu), [""; 0]);
}

#[test]
fn the_rest_of_the_machine() {
    let no_plugin = Surroundings {
        packages: Some(Packages::default()),
        ..on(h100(), &[])
    };
    assert_eq!(only(&no_plugin).id, "no-cuda-plugin");
    let torch = Surroundings {
        packages: Some(Packages {
            torch: Some("2.8.0".to_owned()),
            cuda_plugin: true,
            ..Packages::default()
        }),
        ..on(h100(), &[("PYTORCH_CUDA_ALLOC_CONF", "x")])
    };
    assert_eq!(only(&torch).id, "torch-beside-jax");
    let finding = only(&on(h100(), &[("CUDA_VISIBLE_DEVICES", "0,3,1")]));
    assert_eq!(finding.id, "visible-list-ends-early");
    assert!(finding.message.contains("`3`"), "{}", finding.message);
    let exclusive = Card {
        compute_mode: Some(ComputeMode::ExclusiveProcess),
        processes: vec![Process {
            pid: 9,
            ..Process::default()
        }],
        ..h100()
    };
    assert_eq!(only(&on(exclusive, &[])).id, "card-is-exclusive");
}

#[test]
fn other_releases_are_told_only_where_the_release_is_known() {
    let old = Surroundings {
        jax: Some(Version::new(0, 4, 31)),
        ..with(&[(NEW, "0.9")])
    };
    assert_eq!(only(&old).id, "not-in-this-release");
    assert_eq!(mend(&old), environment(&[(OLD, "0.9")]));
    let gone = Surroundings {
        jax: Some(Version::new(0, 10, 2)),
        ..with(&[("JAX_PMAP_SHMAP_MERGE", "true")])
    };
    assert_eq!(only(&gone).id, "not-in-this-release");
    let unknown = Surroundings { jax: None, ..gone };
    assert_eq!(ids(&unknown), [""; 0]);
}

// The registry.

#[test]
fn rules_have_lasting_names_and_every_one_is_on_the_page_and_finds_something_in_these_tests() {
    let source = include_str!("lint.rs");
    let page = markdown();
    let mut seen = BTreeSet::new();
    for rule in rules() {
        let kebab = rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(kebab && seen.insert(rule.id), "{}", rule.id);
        assert!(page.contains(&format!("### {}\n", rule.id)), "{}", rule.id);
        assert!(
            source.contains(&format!("\"{}\"", rule.id)),
            "{} is not tested",
            rule.id
        );
        assert!(
            rule.meaning.ends_with('.') && rule.cure.ends_with('.'),
            "{}",
            rule.id
        );
    }
}

/// `UPDATE_DOCS=1 cargo test -p vramfit-core --test lint` writes the page anew.
#[test]
fn the_committed_page_is_made_from_the_rules() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lint.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == markdown(),
        "docs/lint.md is not what the rules say; write it with UPDATE_DOCS=1"
    );
}

#[test]
fn findings_are_plain_json() {
    let finding = only(&with(&[(NEW, "0.5"), (OLD, "0.8")]));
    let json = serde_json::to_value(&finding).unwrap();
    assert_eq!(json["id"], "two-fractions");
    assert_eq!(json["severity"], "error");
    assert_eq!(json["changes"][0]["name"], OLD);
    assert!(json["changes"][0]["value"].is_null());
}

// Anything at all.

fn any_name() -> impl Strategy<Value = String> {
    let known: Vec<String> = settings::all()
        .iter()
        .filter(|setting| !setting.is_flag())
        .map(|setting| setting.name.clone())
        .chain(
            include_str!("../src/lint/names/jax.tsv")
                .lines()
                .filter_map(|line| line.split('\t').next())
                .map(str::to_owned),
        )
        .collect();
    prop_oneof![
        4 => prop::sample::select(known.clone()),
        2 => (prop::sample::select(known), any::<prop::sample::Index>(), "[A-Z_]?").prop_map(
            |(name, at, letter)| {
                let at = at.index(name.len());
                format!("{}{letter}{}", &name[..at], &name[at + 1..])
            }
        ),
        1 => "(JAX|XLA|TF_GPU|NCCL|APPTAINERENV_XLA)_[A-Z_]{0,12}",
        1 => "SLURM_EXPORT_ENV",
    ]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "true",
            "false",
            "FALSE",
            "no",
            "off",
            "0.5",
            "0.95",
            "1.0",
            "4.0",
            "75",
            "100",
            "-1",
            "75%",
            ".XX",
            "nan",
            "inf",
            "1e400",
            "1e-400",
            "platform",
            "cuda_async",
            "vmm",
            "address",
            "default",
            "cuda",
            "cpu",
            "gpu",
            "NONE",
            "allocator:platform",
            "memory_fraction:0.5",
            "a:b:c",
            "--xla_gpu_autotune_level=x -x y --xla_dump_to='a b'",
            "--xla_disable_hlo_passes=a --xla_tpu_a --xla_dump_too=1 xla_a",
        ])
        .prop_map(str::to_owned),
        "-{0,2}[a-z_]{0,9}=?[a-z0-9'\" ]{0,9}( -{0,2}[a-z_]{0,9}=?[a-z0-9'\"]{0,9}){0,3}",
        any::<f64>().prop_map(|number| number.to_string()),
        ".{0,20}",
    ]
}

fn any_card() -> impl Strategy<Value = Card> {
    (
        0..3_u32,
        prop::option::of((any::<u64>(), any::<u64>(), any::<u64>())),
        0..3_u8,
        prop::collection::vec(prop::option::of(any::<u64>()), 0..3),
        prop::sample::select(vec!["NVIDIA H100 80GB HBM3", "something else", ""]),
    )
        .prop_map(|(index, memory, mig, processes, name)| Card {
            index,
            name: name.to_owned(),
            memory: memory.map(|(total, reserved, free)| Memory {
                // Figures that make no sense together, and those that do.
                total_bytes: total >> 24,
                reserved_bytes: Some(reserved >> 32),
                used_bytes: 0,
                free_bytes: free >> 25,
            }),
            mig: match mig {
                0 => Mig::Off,
                1 => Mig::Parent,
                _ => Mig::Slice {
                    number: 0,
                    gpu_instance: Some(1),
                    parent_total_bytes: Some(80 * GIB),
                },
            },
            processes: processes
                .into_iter()
                .map(|used_bytes| Process {
                    used_bytes,
                    ..Process::default()
                })
                .collect(),
            ..Card::default()
        })
}

fn any_surroundings() -> impl Strategy<Value = Surroundings> {
    let versions: Vec<Option<Version>> =
        ["0.4.26", "0.4.31", "0.4.33", "0.6.2", "0.10.2", "0.11.0"]
            .iter()
            .map(|text| Some(text.parse().unwrap()))
            .chain([None])
            .collect();
    (
        prop::collection::btree_map(any_name(), any_value(), 0..8),
        prop::sample::select(versions),
        prop::collection::vec(any_card(), 0..3),
        prop::option::of((any::<bool>(), any::<bool>())),
    )
        .prop_map(|(environment, jax, cards, packages)| Surroundings {
            environment,
            jax,
            machine: Machine {
                cards,
                ..Machine::default()
            },
            packages: packages.map(|(tensorflow, cuda_plugin)| Packages {
                tensorflow: tensorflow.then(|| "2.19.0".to_owned()),
                cuda_plugin,
                ..Packages::default()
            }),
            ..Surroundings::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_error_can_be_mended(surroundings in any_surroundings()) {
        let mended = Surroundings {
            environment: mend(&surroundings),
            ..surroundings.clone()
        };
        let left = lint(&mended);
        let errors: Vec<_> = left
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        prop_assert!(errors.is_empty(), "{errors:#?}");
        // And nothing that a program could still do is left undone.
        prop_assert_eq!(apply(&mended.environment, &left), mended.environment);
    }

    #[test]
    fn late_settings_are_the_only_errors_that_no_program_can_mend(
        surroundings in any_surroundings(),
        after_backend: bool,
    ) {
        let culprit = Some("model.py:3".to_owned());
        let late = Surroundings {
            moment: match after_backend {
                true => Moment::AfterBackend { culprit },
                false => Moment::AfterImport { culprit },
            },
            set_now: surroundings.environment.keys().cloned().collect(),
            ..surroundings
        };
        for finding in lint(&late) {
            prop_assert!(
                finding.severity != Severity::Error
                    || finding.id == "set-too-late"
                    || !finding.changes.is_empty(),
                "{finding:#?}"
            );
        }
    }

    #[test]
    fn names_of_others_are_none_of_our_business(
        name in "[A-Z]{1,3}_[A-Z_]{0,9}",
        value in ".{0,9}",
    ) {
        prop_assume!(!name.starts_with("TF_") && !name.starts_with("XLA_"));
        prop_assume!(!name.starts_with("JAX_"));
        prop_assert_eq!(lint(&with(&[(&name, &value)])), []);
    }
}
