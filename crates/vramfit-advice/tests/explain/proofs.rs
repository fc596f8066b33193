//! What a log does not prove is not claimed.

use vramfit_advice::explain::{CauseId, Confidence};
use vramfit_model::gpu;

use super::support::{explained, remedy};

const GIB: u64 = 1 << 30;

fn refused(bytes: u64) -> String {
    format!("RESOURCE_EXHAUSTED: Out of memory while trying to allocate {bytes} bytes.\n")
}

/// A small request before the first step speaks for a pool that was not obtained; after some steps it does not.
#[test]
fn the_number_of_a_setting_is_no_progress() {
    for (line, is_progress) in [
        ("step 7 loss 0.3", true),
        ("step: 7", true),
        ("global_step=7, loss=0.3", true),
        ("[train.py:55] step 7/100", true),
        ("2026-01-01 10:00:00 - step 7", true),
        ("epoch 7/10", true),
        ("batch_size=128 step_size=0.1", false),
        ("--steps 1000 --step 7", false),
        ("num_steps=500", false),
        ("max_step=7", false),
        ("--save-step 100", false),
        ("warmup_step: 10", false),
        ("max step: 1000", false),
        ("Namespace(lr=0.1, step=1000)", false),
        ("$ python train.py step=1000", false),
        ("resuming from step 5000", false),
        ("$ python train.py --lr 0.1\nstep 7\n", true),
    ] {
        let explanation = explained(&format!("{line}\n{}", refused(8 << 20)));
        let is_at_start = explanation.causes.iter().any(|it| it.id == CauseId::PoolNotObtained);
        assert_eq!(!is_at_start, is_progress, "{line}");
    }
}

#[test]
fn what_the_autotuner_leaves_out_is_not_what_failed_later() {
    let warning = "W external/xla/xla/service/gpu/autotuner.cc:501] Autotuning candidate failed with out of memory \
                   error: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.\n";
    let fatal = format!(
        "W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to \
         allocate 30.00GiB (rounded to {bytes})requested by op\njax.errors.JaxRuntimeError: {}",
        refused(30 * GIB),
        bytes = 30 * GIB
    );
    for between in ["step 1 loss 0.3\nstep 2 loss 0.2\n", "evaluating the model\n"] {
        let explanation = explained(&format!("{warning}{between}{fatal}"));
        assert_eq!(explanation.causes[0].id, CauseId::PoolTooSmall, "{between}");
        assert!(explanation.causes.iter().all(|it| it.id != CauseId::Autotuning), "{between}");
        assert_eq!(explanation.figures.requested_bytes, Some(30 * GIB), "{between}");
    }
    let at_once = explained(&format!("{warning}{fatal}"));
    assert_eq!(at_once.figures.requested_bytes, Some(30 * GIB));
    let alone = explained(warning);
    assert_eq!(alone.figures.requested_bytes, Some(2 * GIB));
}

#[test]
fn a_slice_is_not_taken_for_its_gpu() {
    let whole = "NVIDIA H100 80GB HBM3";
    for (text, gpu) in [
        (format!("{whole}\n"), Some("h100-80g")),
        (format!("{whole} MIG 1g.10gb\n"), Some("h100-80g-mig-1g.10gb")),
        (
            format!("GPU 0: {whole} (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-2)\n"),
            Some("h100-80g-mig-1g.10gb"),
        ),
        // Not in the catalog, and not named.
        (format!("{whole} MIG 1c.3g.40gb\n"), None),
        (
            format!(
                "| 0  {whole} On | 1MiB / 81559MiB |\n| MIG devices: |\n| 0 9 0 0 | 12MiB / 9984MiB |\n"
            ),
            None,
        ),
        // The memory tells.
        (
            format!("| 0  {whole} On |\n| MIG devices: |\n| 0 9 0 0 | 12MiB / 9984MiB |\n"),
            Some("h100-80g-mig-1g.10gb"),
        ),
        (format!("{whole}\nMemory usage: 707198976 bytes free, 4231397376 bytes total.\n"), None),
    ] {
        let figures = explained(&format!("{text}{}", refused(3 * GIB))).figures;
        assert_eq!(figures.gpu, gpu, "{text}");
        assert!(
            figures.gpu_total_bytes.is_none_or(|total| gpu == Some("h100-80g") || total < 11 * GIB)
        );
    }
}

