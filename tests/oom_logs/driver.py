"""Memory that the driver did not give: the pool itself, its growth, and what lies beside it."""

from __future__ import annotations

from .dump import GIB, MIB, Chunk, Pool, dump, grown, split
from .log import OomLog, decisive, log, plain, tells
from .pool import A100_40G, A100_40G_POOL, H100_80G, cuda_async
from .texts import (
    Version,
    Writer,
    back_off,
    driver_refusal,
    failed,
    human,
    refused,
    steps,
    traceback,
)

DRIVER_OOM = "CUDA_ERROR_OUT_OF_MEMORY: out of memory"


def pool_not_obtained() -> list[OomLog]:
    """The pool could not be had at the start."""
    return [
        _backed_off((0, 3, 25), 12_701_761_536, 5_100_000_000),
        _backed_off((0, 4, 30), A100_40G * 3 // 4, 9_400_000_000),
        _backed_off((0, 6, 2), H100_80G * 3 // 4, 21_500_000_000),
        _backed_off((0, 10, 2), A100_40G * 9 // 10, 30_000_000_000),
        _backed_off_with_dump(),
        _neighbor_listed(),
        _nothing_left(),
        _rocm(),
        *_contexts(),
    ]


def _backed_off(jax: Version, limit: int, left: int) -> OomLog:
    name = f"pool-not-obtained/back-off-{'.'.join(map(str, jax))}"
    writer = Writer(jax, name)
    limit = limit // 256 * 256
    size = 1_744_830_464
    lines = [*decisive(*back_off(writer, limit, left)), *refused(jax, size)]
    return log(
        name,
        lines,
        "pool-not-obtained",
        maybe="pool-too-small",
        requested=size if jax < (0, 5, 0) else None,
    )


def _backed_off_with_dump() -> OomLog:
    name = "pool-not-obtained/short-pool-0.8.2"
    writer = Writer((0, 8, 2), name)
    got, size = A100_40G_POOL, 2_684_354_560
    while got > 10 * GIB:
        got = -(-got * 9 // 10 // 256) * 256
    hole = 335_544_320
    pool = Pool(A100_40G_POOL, [[*split(writer, got - hole, 40), Chunk(hole)]])
    later = [driver_refusal(writer, A100_40G_POOL - got)]
    lines = decisive(*back_off(writer, A100_40G_POOL, 10 * GIB))
    lines += [*tells(*later), *dump(writer, pool, size)]
    lines += refused((0, 8, 2), size)
    return log(
        name,
        lines,
        "pool-not-obtained",
        maybe="pool-too-small",
        requested=size,
        fallback="memory-taken-later",
    )


def _neighbor_listed() -> OomLog:
    name = "pool-not-obtained/neighbor-listed-0.4.33"
    writer = Writer((0, 4, 33), name)
    size = 4_362_076_160
    rows = [
        "|    0   N/A  N/A    771204      C   python3                                   27418MiB |",
        "|    0   N/A  N/A    790113      C   ...envs/torch/bin/python                   8022MiB |",
    ]
    lines = [*plain(*rows), *decisive(*back_off(writer, A100_40G_POOL, 4_900_000_000))]
    lines += refused((0, 4, 33), size)
    return log(name, lines, "pool-not-obtained", maybe="pool-too-small", requested=size)


def _nothing_left() -> OomLog:
    name = "pool-not-obtained/nothing-left-0.4.25"
    writer = Writer((0, 4, 25), name)
    limit = 18_185_453_568
    size = 4 * MIB
    lines = decisive(*back_off(writer, limit, size))
    call = "table = jnp.zeros((1024, 1024))"
    lines += refused((0, 4, 25), size, call)
    return log(name, lines, "pool-not-obtained", maybe="outside-pool", requested=size)


def _rocm() -> OomLog:
    name = "pool-not-obtained/rocm-0.4.31"
    writer = Writer((0, 4, 31), name)
    sizes, size = [], 51_539_607_552
    while size > 19_000_000_000:
        sizes.append(size)
        size = -(-size * 9 // 10 // 256) * 256
    records = [
        writer.error(
            "rocm_driver.cc",
            f"failed to allocate {human(size)} ({size} bytes) from device: HIP_ERROR_OutOfMemory",
        )
        for size in sizes
    ]
    lines = [*decisive(*records), *refused((0, 4, 31), 2_214_592_512)]
    return log(name, lines, "pool-not-obtained", maybe="pool-too-small", requested=2_214_592_512)


def _contexts() -> list[OomLog]:
    old = Writer((0, 4, 20), "contexts")
    text = f"failed call to cuDevicePrimaryCtxRetain: {DRIVER_OOM}"
    lines = decisive(old.error("cuda_driver.cc", f"INTERNAL: {text}; total memory reported: 0"))
    error = "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices "
    error += "found for platform CUDA (set JAX_PLATFORMS='' to automatically choose a backend)"
    lines += plain(*(line.text for line in traceback(error, "print(jax.devices())")))
    new = "RuntimeError: Unable to initialize backend 'cuda': RESOURCE_EXHAUSTED: "
    new += f"{text} (set JAX_PLATFORMS='' to automatically choose an available backend)"
    either = "pool-not-obtained outside-pool"
    maybe = "memory-taken-later"
    return [
        log("pool-not-obtained/context-0.4", lines, either, maybe=maybe),
        log(
            "pool-not-obtained/context-0.10",
            traceback(new, "print(jax.devices())"),
            either,
            maybe=maybe,
        ),
    ]


def memory_taken_later() -> list[OomLog]:
    """A pool wanted to grow below its limit, and the driver had nothing left."""
    return [
        _growing((0, 4, 30), 1_308_622_848),
        _growing((0, 8, 1), 1_258_291_200),
        _growing((0, 10, 1), 1_375_731_712),
        _growing((0, 11, 0), 1_442_840_576),
        _growing_seen_from_outside(),
        _cuda_async_squeezed(),
    ]


def _growing(jax: Version, size: int) -> OomLog:
    name = f"memory-taken-later/growing-{'.'.join(map(str, jax))}"
    writer = Writer(jax, name)
    start = f"XLA backend will use up to {A100_40G_POOL} bytes on device 0 for BFCAllocator."
    pool = Pool(A100_40G_POOL, grown(writer, 10, 0.08), grows=True)
    lines = tells(writer.info("gpu_helpers.cc", start), steps(1, 12, 1))
    lines += decisive(*back_off(writer, 2 * GIB, size))
    lines += dump(writer, pool, size)
    lines += refused(jax, size)
    return log(
        name,
        lines,
        "memory-taken-later",
        maybe="pool-not-obtained leak",
        requested=size,
        fallback="pool-not-obtained pool-too-small",
    )


def _growing_seen_from_outside() -> OomLog:
    name = "memory-taken-later/neighbor-started-0.6"
    writer = Writer((0, 6, 2), name)
    lines = tells(
        "+ export XLA_PYTHON_CLIENT_PREALLOCATE=false", "+ python train.py", steps(1, 40, 1)
    )
    lines += decisive(*back_off(writer, 8 * GIB, 6_442_450_944))
    lines += tells(
        "|    0   N/A  N/A      5210      C   python                                    14240MiB |",
        "|    0   N/A  N/A      9977      C   python                                    24110MiB |",
    )
    lines += refused((0, 6, 2), 6_442_450_944)
    return log(
        name,
        lines,
        "memory-taken-later",
        maybe="pool-not-obtained leak pool-too-small",
        fallback="pool-not-obtained pool-too-small",
    )


def _cuda_async_squeezed() -> OomLog:
    name = "memory-taken-later/cuda-async-0.10"
    writer = Writer((0, 10, 0), name)
    size = 3_154_116_608
    records = cuda_async(writer, size, 1_526_726_656, H100_80G, 14 * GIB)
    lines = [*decisive(*records), *refused((0, 10, 0), size)]
    either = "memory-taken-later pool-not-obtained"
    return log(name, lines, either, maybe="pool-too-small", requested=size)


def address_space() -> list[OomLog]:
    """The process may not reserve the addresses, whatever the GPU has free."""
    limit = tells("+ ulimit -v 33554432", "+ python train.py")
    empty = tells(
        "|  N/A   33C    P0    51W / 400W |      4MiB / 40960MiB |      0%      Default |"
    )
    reserve = f"cuMemAddressReserve(&base, size, alignment, 0, 0) failed: {DRIVER_OOM}"
    vmm = failed((0, 10, 0), "RESOURCE_EXHAUSTED", reserve)
    writer = Writer((0, 4, 30), "address-space")
    init = decisive(writer.error("cuda_driver.cc", f"failed call to cuInit: {DRIVER_OOM}"))
    shared = "ImportError: libcudnn_engines_precompiled.so.9: failed to map segment from shared "
    shared += "object: Cannot allocate memory"
    mapped = "OSError: [Errno 12] Cannot allocate memory"
    memory_map = traceback(mapped, "self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)")
    create = decisive(
        f"F0711 09:41:22.513100   21077 gpu_helpers.cc:97] cuMemPoolCreate failed: {DRIVER_OOM}"
    )
    none_free = "outside-pool pool-not-obtained"
    return [
        log("address-space/vmm-limit-0.10", [*limit, *vmm], "address-space"),
        log("address-space/vmm-0.10", vmm, "address-space", maybe="memory-taken-later"),
        log(
            "address-space/cuda-init-0.4",
            [*limit, *empty, *init],
            "address-space",
            maybe="outside-pool",
            fallback=none_free,
        ),
        log(
            "address-space/library",
            [*limit, *traceback(shared, "import jax")],
            "address-space",
            maybe="host-memory",
            fallback="host-memory",
        ),
        log(
            "address-space/data-file",
            [*limit, *memory_map],
            "address-space",
            maybe="host-memory",
            fallback="host-memory",
        ),
        log(
            "address-space/pool-0.9", [*limit, *empty, *create], "address-space", fallback=none_free
        ),
    ]
