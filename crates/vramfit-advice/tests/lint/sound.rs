//! Sound input, about which there is nothing to say.

use vramfit_advice::lint::{LintInput, lint};

use super::*;

#[test]
fn a_clean_environment_gives_no_finding() {
    for input in [
        LintInput::default(),
        with(&[]),
        on(h100(), &[]),
        with(&[("PATH", "/usr/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")]),
    ] {
        assert_eq!(lint(&input), []);
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
    let names = include_str!("../../src/lint/names/jax.tsv");
    for line in names.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('\t').next().unwrap();
        let input = with(&[(name, "1")]);
        let wrong =
            ids(&input).into_iter().any(|id| matches!(id, "unknown-name" | "misspelled-name"));
        assert!(!wrong, "{name}: {:#?}", lint(&input));
    }
}
