"""Causes that are no shortage on the GPU: host memory, settings, TPUs, other errors, nothing."""

from __future__ import annotations

from .beside import CANDIDATE_FAILED, cublas_handle, cudnn_handle, dnn_failed
from .dump import GIB, Pool, dump, refusal, with_holes
from .log import Line, OomLog, decisive, log, plain, tells
from .pool import A100_40G, A100_40G_POOL, hole_sizes
from .texts import (
    Writer,
    back_off,
    failed,
    raised,
    refused,
    rematerialization,
    status,
    steps,
    traceback,
)


def host_memory() -> list[OomLog]:
    """The memory of the machine, or of the job's share of it, was used up."""
    return [*_python(), *_killed(), *_pinned()]


def _python() -> list[OomLog]:
    array = "Unable to allocate 52.7 GiB for an array with shape (1200, 3072, 3840) and data type "
    array += "float32"
    load = "images = np.stack([np.load(path) for path in paths])"
    bad = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
    bad += "std::bad_alloc\nAborted (core dumped)"
    cpu = "Out of memory allocating 274877906944 bytes."
    return [
        log(
            "host-memory/numpy-1",
            traceback(f"numpy.core._exceptions._ArrayMemoryError: {array}", load),
            "host-memory",
        ),
        log(
            "host-memory/numpy-2",
            traceback(f"numpy._core._exceptions._ArrayMemoryError: {array}", load),
            "host-memory",
        ),
        log("host-memory/python", traceback("MemoryError", "rows = list(reader)"), "host-memory"),
        log("host-memory/bad-alloc", decisive(*bad.split("\n")), "host-memory"),
        log(
            "host-memory/cpu-backend-0.6",
            [*tells("+ export JAX_PLATFORMS=cpu"), *failed((0, 6, 2), "RESOURCE_EXHAUSTED", cpu)],
            "host-memory",
            requested=274_877_906_944,
            fallback="pool-too-small request-larger-than-gpu",
        ),
    ]


def _killed() -> list[OomLog]:
    kernel = [
        "[914220.118427] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, "
        "oom_score_adj=0",
        "[914220.131902] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_5120,"
        "mems_allowed=0-1,oom_memcg=/slurm/uid_1042/job_5120,task=python3,pid=48110,uid=1042",
        "[914220.133377] Memory cgroup out of memory: Killed process 48110 (python3) "
        "total-vm:141830244kB, anon-rss:66920132kB, file-rss:331204kB, shmem-rss:20480kB, "
        "UID:1042 pgtables:139904kB oom_score_adj:0",
    ]
    slurm = "slurmstepd: error: Detected 1 oom_kill event in StepId=5120.0. Some of the step tasks "
    slurm += "have been OOM Killed."
    old = "slurmstepd: error: Detected 2 oom-kill event(s) in step 77103.batch cgroup. Some of "
    old += "your processes may have been killed by the cgroup out-of-memory handler."
    container = ["State:          Terminated", "  Reason:       OOMKilled", "  Exit Code:    137"]
    shell = "/var/spool/slurmd/job5120/slurm_script: line 31: 48110 Killed                  "
    shell += "python train.py"
    srun = "srun: error: node12: task 0: Out Of Memory"
    return [
        log("host-memory/kernel", decisive(*kernel), "host-memory"),
        log("host-memory/slurm", [*plain(steps(1, 9, 1)), *decisive(slurm, srun)], "host-memory"),
        log("host-memory/old-slurm", decisive(old), "host-memory"),
        log("host-memory/container", decisive(*container), "host-memory"),
        log("host-memory/shell", decisive(shell), "host-memory"),
    ]


def _pinned() -> list[OomLog]:
    text = "Out of host memory while trying to allocate 71.50GiB. Please set the environment "
    text += "variable XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB to allocate larger host memory than the "
    text += "default 64 GB."
    jax = (0, 4, 30)
    writer = Writer(jax, "pinned")
    refused = writer.error(
        "cuda_driver.cc",
        "failed to allocate 17.00GiB (18253611008 bytes) of pinned host memory: "
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    )
    return [
        log("host-memory/pinned-0.6", failed((0, 6, 2), "RESOURCE_EXHAUSTED", text), "host-memory"),
        log(
            "host-memory/pinned-0.10", failed((0, 10, 1), "RESOURCE_EXHAUSTED", text), "host-memory"
        ),
        log("host-memory/pinned-refused-0.4", decisive(refused), "host-memory"),
    ]


