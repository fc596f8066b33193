"""How fast the loader hands out shuffled batches, beside h5py, in one run, as ratios.

Opponents: `fancy` is what people write first (`f["x"][sorted(random_rows)]`); `blocks` is what a
careful person writes (blocks of whole chunks in random order, read into a pool of the memory that
ours has, and mixed there); `sequential` does not shuffle at all: it reads whole chunks into one
buffer, one after another. All files lie in the page cache. `a core` counts the processor time of
all threads instead of the clock. A training run makes its loader once and goes through it many
times, and so does this, each turn for as long as `fancy` is given; the first epoch, which takes its
memory from the system, has a figure of its own.

Absolute figures mean little on a busy machine, ratios by the clock below 2 neither; those of
processor time are steadier. Goals: contiguous 150x fancy and 3x blocks; gzip 1400x fancy and, a
core, 2x sequential; columns 100x fancy; file open and first batch in 50 ms.

A build for development is slower than what users get, so the first line says which one it is;
`maturin develop --release` makes the other, and `make bench` uses it.

    python scripts/bench/data.py [LAYOUT...]
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

import h5py
import numpy as np
from measuring import print_load

from vramfit import _native
from vramfit.data import Loader

ROWS = 1_000_000
WIDTH = 64
BATCH = 256
MEMORY = 64 << 20
REPEATS = 5
SECONDS = 1.0
LAYOUTS = {
    "contiguous": {},
    "gzip": {"chunks": (1024, WIDTH), "compression": "gzip", "shuffle": True},
    "columns": {"chunks": (2048, 16)},
}


def loader_of(path):
    """Make the loader that is measured."""
    return Loader(path, "x", batch_size=BATCH, memory=MEMORY, drop_last=True)


def fancy(path):
    """Read random batches for a while."""
    random = np.random.default_rng(0)
    count, begin = 0, time.perf_counter()
    with h5py.File(path) as f:
        x = f["x"]
        while time.perf_counter() - begin < SECONDS:
            rows = np.sort(random.choice(ROWS, BATCH, replace=False, shuffle=False))
            count += x[rows].nbytes
    return count


def blocks(path, block=2048):
    """Read an epoch by blocks of whole chunks, mixed in pools of the memory that ours has."""
    random = np.random.default_rng(0)
    numbers = random.permutation(-(-ROWS // block))
    pool_blocks = max(1, MEMORY // 2 // (block * WIDTH * 4))
    count = 0
    with h5py.File(path) as f:
        x = f["x"]
        for first in range(0, len(numbers), pool_blocks):
            parts = [x[b * block : (b + 1) * block] for b in numbers[first : first + pool_blocks]]
            pool = np.concatenate(parts)
            order = random.permutation(len(pool))
            for at in range(0, len(pool) - BATCH + 1, BATCH):
                count += pool[order[at : at + BATCH]].nbytes
    return count


def sequential(path, block=2048):
    """Read an epoch in the order of the file, without making batches of it."""
    count = 0
    with h5py.File(path) as f:
        x = f["x"]
        buffer = np.empty((block, WIDTH), "f4")
        for start in range(0, ROWS - block + 1, block):
            x.read_direct(buffer, np.s_[start : start + block])
            count += buffer.nbytes
    return count


def first_batch(path):
    """Open a file and get one batch; return the milliseconds of both."""
    begin = time.perf_counter()
    with loader_of(path) as loader:
        next(iter(loader))
        return (time.perf_counter() - begin) * 1e3


def measured(way, path):
    """Return megabytes a second, by the clock and of one processor."""
    wall, used = time.perf_counter(), time.process_time()
    count = way(path)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    return count / wall / 1e6, count / used / 1e6


def write(path, options):
    """Write the file, of normal numbers rounded to 1/1024."""
    data = np.random.default_rng(1).standard_normal((ROWS, WIDTH), dtype="f4")
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.round(data * 1024) / 1024, **options)
    # Otherwise the system writes it while it is read.
    os.sync()


def compare(name, path):
    """Print how one layout is read."""
    with loader_of(path) as loader:

        def epoch(_):
            return sum(batch["x"].nbytes for batch in loader)

        def ours(_):
            count, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < SECONDS:
                count += epoch(path)
            return count

        first, _ = measured(epoch, path)
        ways = (ours, fancy, blocks, sequential)
        runs = {way: [] for way in ways}
        for _ in range(REPEATS):
            for way in ways:
                runs[way].append(measured(way, path))
    wall, core = (
        {way: statistics.median(run[unit] for run in runs[way]) for way in ways} for unit in (0, 1)
    )
    opened = statistics.median(first_batch(path) for _ in range(REPEATS))
    print(f"{name}: {wall[ours]:.0f} MB/s, {core[ours]:.0f} MB/s a core")
    print(f"  the first epoch: {first:.0f} MB/s")
    for way in ways[1:]:
        print(
            f"  h5py {way.__name__:10} {wall[way]:7.1f} MB/s: {wall[ours] / wall[way]:7.1f}x"
            f"   {core[way]:7.1f} MB/s a core: {core[ours] / core[way]:7.1f}x"
        )
    print(f"  open and first batch: {opened:.1f} ms")


def main():
    """Print the ratios of all layouts, or of those that are named."""
    print("a release build" if _native.is_release else "a build for development")
    print_load("before")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or LAYOUTS:
            path = pathlib.Path(folder) / f"{name}.h5"
            write(path, LAYOUTS[name])
            compare(name, path)
            path.unlink()
    print_load("after")


if __name__ == "__main__":
    main()
