//! The twelve wrong settings that were collected from public issues and projects.

use std::collections::BTreeSet;

use vramfit_advice::lint::{LintInput, Severity, autofix};
use vramfit_model::host::{HostGpu, Mig, Process};
use vramfit_model::settings::{LateChange, ProcessStage, Version};

use super::*;

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
            let input = with(&[(name, text)]);
            let finding = only(&input);
            assert_eq!((finding.id, finding.subject.as_str()), (id, name), "{text}");
            assert_eq!(finding.severity, Severity::Error);
            assert_eq!(fixed(&input, name).as_deref(), instead, "{text}");
        }
    }
}

#[test]
fn wrong_02_several_times_the_gpu_without_unified_memory_or_without_a_pool() {
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
    assert_eq!(fixed(&number, NEW).as_deref(), Some("0.5"));
    for off in ["FALSE", "no", "off", "fAlSe", " false"] {
        let input = with(&[(PREALLOCATE, off)]);
        let finding = only(&input);
        assert_eq!(finding.id, "preallocate-not-a-boolean", "{off}");
        assert!(finding.message.contains("on"), "{}", finding.message);
        assert_eq!(fixed(&input, PREALLOCATE).as_deref(), Some("false"));
    }
}

#[test]
fn wrong_04_both_names_of_the_fraction() {
    let both = with(&[(NEW, "0.5"), (OLD, "0.8")]);
    let finding = only(&both);
    assert_eq!((finding.id, finding.severity), ("conflicting-fractions", Severity::Error));
    assert_eq!(autofix(&both), environment(&[(NEW, "0.5")]));
    // Releases that do not know the newer name do not refuse the pair: they ignore it.
    let old = LintInput { jax: Some(Version::new(0, 4, 31)), ..both };
    assert_eq!(only(&old).id, "not-in-this-release");
    assert_eq!(autofix(&old), environment(&[(OLD, "0.8")]));
}

#[test]
fn wrong_05_set_in_the_program_after_jax_was_imported() {
    let change = |name: &str, old: Option<&str>, new: Option<&str>, stage| LateChange {
        name: name.to_owned(),
        old: old.map(str::to_owned),
        new: new.map(str::to_owned),
        site: "model.py:3 (main)".to_owned(),
        stage,
    };
    let set = |name: &str, new: &str, stage| LintInput {
        late: vec![change(name, None, Some(new), stage)],
        ..with(&[])
    };
    let finding = only(&set("JAX_ENABLE_X64", "1", ProcessStage::Imported));
    assert_eq!((finding.id, finding.severity), ("set-too-late", Severity::Error));
    assert!(finding.message.contains("model.py:3"), "{}", finding.message);
    assert!(finding.fix.contains("jax.config.update"), "{}", finding.fix);
    // The folk rule says "before import jax"; the pool is decided at the first use.
    for stage in [ProcessStage::Before, ProcessStage::Imported] {
        assert_eq!(ids(&set(PREALLOCATE, "false", stage)), [""; 0]);
    }
    for stage in [ProcessStage::Discovered, ProcessStage::Started] {
        let found = only(&set(PREALLOCATE, "false", stage));
        assert_eq!(found.id, "set-too-late");
        assert!(found.fix.contains("vramfit run"), "{}", found.fix);
    }
    // XLA reads its flags later than JAX reads the options of its clients.
    let flags = "--xla_gpu_autotune_level=0";
    assert_eq!(ids(&set("XLA_FLAGS", flags, ProcessStage::Discovered)), [""; 0]);
    assert_eq!(ids(&set("XLA_FLAGS", flags, ProcessStage::Started)).len(), 1);
    // What was read is told, and what was meant.
    let twice = LintInput {
        late: vec![
            change(NEW, Some("0.9"), Some("0.5"), ProcessStage::Started),
            change(NEW, Some("0.5"), Some("0.4"), ProcessStage::Started),
        ],
        ..with(&[(NEW, "0.9")])
    };
    let message = only(&twice).message;
    assert!(message.contains("=0.4`") && message.contains("has read `0.9`"), "{message}");
    // Nothing is lost where both mean the same, or where it was set back.
    for (name, old, new) in [
        (PREALLOCATE, None, Some("true")),
        (NEW, Some("0.50"), Some("0.5")),
        ("JAX_ENABLE_X64", Some("True"), Some("on")),
    ] {
        let same =
            LintInput { late: vec![change(name, old, new, ProcessStage::Started)], ..with(&[]) };
        assert_eq!(ids(&same), [""; 0], "{name}");
    }
    // What nobody reads, and what is read at some later time, cannot come too late.
    for name in ["MY_SETTING", "NCCL_DEBUG", "TF_GPU_ALLOCATOR"] {
        assert_eq!(ids(&set(name, "x", ProcessStage::Started)), [""; 0], "{name}");
    }
    let removed = LintInput {
        late: vec![change("JAX_PLATFORMS", Some("cpu"), None, ProcessStage::Started)],
        ..with(&[("JAX_PLATFORMS", "cpu")])
    };
    let removed = only(&removed);
    assert!(removed.message.contains("`JAX_PLATFORMS` is removed"), "{}", removed.message);
    assert!(!removed.fix.contains("config.update"), "{}", removed.fix);
}

