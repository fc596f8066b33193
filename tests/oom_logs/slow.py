"""Programs that fail late: something is kept, or one function is compiled again and again."""

from __future__ import annotations

from .dump import GIB, Chunk, Pool, dump, split
from .log import OomLog, decisive, log, tells
from .texts import Version, Writer, failed, out_of_memory, raised, refused, steps


def equal_chunks(writer: Writer, limit: int, size: int, count: int) -> Pool:
    """Returns a pool that very many chunks of one size fill."""
    many = [Chunk(size, size)] * count
    rest = limit - size * count
    return Pool(limit, [[*split(writer, rest * 9 // 10 // 256 * 256, 12), *many, _tail(rest)]])


def _tail(rest: int) -> Chunk:
    return Chunk(rest - rest * 9 // 10 // 256 * 256)


def leaks() -> list[OomLog]:
    """The same step ran for long: something keeps what it made."""
    return [*_late_failures(), *_equal_chunks(), _printed_use()]


def _late_failures() -> list[OomLog]:
    logs = []
    for jax, last, size in (((0, 4, 30), 870, 201_326_592), ((0, 10, 2), 3400, 0)):
        name = f"leak/late-failure-{jax[0]}.{jax[1]}"
        lines = [*tells(steps(10, last, 10)), *refused(jax, size or 1_245_708_288)]
        logs.append(
            log(
                name,
                lines,
                "leak",
                maybe="pool-too-small fragmentation recompilation",
                requested=size or None,
                fallback="pool-too-small",
            )
        )
    return logs


def _equal_chunks() -> list[OomLog]:
    logs = []
    for jax, late in (((0, 8, 1), True), ((0, 10, 1), False), ((0, 11, 0), True)):
        name = f"leak/equal-chunks-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        pool = equal_chunks(writer, 16 * GIB, 8_388_608, 1901)
        size = 268_435_456
        lines = tells(steps(100, 1900, 100)) if late else []
        lines += dump(writer, pool, size)
        lines += refused(jax, size)
        logs.append(
            log(
                name,
                lines,
                "leak" if late else "leak pool-too-small",
                present="leak",
                maybe="pool-too-small",
                requested=size,
                fallback="pool-too-small fragmentation",
            )
        )
    return logs


def _printed_use() -> OomLog:
    rows = [
        f"step {step:>5} | loss {9 / (1 + step / 90):.4f} | bytes_in_use {2**31 + step * 20971520}"
        for step in range(0, 640, 20)
    ]
    lines = [*tells(*rows), *refused((0, 7, 0), 20_971_520)]
    return log(
        "leak/printed-use-0.7",
        lines,
        "leak",
        maybe="pool-too-small fragmentation recompilation",
        fallback="pool-too-small",
    )


def recompilation() -> list[OomLog]:
    """One function is compiled again and again."""
    pool = out_of_memory((0, 4, 35), 402_653_184)
    cubin = "Failed to load in-memory CUBIN (compiled for a different GPU?).: "
    cubin += "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    new = (0, 10, 1)
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=88213.0. "
    killed += "Some of the step tasks have been OOM Killed."
    return [
        log(
            "recompilation/shapes-0.4",
            [*tells(*_compilations((0, 4, 35), 260)), *raised((0, 4, 35), pool)],
            "recompilation pool-too-small leak",
            present="recompilation",
            maybe="fragmentation",
            requested=402_653_184,
            fallback="pool-too-small leak",
        ),
        log(
            "recompilation/cubin-0.10",
            [*tells(*_compilations(new, 480)), *failed(new, "RESOURCE_EXHAUSTED", cubin)],
            "recompilation outside-pool",
            present="recompilation",
            maybe="leak",
            fallback="outside-pool",
        ),
        log(
            "recompilation/cache-misses-0.7",
            [*tells(*_cache_misses(190)), *refused((0, 7, 1), 335_544_320)],
            "recompilation pool-too-small leak",
            present="recompilation",
            maybe="fragmentation",
            fallback="pool-too-small leak",
        ),
        log(
            "recompilation/host-memory-0.5",
            [*tells(*_compilations((0, 5, 3), 900)), *decisive(killed)],
            "recompilation host-memory",
            present="recompilation host-memory",
            maybe="leak",
            fallback="host-memory leak",
        ),
    ]


def _compilations(jax: Version, count: int) -> list[str]:
    rows = []
    for number in range(count):
        length = 64 + (number * 37) % 1021
        shape = f"ShapedArray(int32[{length},16])"
        if jax < (0, 7, 0):
            name, shapes = "train_step", f"[ShapedArray(float32[768,768]), {shape}]"
        else:
            name, shapes = "jit(train_step)", f"(ShapedArray(float32[768,768]), {shape})"
        clock = f"{number // 900:02}:{number // 15 % 60:02}:{number % 15 * 4:02}"
        start = f"WARNING:2025-06-11 {clock},310:"
        rows.append(
            f"{start}jax._src.interpreters.pxla:1906: Compiling {name} with global shapes and "
            f"types {shapes}. Argument mapping: (UnspecifiedValue, UnspecifiedValue)."
        )
        took = 1.2 + number % 7 / 10
        rows.append(
            f"{start}jax._src.dispatch:198: Finished XLA compilation of jit(train_step) in "
            f"{took:.9f} sec"
        )
    return rows


def _cache_misses(count: int) -> list[str]:
    return [
        "WARNING:jax._src.pjit:TRACING CACHE MISS at /workspace/train.py:118:15 (main) because:\n"
        "  for train_step defined at /workspace/train.py:61\n"
        "  never seen input type signature:\n"
        f"    x: i32[{48 + number * 3},16]"
        for number in range(count)
    ]