#[test]
fn a_larger_gpu_is_larger() {
    let a100 = gpu::find("a100-40g").expect("a GPU of the catalog").max_total_memory_bytes;
    let limit = format!("bytes_limit: {}\n", 30 * GIB);
    for (text, least) in [("NVIDIA A100-SXM4-40GB\n", a100 + 1), (limit.as_str(), 32 * GIB)] {
        for requested in [2 * GIB, 8 * GIB, 25 * GIB, 60 * GIB] {
            let explanation = explained(&format!("{text}{}", refused(requested)));
            let command = remedy(&explanation, "larger-gpu").map_or("", |it| it.command.as_str());
            let name = command.split(' ').nth(3).expect("a command").trim_end_matches("x8");
            let named = gpu::find(name).expect("a GPU of the catalog");
            assert!(named.total_memory_bytes >= least, "{name} beside {text}");
        }
    }
}

#[test]
fn other_gpus_have_no_advice_for_nvidia() {
    let amd = "E external/xla/xla/stream_executor/rocm/rocm_driver.cc:501] failed to allocate 20.00GiB (21474836480 \
               bytes) from device: HIP_ERROR_OutOfMemory\n";
    let apple = "Metal device set to: Apple M2 Max\n";
    let other_backends =
        "Unable to initialize backend 'rocm': NOT_FOUND: Could not find registered platform\n";
    let dump = "bfc_allocator.cc:1100] Stats: \nLimit: 17179869184\nInUse: 8589934592\nMaxInUse: 8589934592\n\
                NumAllocs: 7\nLargestFreeBlock: 0\n\n";
    for (platform, is_nvidia) in [(amd, false), (apple, false), (other_backends, true)] {
        for failure in [
            refused(8 * GIB),
            format!("{}{dump}", refused(4 * GIB)),
            "NCCL WARN Cuda failure 'out of memory'\n".to_owned(),
            format!("TF_FORCE_UNIFIED_MEMORY=1\n{}", refused(300 * GIB)),
        ] {
            let log = format!("{platform}{failure}");
            let explanation = explained(&log);
            let words = ["vramfit", "nvidia", "cuda", "h100", "a100", "rtx", "cudnn"];
            let names = explanation.remedies.iter().any(|remedy| {
                words.iter().any(|word| remedy.command.contains(word) || remedy.text.contains(word))
            });
            let models = explanation.notes.iter().any(|note| note.contains("models NVIDIA GPUs"));
            assert_eq!((names, models), (is_nvidia, !is_nvidia), "{log}");
            assert!(is_nvidia || !explanation.causes[0].next_command.contains("vramfit"), "{log}");
            let of_pool = remedy(&explanation, "raise-fraction").is_some();
            assert!(platform != apple || !of_pool, "{log}");
        }
    }
    let vmem = explained(
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for %custom-call.1. Scoped \
         allocation with size 17.20M and limit 16.00M exceeded scoped vmem limit by 1.20M.\n",
    );
    assert_eq!(vmem.causes[0].id, CauseId::Tpu);
    assert!(vmem.causes[0].summary.contains("VMEM"));
    assert!(remedy(&vmem, "smaller-blocks").is_some() && remedy(&vmem, "shard").is_none());
}

