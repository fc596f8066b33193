//! The other rules, one by one.

use vramfit_advice::lint::{LintInput, Packages, autofix, lint};
use vramfit_model::host::{ComputeMode, GpuMemory, HostGpu, Process, ProcessKind};
use vramfit_model::settings::{Options, Target, Version, resolve};

use super::*;

const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";

#[test]
fn allocators_are_judged_by_release() {
    let ask = |word: &str, version: &str| LintInput {
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
        let input = ask(word, version);
        assert_eq!(only(&input).id, "allocator-unknown", "{word}");
        assert_eq!(fixed(&input, ALLOCATOR).as_deref(), instead, "{word}");
    }
    for (word, version) in [("vmm", "0.10.0"), ("address", "0.11.0"), ("BFC", "0.4.26")] {
        assert_eq!(ids(&ask(word, version)), [""; 0], "{word} {version}");
    }
}

#[test]
fn switches_and_numbers_are_read_as_their_reader_reads_them() {
    for (name, value, id) in [
        ("JAX_ENABLE_X64", "maybe", "not-a-boolean"),
        ("JAX_ENABLE_X64", "", "not-a-boolean"),
        ("JAX_DEBUG_NANS", "2", "not-a-boolean"),
        ("JAX_NUM_CPU_DEVICES", "two", "not-a-number"),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "10GiB", "not-a-number"),
        ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1s", "not-a-number"),
        ("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "512.0", "not-a-number"),
        ("XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE", "true", "not-a-number"),
        (UNIFIED, "yes", "xla-boolean-ignored"),
        ("JAX_PLATFORMS", "nvidia", "platform-unknown"),
        ("JAX_PLATFORMS", "CUDA,cpu", "platform-unknown"),
        ("JAX_PLATFORM_NAME", "gpu", "platform-name-deprecated"),
        (CREATE_OPTIONS, "memory_fraction:0.5", "create-options-malformed"),
        (CREATE_OPTIONS, "allocator", "create-options-malformed"),
    ] {
        assert_eq!(only(&with(&[(name, value)])).id, id, "{name}={value}");
    }
    let aborts = "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE";
    assert_eq!(fixed(&with(&[(aborts, "true")]), aborts).as_deref(), Some("1"));
    let platform = with(&[("JAX_PLATFORM_NAME", "gpu")]);
    // Both together are what vramfit itself sets, so that a missing GPU is an error that says why.
    let both = [("JAX_PLATFORMS", "cuda,cpu"), ("JAX_PLATFORM_NAME", "gpu")];
    assert_eq!(autofix(&platform), environment(&both));
    assert_eq!(lint(&with(&both)), []);
    let cpu = with(&[("JAX_PLATFORM_NAME", "cpu")]);
    assert_eq!(autofix(&cpu), environment(&[("JAX_PLATFORMS", "cpu")]));
    let contradiction = with(&[("JAX_PLATFORMS", "cpu"), ("JAX_PLATFORM_NAME", "cuda")]);
    assert!(only(&contradiction).message.contains("first use of JAX fails"));
    assert_eq!(autofix(&contradiction), environment(&[("JAX_PLATFORMS", "cpu")]));
}

/// What `run`, `env` and `jax_memory_fix` set, whatever they are asked for, is nothing that `doctor`
/// finds fault with.
#[test]
fn what_vramfit_sets_itself_is_never_reported_as_removed() {
    let preset = [
        &[][..],
        &[("JAX_PLATFORM_NAME", "gpu")],
        &[("JAX_PLATFORMS", "cpu,cuda")],
        &[("JAX_PLATFORMS", "cuda"), ("JAX_PLATFORM_NAME", "CUDA")],
    ];
    for (version, preset) in ["0.4.31", "0.6.2", "0.10.2", "0.11.0"]
        .into_iter()
        .flat_map(|version| preset.map(|preset| (version, preset)))
    {
        let jax: Version = version.parse().expect("a release");
        let options = Options {
            require_gpu: Some(true),
            fraction: Some(0.9),
            preallocate: Some(true),
            x64: Some(false),
            jit: Some(true),
            ..Options::default()
        };
        let mut environment = environment(preset);
        let target = Target {
            jax: Some(jax),
            variable: &|name| environment.get(name).cloned(),
            repair: true,
            ..Target::default()
        };
        for set in resolve(&options, &target).expect("no conflict").set {
            environment.insert(set.name.to_owned(), set.value);
        }
        let input = LintInput { environment, jax: Some(jax), ..on(h100(), &[]) };
        assert_eq!(lint(&input), [], "{version}, {preset:?}");
    }
}