#[test]
fn wrong_06_settings_that_do_not_reach_containers_or_the_steps_of_a_job() {
    let prefixed = with(&[("SINGULARITYENV_XLA_PYTHON_CLIENT_PREALLOCATE", "false")]);
    assert_eq!(only(&prefixed).id, "container-prefix");
    assert_eq!(fixed(&prefixed, PREALLOCATE).as_deref(), Some("false"));
    let twice =
        with(&[("APPTAINERENV_XLA_PYTHON_CLIENT_PREALLOCATE", "false"), (PREALLOCATE, "false")]);
    assert_eq!(ids(&twice), [""; 0]);
    let job = with(&[("SLURM_EXPORT_ENV", "NONE"), (NEW, "0.9")]);
    let finding = only(&job);
    assert_eq!(finding.id, "srun-drops-settings");
    assert!(finding.message.contains(NEW), "{}", finding.message);
    for list in ["ALL", "HOME,XLA_CLIENT_MEM_FRACTION", "ALL,A=1"] {
        assert_eq!(ids(&with(&[("SLURM_EXPORT_ENV", list), (NEW, "0.9")])), [""; 0], "{list}");
    }
}

#[test]
fn wrong_07_three_settings_that_cancel_out() {
    let all = with(&[(PREALLOCATE, "false"), (NEW, "0.8"), (ALLOCATOR, "platform")]);
    assert_eq!(ids(&all), ["ignored-by-allocator", "ignored-by-allocator"]);
    assert_eq!(autofix(&all), environment(&[(ALLOCATOR, "platform")]));
}