#[test]
fn the_name_of_the_fraction_is_that_of_the_release() {
    for (release, name, counts) in [
        ("jaxlib 0.4.30\n", "XLA_PYTHON_CLIENT_MEM_FRACTION", false),
        ("jaxlib 0.4.33\n", "XLA_CLIENT_MEM_FRACTION", true),
        ("", "XLA_CLIENT_MEM_FRACTION", true),
        ("external/org_tensorflow/x.cc:1] x\n", "XLA_PYTHON_CLIENT_MEM_FRACTION", false),
    ] {
        let explanation = explained(&format!("{release}{}", refused(9 * GIB)));
        let text = &remedy(&explanation, "unified-memory").expect("it may help").text;
        assert!(text.contains(&format!(" {name}=3.2")), "{release}: {text}");
        // What the release does not read says nothing about the pool.
        let set = explained(&format!("{release}XLA_CLIENT_MEM_FRACTION=0.5\n{}", refused(9 * GIB)));
        let raised = remedy(&set, "raise-fraction").map_or("", |it| it.text.as_str());
        assert_eq!(raised.contains("the log names 0.5"), counts, "{release}: {raised}");
    }
}

#[test]
fn an_exact_figure_is_called_exact() {
    for (log, is_exact) in [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.\n", true),
        ("Unable to allocate 8.00 GiB for an array with shape (1,)\n", false),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.\n", true),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8.00GiB.\n", false),
    ] {
        let figures = explained(log).figures;
        assert_eq!(
            (figures.requested_bytes, figures.requested_is_exact),
            (Some(8 * GIB), is_exact),
            "{log}"
        );
    }
}

#[test]
fn a_plugin_of_another_release_is_a_fault_of_the_installation() {
    let message = "JAX plugin jax_cuda12_plugin version 0.5.1 is installed, but it is not compatible with the installed \
                   jaxlib version 0.6.0, so it will not be used.\n";
    for log in [
        message.to_owned(),
        format!(
            "Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda12.initialize()\n{message}"
        ),
        format!(
            "{message}An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.\n"
        ),
        "RuntimeError: jaxlib version 0.6.0 is not compatible with plugin version 0.5.1\n"
            .to_owned(),
    ] {
        let explanation = explained(&log);
        let cause = &explanation.causes[0];
        assert_eq!((cause.id, cause.confidence), (CauseId::NotMemory, Confidence::Likely), "{log}");
        assert_eq!(explanation.remedies[0].id, "matching-plugin", "{log}");
    }
}

/// What CUDA's own pool shows as its limit is what it keeps; it may take all of the GPU.
#[test]
fn the_pool_of_cuda_has_no_limit() {
    let log = |in_use: u64| {
        format!(
            "gpu_cudamallocasync_allocator.cc:376] gpu_async_0 cuMemAllocAsync failed to allocate {} bytes: CUDA error: \
             CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: 1048576/84942979072\n\
             gpu_cudamallocasync_allocator.cc:383] Stats: Limit: 63707234304\nInUse: {in_use}\nMaxInUse: {in_use}\n\
             NumAllocs: 123\nMaxAllocSize: 8589934592\nReserved: 0\nPeakReserved: 0\nLargestFreeBlock: 0\n\n{}",
            8 * GIB,
            refused(8 * GIB)
        )
    };
    for (in_use, id, confidence) in [
        (40 * GIB, CauseId::MemoryTakenLater, Confidence::Likely),
        (76 * GIB, CauseId::PoolTooSmall, Confidence::Sure),
    ] {
        let explanation = explained(&log(in_use));
        let cause = &explanation.causes[0];
        assert_eq!((cause.id, cause.confidence), (id, confidence));
        assert!(!cause.summary.contains("limit"), "{}", cause.summary);
        let figures = &explanation.figures;
        assert_eq!((figures.limit_bytes, figures.in_use_bytes), (None, Some(in_use)));
        assert!(remedy(&explanation, "raise-fraction").is_none());
    }
}

/// A row of the same sign is not looked at again and again.
#[test]
fn long_rows_are_read_at_once() {
    let row = "x".repeat(4 << 20);
    let began = std::time::Instant::now();
    assert!(explained(&format!("{row}\n{}", refused(GIB))).causes.len() == 1);
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
}
