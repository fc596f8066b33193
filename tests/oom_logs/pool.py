"""Requests that a pool could not serve: too small a pool, too large a request, holes."""

from __future__ import annotations

from .dump import (
    GIB,
    MIB,
    Chunk,
    Pool,
    dump,
    full_pool,
    grown,
    refusal,
    split,
    warnings,
    with_holes,
)
from .log import OomLog, log, plain, tells
from .texts import (
    Version,
    Writer,
    base_limit,
    buffer_report,
    failed,
    human,
    out_of_memory,
    raised,
    refused,
    rematerialization,
    status,
    traceback,
)

A100_40G, RTX_3060, H100_80G = 42_298_834_944, 12_516_655_104, 85_014_347_776
# Three quarters, which XLA rounds down to whole blocks.
A100_40G_POOL = A100_40G * 3 // 4 // 256 * 256


def pool_too_small() -> list[OomLog]:
    """Free memory of the pool is less than the request, or nothing else can be said."""
    return [*_one_liners(), *_reports(), *_full_dumps(), *_without_bfc(), *_compiler()]


def _only_message(name: str, jax: Version, size: int, error: str, exact: bool) -> OomLog:
    return log(
        f"pool-too-small/{name}",
        raised(jax, error),
        "pool-too-small",
        maybe="fragmentation leak",
        requested=size if exact else None,
    )


def _one_liners() -> list[OomLog]:
    old, mid, new, newest = (0, 2, 12), (0, 5, 0), (0, 6, 2), (0, 10, 2)
    suffixed = "Out of memory while trying to allocate 3489660928 bytes. "
    suffixed += "[tf-allocator-allocation-error='']"
    value_error = f"ValueError: {out_of_memory((0, 4, 14), 1_610_612_736)}"
    return [
        _only_message("one-line-0.2", old, 4_026_531_840, out_of_memory(old, 4_026_531_840), True),
        _only_message(
            "suffix-bytes-0.5",
            mid,
            3_489_660_928,
            status(mid, "RESOURCE_EXHAUSTED", suffixed),
            True,
        ),
        _only_message("suffix-0.6", new, 0, out_of_memory(new, 5_771_362_304), False),
        _only_message("executable-0.10", newest, 0, out_of_memory(newest, 9_814_671_360), False),
        log(
            "pool-too-small/value-error-0.4",
            traceback(value_error, "params = jax.device_put(checkpoint)"),
            "pool-too-small",
            maybe="fragmentation leak",
            requested=1_610_612_736,
        ),
    ]


def _reports() -> list[OomLog]:
    logs = []
    for jax, size in (((0, 3, 25), 6_979_321_856), ((0, 4, 30), 11_408_506_880)):
        report = buffer_report(2_415_919_104, size, 805_306_368)
        lines = refused(jax, size, report=report)
        name = f"pool-too-small/report-{jax[0]}.{jax[1]}"
        logs.append(log(name, lines, "pool-too-small", maybe="fragmentation", requested=size))
    return logs


def _full_dumps() -> list[OomLog]:
    logs = []
    for jax, size in (
        ((0, 4, 25), 2_952_790_016),
        ((0, 8, 1), 3_758_096_384),
        ((0, 10, 1), 4_429_185_024),
        ((0, 11, 0), 6_174_015_488),
    ):
        name = f"pool-too-small/bfc-dump-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        pool = full_pool(writer, A100_40G_POOL, size // 3 // 1024 * 1024)
        lines = [*dump(writer, pool, size), *refused(jax, size)]
        logs.append(
            log(name, lines, "pool-too-small", requested=size, fallback="fragmentation leak")
        )
    return [*logs, _several_gpus(), _visible_warnings(), _after_refusals()]


def _several_gpus() -> OomLog:
    name = "pool-too-small/four-gpus-0.9"
    writer = Writer((0, 9, 1), name)
    pool = full_pool(writer, 25_554_419_712, 301_989_888, "GPU_3_bfc")
    size = 1_207_959_552
    lines = [*dump(writer, pool, size), *refused((0, 9, 1), size)]
    return log(name, lines, "pool-too-small", requested=size, fallback="fragmentation leak")