#[test]
fn wrong_08_a_fraction_of_the_whole_gpu_on_a_slice() {
    let slice = HostGpu {
        mig: Mig::Instance { number: 0, gpu_instance: Some(1), parent_total_bytes: Some(32 * GIB) },
        ..gpu("NVIDIA A30 MIG 2g.12gb", 16 * GIB)
    };
    let finding = only(&on(slice.clone(), &[(NEW, "0.45")]));
    assert_eq!(finding.id, "mig-fraction-of-parent");
    assert!(finding.fix.contains("=0.90"), "{}", finding.fix);
    assert_eq!(finding.cost_bytes.map(|bytes| bytes / GIB), Some(7));
    let unified = on(slice.clone(), &[(NEW, "2.0"), (UNIFIED, "true")]);
    assert_eq!(only(&unified).id, "mig-fraction-of-parent");
    // Below a third of the slice nobody computed it from the GPU.
    for part in ["0.9", "0.2"] {
        assert_eq!(ids(&on(slice.clone(), &[(NEW, part)])), [""; 0], "{part}");
    }
    // An amount that only the whole GPU has.
    let limit = on(slice, &[("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "25769803776")]);
    assert!(only(&limit).fix.contains("more than the GPU's 16.0 GiB"));
}

#[test]
fn wrong_09_names_that_nothing_reads() {
    for (name, value, id, right) in [
        ("JAX_CUDA_VISIBLE_DEVICES", "1", "unread-variable", Some("CUDA_VISIBLE_DEVICES")),
        ("CUDA_VISIBLE_DIVICES", "1", "misspelled-name", Some("CUDA_VISIBLE_DEVICES")),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", "tensorflow-variable", Some(PREALLOCATE)),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", "tensorflow-variable", Some(ALLOCATOR)),
        ("JAX_MOCK_GPU_TOPOLOGY", "1x1x1", "unread-variable", None),
        ("XLA_PYTHON_CLIENT_MEM_FRACTON", "0.9", "misspelled-name", Some(OLD)),
        ("XLA_PYTHON_CLIENT_MEMORY_FRACTION", "0.9", "misspelled-name", Some(OLD)),
        ("XLA_CLIENT_PREALLOCATE", "false", "misspelled-name", Some(PREALLOCATE)),
        ("NCCL_BUFSIZE", "1048576", "misspelled-name", Some("NCCL_BUFFSIZE")),
        ("JAX_MAKE_IT_FIT", "1", "unknown-name", None),
    ] {
        let input = with(&[(name, value)]);
        let finding = only(&input);
        assert_eq!((finding.id, finding.subject.as_str()), (id, name));
        if let Some(right) = right {
            assert!(fixed(&input, right).is_some(), "{name}: {finding:#?}");
            assert_eq!(fixed(&input, name), None, "{name}");
        }
    }
    // The invented limit becomes true on a GPU that is known.
    let limit = [("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592")];
    assert_eq!(only(&with(&limit)).id, "unread-variable");
    assert!(only(&with(&limit)).fix.contains("--limit 8GiB"));
    // An allocator without a pool keeps to no limit, and then nobody makes it true.
    let both = [limit[0], (ALLOCATOR, "platform")];
    let finding = only(&on(h100(), &both));
    assert!(finding.fix.starts_with("choose one: "), "{}", finding.fix);
    assert_eq!(fixed(&on(h100(), &both), NEW), None);
    let fraction_value: f64 = fixed(&on(h100(), &limit), NEW).unwrap().parse().unwrap();
    let pool = 84_942_979_072.0 * fraction_value;
    assert!(pool <= 8.0 * GIB as f64 && pool > 7.99 * GIB as f64, "{fraction_value}");
}

#[test]
fn wrong_10_a_flag_without_its_dashes() {
    let broken = with(&[(
        "XLA_FLAGS",
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 --xla_dump_to=/tmp/x",
    )]);
    let finding = only(&broken);
    assert_eq!(finding.id, "flag-without-dashes");
    assert!(finding.message.contains("the flag after it"), "{}", finding.message);
    assert_eq!(
        fixed(&broken, "XLA_FLAGS").as_deref(),
        Some("--xla_cpu_multi_thread_eigen=false --xla_dump_to=/tmp/x")
    );
    let first = with(&[("XLA_FLAGS", "xla_gpu_autotune_level=0")]);
    assert_eq!(only(&first).id, "flag-without-dashes");
    assert_eq!(fixed(&first, "XLA_FLAGS").as_deref(), Some("--xla_gpu_autotune_level=0"));
    assert_eq!(ids(&with(&[("XLA_FLAGS", "/etc/xla/flags.txt")])), [""; 0]);
}

#[test]
fn wrong_11_nvidia_smi_shows_the_pool_and_not_the_need() {
    let pool = 84_942_979_072 / 4 * 3;
    let busy = HostGpu {
        processes: vec![Process {
            pid: 4711,
            used_bytes: Some(pool + 600 * 1024 * 1024),
            command: Some("python train.py".to_owned()),
            ..Process::default()
        }],
        ..h100()
    };
    let finding = only(&on(busy, &[]));
    assert_eq!((finding.id, finding.severity), ("preallocated-pool", Severity::Note));
    assert!(finding.message.contains("4711"), "{}", finding.message);
}

#[test]
fn wrong_12_a_fraction_that_leaves_the_libraries_too_little() {
    let small = gpu("NVIDIA GeForce RTX 3060 Ti", 8 * GIB);
    let input = on(small, &[(NEW, "0.95")]);
    let finding = only(&input);
    assert_eq!(finding.id, "insufficient-headroom");
    assert!(finding.message.contains("409.6 MiB"), "{}", finding.message);
    assert!(finding.cost_bytes.is_some_and(|bytes| bytes > 100 << 20));
    let part: f64 = fixed(&input, NEW).unwrap().parse().unwrap();
    assert!((0.85..0.95).contains(&part), "{part}");
    // 5 % of a large GPU are more than libraries need.
    assert_eq!(ids(&on(h100(), &[(NEW, "0.95")])), [""; 0]);
    assert_eq!(only(&on(h100(), &[(NEW, "0.99")])).id, "insufficient-headroom");
    // Where the GPU is not known the finding says for which GPUs it would be: 1 GiB is 5 % of 20.
    let unknown = only(&with(&[(NEW, "0.95")]));
    assert!(unknown.message.contains("below 20.0 GiB"), "{}", unknown.message);
    assert_eq!(ids(&with(&[(NEW, "0.93")])), [""; 0]);
    let whole = only(&with(&[(NEW, "1.0")])).message;
    assert!(whole.contains("on every GPU"), "{whole}");
}