def wrong_setting() -> list[OomLog]:
    """A setting about memory that is refused, contradicts another or is read by nobody."""
    return [*_client_values(), *_options(), *_read_by_nobody(), *_percent()]


def _plugin_error(value_error: str, cuda: int = 12) -> list[Line]:
    head = f"Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda{cuda}"
    lines = decisive(f"ERROR:jax._src.xla_bridge:{head}.initialize()")
    lines += plain(
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.12/site-packages/jax/_src/xla_bridge.py", line 468, in '
        "discover_pjrt_plugins\n"
        "    plugin_module.initialize()\n"
        f'  File "/venv/lib/python3.12/site-packages/jax_plugins/xla_cuda{cuda}/__init__.py", '
        "line 324, in initialize\n"
        "    options = xla_client.generate_pjrt_gpu_plugin_options()"
    )
    lines += decisive(value_error)
    return [*lines, *plain("WARNING:jax._src.xla_bridge:Falling back to cpu.")]


def _client_values() -> list[OomLog]:
    both = "ValueError: XLA_CLIENT_MEM_FRACTION is specified together with "
    both += "XLA_PYTHON_CLIENT_MEM_FRACTION. Remove the latter one, it is deprecated."
    percent = "ValueError: could not convert string to float: '85%'"
    copied = "ValueError: could not convert string to float: '.XX'"
    kind = 'ValueError: XLA_PYTHON_CLIENT_ALLOCATOR env var must be "default", "platform", "bfc", '
    kind += 'or "cuda_async", got "cuda_malloc_async"'
    size = "ValueError: invalid literal for int() with base 10: '2GB'"
    cause = "wrong-setting"
    return [
        log(f"{cause}/both-fractions-0.6", _plugin_error(both), cause),
        log(f"{cause}/both-fractions-0.11", _plugin_error(both, 13), cause),
        log(f"{cause}/percent-sign-0.7", _plugin_error(percent), cause),
        log(f"{cause}/copied-placeholder-0.4", _plugin_error(copied), cause),
        log(f"{cause}/allocator-name-0.5", _plugin_error(kind), cause),
        log(
            f"{cause}/collective-size-0.9",
            [*tells("+ export XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB=2GB"), *_plugin_error(size)],
            cause,
            fallback="not-memory",
        ),
    ]


def _options() -> list[OomLog]:
    start = "RuntimeError: Unable to initialize backend 'cuda': "
    listed = "'default', 'platform', 'bfc' and 'cuda_async'."
    newer = "'default', 'platform', 'bfc', 'cuda_async', 'vmm' and 'address'."
    refused = "not supported for PJRT GPU plugin. Supported allocator options are: "
    name = "INVALID_ARGUMENT: Unexpected option name passed to PJRT_Client_Create: "
    kind = "INVALID_ARGUMENT: Option passed to PJRT_Client_Create with name memory_fraction has "
    kind += "type index 0 but expected type index is 3"
    flag = "Unknown flag in XLA_FLAGS: --xla_gpu_enable_allocator_spatial_partitioning=false"
    abort = f"F0302 10:15:02.331004   90210 parse_flags_from_env.cc:234] {flag}"
    end = " (set JAX_PLATFORMS='' to automatically choose an available backend)"
    call = "print(jax.local_devices())"
    texts = {
        "allocator-0.8": f"UNIMPLEMENTED: Allocator address {refused}{listed}",
        "allocator-0.11": f"UNIMPLEMENTED: Allocator pool {refused}{newer}",
        "unknown-option-0.10": f"{name}memory_fraction_policy",
        "option-type-0.7": kind,
    }
    logs = [
        log(f"wrong-setting/{key}", traceback(f"{start}{text}{end}", call), "wrong-setting")
        for key, text in texts.items()
    ]
    lines = [*decisive(abort), *plain("Aborted (core dumped)")]
    return [*logs, log("wrong-setting/unknown-flag-0.10", lines, "wrong-setting")]