#[test]
fn flags_that_xla_would_abort_at_are_reported() {
    for (flags, id) in [
        ("--xla_gpu_autotune_levl=0", "flag-misspelled"),
        ("--xla_tpu_enable_x=true", "flag-of-another-program"),
        ("--tf_xla_auto_jit=2", "flag-of-another-program"),
        ("--xla_gpu_enable_allocator_spatial_partitioning=false", "flag-not-in-this-release"),
        ("--xla_gpu_enable_triton_everything=true", "flag-not-in-this-release"),
        ("--xla_gpu_autotune_level=off", "flag-value"),
        ("--xla_gpu_enable_while_loop_double_buffering=no", "flag-value"),
        ("--xla_force_host_platform_device_count=1", "flag-cpu-only"),
    ] {
        let input = with(&[("XLA_FLAGS", flags)]);
        assert_eq!(only(&input).id, id, "{flags}");
    }
    let trap = with(&[
        ("XLA_FLAGS", "--xla_disable_hlo_passes=dce"),
        ("JAX_COMPILER_ENABLE_REMAT_PASS", "false"),
    ]);
    assert_eq!(only(&trap).id, "remat-option-overrides-passes");
    assert_eq!(
        autofix(&trap),
        environment(&[("XLA_FLAGS", "--xla_disable_hlo_passes=dce,rematerialization")])
    );
}