def _visible_warnings() -> OomLog:
    name = "pool-too-small/full-map-0.7"
    writer = Writer((0, 7, 2), name)
    size = 2_281_701_376
    lines = warnings(writer, full_pool(writer, 12 * GIB, 64 * MIB), size)
    lines += refused((0, 7, 2), size)
    return log(name, lines, "pool-too-small", requested=size, fallback="fragmentation leak")


def _after_refusals() -> OomLog:
    name = "pool-too-small/after-harmless-refusals-0.6"
    writer = Writer((0, 6, 0), name)
    size = 5_100_273_664
    harmless = [refusal(writer, n * GIB + 3 * MIB) for n in (2, 4, 8)]
    lines = [*plain(*harmless), *dump(writer, full_pool(writer, 9_387_491_328, 805_306_368), size)]
    lines += refused((0, 6, 0), size)
    return log(
        name,
        lines,
        "pool-too-small",
        maybe="autotuning",
        requested=size,
        fallback="fragmentation leak autotuning",
    )


def _without_bfc() -> list[OomLog]:
    size = 7_247_757_312
    direct = "Failed to allocate request for 6.75GiB (7247757312B) on device ordinal 0"
    platform = [
        *plain("+ export XLA_PYTHON_CLIENT_ALLOCATOR=platform", "+ python train.py"),
        *failed((0, 4, 35), "RESOURCE_EXHAUSTED", direct),
    ]
    budget = "Not enough PA budget for allocation: pa_allocated=30601641984B, "
    budget += "rounded_size=2147483648B, pa_budget=31724126208B"
    return [
        log(
            "pool-too-small/platform-0.4",
            platform,
            "pool-too-small memory-taken-later",
            maybe="pool-not-obtained autotuning fragmentation leak",
            requested=size,
        ),
        _cuda_async_full(),
        log(
            "pool-too-small/vmm-0.10",
            failed((0, 10, 0), "RESOURCE_EXHAUSTED", budget),
            "pool-too-small",
            maybe="leak",
        ),
    ]