def _read_by_nobody() -> list[OomLog]:
    logs = []
    for jax, setting in (
        ((0, 10, 2), "TF_GPU_ALLOCATOR=cuda_malloc_async"),
        ((0, 4, 35), "TF_FORCE_GPU_ALLOW_GROWTH=true"),
        ((0, 9, 0), "JAX_PREALLOCATION_SIZE_LIMIT_BYTES=8589934592"),
    ):
        variable = setting.partition("=")[0].lower().replace("_", "-")
        name = f"wrong-setting/{variable}-{jax[0]}.{jax[1]}"
        size = 2_818_572_288
        lines = decisive(f"+ export {setting}")
        lines += [*plain("+ python train.py"), *refused(jax, size)]
        logs.append(
            log(
                name,
                lines,
                "pool-too-small wrong-setting",
                present="wrong-setting",
                maybe="fragmentation",
                requested=size if jax < (0, 5, 0) else None,
            )
        )
    return [*logs, _ignored_while_fragmented()]


def _ignored_while_fragmented() -> OomLog:
    name = "wrong-setting/tf-gpu-allocator-fragmented-0.9"
    writer = Writer((0, 9, 1), name)
    size = 3_489_660_928
    pool = Pool(A100_40G_POOL, [with_holes(writer, A100_40G_POOL, hole_sizes(writer, size))])
    lines = decisive("+ export TF_GPU_ALLOCATOR=cuda_malloc_async")
    lines += [*dump(writer, pool, size), *refused((0, 9, 1), size)]
    return log(
        name,
        lines,
        "fragmentation wrong-setting",
        present="fragmentation",
        maybe="wrong-setting",
        requested=size,
        fallback="pool-too-small",
    )


def _percent() -> list[OomLog]:
    name = "wrong-setting/percent-0.4"
    writer = Writer((0, 4, 30), name)
    limit = A100_40G * 80 // 256 * 256
    lines = decisive("+ export XLA_PYTHON_CLIENT_MEM_FRACTION=80")
    lines += [*plain("+ python train.py"), *tells(*back_off(writer, limit, 39_000_000_000))]
    blas = "Attempting to perform BLAS operation using StreamExecutor without BLAS support"
    lines += plain(*cublas_handle(writer))
    lines += failed((0, 4, 30), "INTERNAL", blas)
    maybe = "pool-not-obtained outside-pool"
    return [
        log(
            name,
            lines,
            "wrong-setting pool-not-obtained outside-pool",
            present="wrong-setting",
            maybe=maybe,
        )
    ]


def tpu() -> list[OomLog]:
    """A TPU, which has rules of its own."""
    texts = {
        "compile-0.4": "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        "Used 21.44G of 15.48G hbm. Exceeded hbm capacity by 5.96G.\n\nTotal hbm usage >= 21.96G:\n"
        "    reserved        530.00M\n    program          19.72G\n    arguments         1.72G",
        "allocate-0.4": "Attempting to allocate 3.25G. That was not possible. There are 2.07G "
        "free.; (0x0x0_HBM0)",
        "error-code-0.8": "E1000: CompileTimeHbmOom: Ran out of memory in memory space hbm. Used "
        "118.20G of 94.74G hbm. Exceeded hbm capacity by 23.46G.",
        "usage-0.9": "TPU TensorCore Hbm usage: 41.09G, SparseCore Hbm usage 122.37G, exceeding "
        "available bytes: 94.74G",
        "temporaries-0.10": "Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (38.61G) exceeds available HBM (30.25G)",
    }
    logs = []
    for name, text in texts.items():
        release = (0, int(name.rpartition(".")[2]), 1)
        lines = raised(release, f"RESOURCE_EXHAUSTED: {text}")
        logs.append(log(f"tpu/{name}", lines, "tpu"))
    return logs


def not_memory() -> list[OomLog]:
    """Another error, or only warnings about memory in a run that ends well."""
    return [*_completed(), *_donation(), *_enough_free(), *_unrelated(), *_similar_words()]


def _ended(name: str, lines: list[Line]) -> OomLog:
    done = decisive("training finished after 2000 steps, checkpoint saved to /scratch/run/2000")
    return log(name, [*lines, *plain(steps(1, 9, 1)), *done], "not-memory", exit_code=1)


def _completed() -> list[OomLog]:
    logs = []
    for jax in ((0, 4, 26), (0, 8, 0), (0, 11, 0)):
        name = f"not-memory/refusals-only-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        texts = [refusal(writer, size * GIB + 12_582_912) for size in (3, 5, 9)]
        logs.append(_ended(name, decisive(*texts)))
    name = "not-memory/remat-only-0.9"
    warning = rematerialization(
        Writer((0, 9, 1), name), 29_527_900_160, 30_064_771_072, 48_318_382_080
    )
    logs.append(_ended(name, decisive(warning)))
    name = "not-memory/candidate-only-0.6"
    candidate = Writer((0, 6, 2), name).warning("gemm_fusion_autotuner.cc", CANDIDATE_FAILED)
    return [*logs, _ended(name, decisive(candidate))]