#[test]
fn settings_that_do_not_go_together() {
    for (variables, id) in [
        (&[(UNIFIED, "1"), (NEW, "0.8")][..], "unified-fraction-below-one"),
        (&[(UNIFIED, "1")], "unified-fraction-below-one"),
        (&[(ALLOCATOR, "vmm"), (PREALLOCATE, "true")], "ignored-by-allocator"),
        (
            &[(ALLOCATOR, "cuda_async"), ("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "-1")],
            "ignored-by-allocator",
        ),
        (&[("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "-1")], "ignored-by-allocator"),
        (&[(ALLOCATOR, "bfc"), (CREATE_OPTIONS, "allocator:platform")], "create-options-override"),
    ] {
        assert_eq!(only(&with(variables)).id, id, "{variables:?}");
    }
}

#[test]
fn who_holds_the_gpu_is_named_and_the_share_computed_from_what_is_free() {
    let busy = HostGpu {
        memory: Some(GpuMemory {
            total_bytes: 24 * GIB,
            used_bytes: 10 * GIB,
            free_bytes: 14 * GIB,
            ..GpuMemory::default()
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
        ..gpu("NVIDIA GeForce RTX 3090", 24 * GIB)
    };
    let input = on(busy, &[]);
    let finding = only(&input);
    assert_eq!(finding.id, "used-by-others");
    for part in ["10.0 GiB", "`python serve.py` (42, 9.0 GiB)", "`Xorg` (7, display, 1.0 GiB)"] {
        assert!(finding.message.contains(part), "{}", finding.message);
    }
    let part: f64 = fixed(&input, NEW).unwrap().parse().unwrap();
    assert!(part * 24.0 < 14.0 && part > 0.5, "{part}");
    let full = HostGpu {
        memory: Some(GpuMemory {
            total_bytes: 24 * GIB,
            used_bytes: 24 * GIB,
            ..GpuMemory::default()
        }),
        ..gpu("NVIDIA GeForce RTX 3090", 24 * GIB)
    };
    let finding = only(&on(full, &[]));
    assert!(finding.changes.is_empty() && finding.message.contains("does not identify"));
}

/// An H100, JAX with its plugin for CUDA, and another package.
fn with_package(add: impl FnOnce(&mut Packages), variables: &[(&str, &str)]) -> LintInput {
    let mut packages = Packages { cuda_plugin: true, ..Packages::default() };
    add(&mut packages);
    LintInput { packages: Some(packages), ..on(h100(), variables) }
}

#[test]
fn tensorflow_is_reported_unless_it_is_held_back() {
    let installed = |version: &str, variables: &[(&str, &str)]| {
        let tensorflow = |packages: &mut Packages| packages.tensorflow = Some(version.to_owned());
        with_package(tensorflow, variables)
    };
    let second = only(&installed("2.19.0", &[]));
    assert_eq!(second.id, "tensorflow-with-jax");
    assert_eq!(second.cost_bytes, Some(84_942_979_072));
    assert!(second.fix.contains("set_visible_devices"), "{}", second.fix);
    let first = only(&installed("1.15.5", &[]));
    assert!(first.fix.contains("allow_growth=True"), "{}", first.fix);
    for variable in [("TF_FORCE_GPU_ALLOW_GROWTH", "true"), ("JAX_PLATFORMS", "cpu")] {
        assert_eq!(ids(&installed("2.19.0", &[variable])), [""; 0]);
    }
    let tensorflow_cpu =
        |packages: &mut Packages| packages.tensorflow_cpu = Some("2.19.0".to_owned());
    let without_gpu = with_package(tensorflow_cpu, &[]);
    assert_eq!(ids(&without_gpu), [""; 0]);
}

#[test]
fn the_rest_of_the_machine() {
    let no_plugin = LintInput { packages: Some(Packages::default()), ..on(h100(), &[]) };
    assert_eq!(only(&no_plugin).id, "no-cuda-plugin");
    let torch = |packages: &mut Packages| packages.torch = Some("2.8.0".to_owned());
    let torch = with_package(torch, &[("PYTORCH_CUDA_ALLOC_CONF", "x")]);
    assert_eq!(only(&torch).id, "torch-with-jax");
    let finding = only(&on(h100(), &[("CUDA_VISIBLE_DEVICES", "0,3,1")]));
    assert_eq!(finding.id, "visible-devices-truncated");
    assert!(finding.message.contains("`3`"), "{}", finding.message);
    let exclusive_mode = HostGpu {
        compute_mode: Some(ComputeMode::ExclusiveProcess),
        processes: vec![Process { pid: 9, ..Process::default() }],
        ..h100()
    };
    assert_eq!(only(&on(exclusive_mode, &[])).id, "gpu-is-exclusive");
}

#[test]
fn other_releases_are_reported_only_where_the_release_is_known() {
    let old = LintInput { jax: Some(Version::new(0, 4, 31)), ..with(&[(NEW, "0.9")]) };
    assert_eq!(only(&old).id, "not-in-this-release");
    assert_eq!(autofix(&old), environment(&[(OLD, "0.9")]));
    let gone = LintInput {
        jax: Some(Version::new(0, 10, 2)),
        ..with(&[("JAX_PMAP_SHMAP_MERGE", "true")])
    };
    assert_eq!(only(&gone).id, "not-in-this-release");
    let unknown = LintInput { jax: None, ..gone };
    assert_eq!(ids(&unknown), [""; 0]);
}

#[test]
fn a_fraction_that_cannot_grow_is_reported_where_it_cannot() {
    let of = |version: (u32, u32, u32), value: &str| LintInput {
        jax: Some(Version::new(version.0, version.1, version.2)),
        ..with(&[(CREATE_OPTIONS, value)])
    };
    let found = of((0, 12, 0), "allocator:bfc;memory_fraction_policy:0.75-0.85");
    assert_eq!(only(&found).id, "pool-does-not-grow");
    assert_eq!(
        only(&found).message,
        "`memory_fraction_policy:0.75-0.85` lets the pool grow to 85 % of the GPU, but in this release it stays at 75 %"
    );
    assert_eq!(
        fixed(&found, CREATE_OPTIONS).as_deref(),
        Some("allocator:bfc;memory_fraction_policy:0.75")
    );
    for (version, value) in [
        ((0, 12, 0), "memory_fraction_policy:0.75"),
        ((0, 12, 0), "memory_fraction_policy:0.75-0.75"),
        ((0, 13, 0), "memory_fraction_policy:0.75+"),
    ] {
        assert_eq!(lint(&of(version, value)), [], "{value}");
    }
}