def cuda_async(writer: Writer, size: int, free: int, total: int, used: int) -> list[str]:
    """Returns the records of a request that CUDA's own pool could not serve."""
    file = "gpu_cudamallocasync_allocator.cc"
    limit = total * 3 // 4
    text = f"gpu_async_0 cuMemAllocAsync failed to allocate {size} bytes: RESOURCE_EXHAUSTED: : "
    text += "CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: "
    show = str if writer.jax < (0, 8, 2) else human
    sizes = {"Limit": limit, "InUse": used, "MaxInUse": used, "MaxAllocSize": used // 5}
    sizes |= {"Reserved": 0, "PeakReserved": 0, "LargestFreeBlock": 0}
    rows = [(f"{label}:", show(value)) for label, value in sizes.items()]
    rows.insert(3, ("NumAllocs:", "4219"))
    stats = "Stats: " + "\n".join(f"{label:<18}{value:>20}" for label, value in rows) + "\n"
    pool = {
        "USED_MEM_CURRENT": used,
        "RESERVED_MEM_CURRENT": used + 32 * MIB,
        "USED_MEM_HIGH": used,
        "RESERVED_MEM_HIGH": used + 32 * MIB,
    }
    histogram = "Histogram of current allocation: (allocation_size_in_bytes, "
    histogram += "nb_allocation_of_that_sizes), ...;"
    records = [f"{text}{free}/{total}", stats, histogram, f"{used // 5}, 5"]
    records += [f"CU_MEMPOOL_ATTR_{key}: {value}" for key, value in pool.items()]
    return [writer.error(file, record) for record in records]


def _cuda_async_full() -> OomLog:
    name = "pool-too-small/cuda-async-0.9"
    writer = Writer((0, 9, 2), name)
    size = 5_368_709_120
    used = H100_80G - 3 * GIB
    lines = tells(*cuda_async(writer, size, 2_181_038_080, H100_80G, used))
    lines += refused((0, 9, 2), size)
    return log(
        name,
        lines,
        "pool-too-small",
        maybe="leak",
        requested=size,
        fallback="fragmentation leak memory-taken-later pool-not-obtained",
    )


def _compiler() -> list[OomLog]:
    logs = []
    for jax, size, target in (
        ((0, 4, 31), 14_763_950_080, 9_122_611_200),
        ((0, 10, 0), 19_327_352_832, 12_884_901_888),
        ((0, 11, 0), 8_912_896_000, -1_717_986_918),
    ):
        sign = "negative-target" if target < 0 else "remat"
        name = f"pool-too-small/{sign}-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        warning = rematerialization(writer, target, size + abs(target) // 3, 2 * size)
        lines = [*plain(warning), *refused(jax, size)]
        exact = size if jax < (0, 5, 0) else None
        logs.append(log(name, lines, "pool-too-small", maybe="fragmentation", requested=exact))
    for jax in ((0, 6, 2), (0, 11, 0)):
        name = f"pool-too-small/base-limit-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        record = base_limit(writer, 13_421_772_800, RTX_3060 * 3 // 4)
        lines = [*plain(record), *refused(jax, 4_563_402_752)]
        maybe = "request-larger-than-gpu fragmentation"
        logs.append(log(name, lines, "pool-too-small", maybe=maybe))
    return [*logs, _compiled_once()]


def _compiled_once() -> OomLog:
    names = ("init_params", "init_optimizer", "convert_element_type", "loss_fn", "train_step")
    lines = plain(
        *(
            f"WARNING:jax._src.interpreters.pxla:Compiling {name} with global shapes and types "
            f"[ShapedArray(float32[{512 * number},768])]. Argument mapping: (UnspecifiedValue,)."
            for number, name in enumerate(names, 1)
        )
    )
    size = 3_221_225_472
    lines += refused((0, 4, 33), size)
    return log(
        "pool-too-small/compiled-once-0.4",
        lines,
        "pool-too-small",
        maybe="fragmentation leak",
        requested=size,
    )


def request_larger_than_gpu() -> list[OomLog]:
    """One buffer is larger than the whole card."""
    prefix = "request-larger-than-gpu"
    old, new = (0, 4, 26), (0, 10, 2)
    huge = 5_497_558_138_880
    direct = "Failed to allocate request for 1.76TiB (1935140569088B) on device ordinal 2"
    return [
        log(f"{prefix}/tib-0.10", refused(new, 2_144_047_674_163), prefix),
        log(f"{prefix}/pib-0.6", refused((0, 6, 2), 2 << 50), prefix),
        log(f"{prefix}/bytes-0.4", refused(old, huge), prefix, requested=huge),
        log(
            f"{prefix}/platform-0.5",
            failed((0, 5, 3), "RESOURCE_EXHAUSTED", direct),
            prefix,
            requested=1_935_140_569_088,
        ),
        *_larger_than_small_card(),
        _larger_than_reported_total(),
        _larger_than_named_card(),
    ]


def _larger_than_small_card() -> list[OomLog]:
    logs = []
    for jax in ((0, 4, 28), (0, 10, 0)):
        name = f"request-larger-than-gpu/dump-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        size = 137_438_953_472
        pool = full_pool(writer, RTX_3060 * 3 // 4 // 256 * 256, 7 * GIB)
        row = "| 30%   41C    P8    12W / 170W |    412MiB / 12288MiB |      0%      Default |"
        lines = [*tells(row), *dump(writer, pool, size), *refused(jax, size)]
        cause = "request-larger-than-gpu"
        logs.append(
            log(
                name,
                lines,
                cause,
                maybe="pool-too-small",
                requested=size,
                fallback="pool-too-small",
            )
        )
    return logs


def _larger_than_reported_total() -> OomLog:
    name = "request-larger-than-gpu/cuda-async-0.10"
    writer = Writer((0, 10, 2), name)
    size = 193_273_528_320
    lines = tells(*cuda_async(writer, size, 70_866_960_384, H100_80G, 11 * GIB))
    lines += refused((0, 10, 2), size)
    cause = "request-larger-than-gpu"
    return log(
        name, lines, cause, maybe="pool-too-small", requested=size, fallback="pool-too-small"
    )


def _larger_than_named_card() -> OomLog:
    jax = (0, 9, 0)
    lines = tells("Running on 1 device: NVIDIA GeForce RTX 3060 (12288 MiB)")
    lines += refused(jax, 125_980_839_116)
    both = "request-larger-than-gpu pool-too-small"
    return log("request-larger-than-gpu/named-card-0.9", lines, both)


def fragmentation() -> list[OomLog]:
    """Enough is free in the pool, but no piece is large enough."""
    return [
        *(
            _holes(jax, size)
            for jax, size in (
                ((0, 3, 25), 1_476_395_008),
                ((0, 4, 20), 3_087_007_744),
                ((0, 8, 1), 2_415_919_104),
                ((0, 8, 2), 4_697_620_480),
                ((0, 10, 2), 5_905_580_032),
            )
        ),
        _central_gap(),
        _other_end(),
        _no_partition(),
        _regions(),
        _half_empty_map(),
    ]


def hole_sizes(writer: Writer, size: int) -> list[int]:
    """Returns holes that hold half as much again as the request, each much smaller than it."""
    return [int(size * writer.rng.uniform(0.3, 0.45)) // 256 * 256 for _ in range(5)]


def _fragmented(name: str, writer: Writer, pool: Pool, size: int) -> OomLog:
    free = pool.size - pool.used
    largest = max(pool.largest("lower"), pool.gap.size if pool.gap else 0)
    assert largest < size < free, name
    assert pool.limit - pool.size < size, name
    lines = [*dump(writer, pool, size), *refused(writer.jax, size)]
    return log(name, lines, "fragmentation", requested=size, fallback="pool-too-small leak")


def _holes(jax: Version, size: int) -> OomLog:
    name = f"fragmentation/bfc-dump-{'.'.join(map(str, jax))}"
    writer = Writer(jax, name)
    pool = Pool(A100_40G_POOL, [with_holes(writer, A100_40G_POOL, hole_sizes(writer, size))])
    return _fragmented(name, writer, pool, size)


def _central_gap() -> OomLog:
    name = "fragmentation/central-gap-0.11"
    writer = Writer((0, 11, 0), name)
    size = 7_516_192_768
    upper = split(writer, 256 * MIB, 3, "upper")
    gap = Chunk(4_026_531_840, tag="central_gap")
    lower = with_holes(writer, 40 * GIB - 256 * MIB - gap.size, hole_sizes(writer, size))
    return _fragmented(name, writer, Pool(40 * GIB, [[*lower, gap, *upper]]), size)


def _other_end() -> OomLog:
    name = "fragmentation/other-end-0.11"
    writer = Writer((0, 11, 1), name)
    size = 3_355_443_200
    hole = Chunk(3_892_314_112, tag="upper")
    upper = [*split(writer, 512 * MIB, 2, "upper"), hole, *split(writer, 512 * MIB, 2, "upper")]
    gap = Chunk(1_207_959_552, tag="central_gap")
    room = 30 * GIB - sum(chunk.size for chunk in upper) - gap.size
    lower = with_holes(writer, room, [536_870_912, 268_435_456])
    return _fragmented(name, writer, Pool(30 * GIB, [[*lower, gap, *upper]]), size)


def _no_partition() -> OomLog:
    name = "fragmentation/no-partition-0.11"
    writer = Writer((0, 11, 0), name)
    limit = 17_716_740_096
    size = 2_013_265_920
    pool = Pool(limit, [with_holes(writer, limit, hole_sizes(writer, size))])
    return _fragmented(name, writer, pool, size)


def _regions() -> OomLog:
    name = "fragmentation/many-regions-0.6"
    writer = Writer((0, 6, 1), name)
    regions = grown(writer, 12, 0.35)
    pool = Pool(sum(chunk.size for region in regions for chunk in region), regions, grows=True)
    return _fragmented(name, writer, pool, 1_879_048_192)


def _half_empty_map() -> OomLog:
    name = "fragmentation/half-empty-map-0.9"
    writer = Writer((0, 9, 2), name)
    size = 3_623_878_656
    pool = Pool(22 * GIB, [with_holes(writer, 22 * GIB, [3 * GIB + MIB] * 4, per_hole=2)])
    lines = [*warnings(writer, pool, size), *refused((0, 9, 2), size)]
    both = "fragmentation pool-too-small"
    return log(name, lines, both, requested=size, fallback="leak")