def _donation() -> list[OomLog]:
    warning = "UserWarning: Some donated buffers were not usable: ShapedArray(float32[4096,1024]), "
    warning += "ShapedArray(float32[1024])."
    deleted = "RuntimeError: Array has been deleted with shape=float32[4096,1024]."
    return [
        _ended("not-memory/donation-warning", decisive(f"/workspace/train.py:88: {warning}")),
        log("not-memory/deleted-array", traceback(deleted), "not-memory", exit_code=1),
    ]


def _enough_free() -> list[OomLog]:
    logs = []
    for jax, free, total in (
        ((0, 4, 20), 24_920_129_536, 25_434_587_136),
        ((0, 6, 0), 16_693_329_920, 17_071_734_784),
        ((0, 11, 0), 83_101_745_152, 85_014_347_776),
    ):
        name = f"not-memory/cudnn-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        handle = cudnn_handle(writer, "CUDNN_STATUS_NOT_INITIALIZED", free, total)
        lines = [*decisive(*handle), *raised(jax, dnn_failed(jax))]
        logs.append(log(name, lines, "not-memory", exit_code=1))
    name = "not-memory/cudnn-and-cublas-0.4"
    writer = Writer((0, 4, 33), name)
    handle = cudnn_handle(writer, "CUDNN_STATUS_INTERNAL_ERROR", 41_204_318_208, 42_298_834_944)
    lines = decisive(*handle, *cublas_handle(writer)[:1])
    lines += raised((0, 4, 33), dnn_failed((0, 4, 33)))
    return [*logs, log(name, lines, "not-memory", exit_code=1)]


def _unrelated() -> list[OomLog]:
    errors = {
        "shapes": "TypeError: dot_general requires contracting dimensions to have the same shape, "
        "got (768,) and (1024,).",
        "missing-file": "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.h5'",
        "missing-key": "KeyError: 'opt_state'",
        "not-a-number": "FloatingPointError: invalid value (nan) encountered in jit(train_step)",
        "full-disk": "OSError: [Errno 28] No space left on device",
    }
    return [
        log(f"not-memory/{name}", traceback(error), "not-memory", exit_code=1)
        for name, error in errors.items()
    ]


def _similar_words() -> list[OomLog]:
    jax = (0, 8, 2)
    socket = "NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled system "
    socket += "error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry "
    socket += "(may be unrelated) 'socketStartConnect: Connect to 10.1.0.7<45123> failed : "
    socket += "Connection refused'."
    texts = {
        "illegal-address": ("INTERNAL", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was "
        "encountered"),
        "other-gpu": ("INTERNAL", "Failed to load in-memory CUBIN (compiled for a different GPU?)."
        ": CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution on the "
        "device"),
        "nccl-network": ("INTERNAL", socket),
        "shared-memory": ("RESOURCE_EXHAUSTED", "Shared memory size limit exceeded: requested "
        "294912, available: 232448"),
    }  # fmt: skip
    logs = [
        log(f"not-memory/{name}", raised(jax, status(jax, *text)), "not-memory", exit_code=1)
        for name, text in texts.items()
    ]
    quota = "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for quota metric "
    quota += "'Read requests' and limit 'Read requests per minute'"
    lines = traceback(quota, "blob.download_to_filename(target)")
    return [*logs, log("not-memory/quota", lines, "not-memory", exit_code=1)]


def nothing() -> list[OomLog]:
    """Texts in which nothing is to be recognized."""
    settings = "model.width: 1024\nmodel.remat: full\noptimizer.memory_efficient: true\n"
    settings += "loader.memory_budget: 4GiB\nrun.out_of_memory_retry: 0"
    packages = "Collecting jax\n  Downloading jax-0.10.2-py3-none-any.whl (3.1 MB)\n"
    packages += "Installing collected packages: jax\nSuccessfully installed jax-0.10.2"
    texts = {
        "training": steps(1, 400, 1),
        "settings": settings,
        "packages": packages,
        "blank": "\n\n",
    }
    return [log(f"nothing/{name}", plain(text), "", exit_code=2) for name, text in texts.items()]
