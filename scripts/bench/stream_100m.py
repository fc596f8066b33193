"""Streams 100 million samples from disk, under a hard limit of memory.

Generates the file if it is not there (1.9 GiB; free space is checked first), then reads a shuffled
epoch twice: through a JAX step, and by a program that only has numpy, to see the whole of what it
takes. Each may have no more than the budget and 32 MiB beside what it had before it began to read.

The limit is RLIMIT_DATA, by which the kernel refuses writable memory: address space counts, whether
it is used or not. The peak is VmHWM, what really lay in memory, mapped files included, counted from
the moment before the first batch.

    python scripts/bench/stream_100m.py [FOLDER]
"""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from measuring import print_load

SAMPLES = 100_000_000
FEATURES = 4
# Divides the samples, so that no row is repeated to fill the last batch.
BATCH = 10_000
MIB = 1 << 20
BUDGETS = {"jax": 64 * MIB, "numpy": 16 * MIB}
REST = 32 * MIB
DATASETS = ("features", "labels")


def status(name):
    """Return a figure of this process in bytes, as the kernel says it."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def jax_step():
    """Return a compiled step that adds up features and labels, and where it begins."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def step(total, batch):
        features, labels = (batch[name] for name in DATASETS)
        return total[0] + features.sum(0), total[1] + labels.sum()

    total = jnp.zeros(FEATURES), jnp.zeros((), jnp.int32)
    zeros = np.zeros((BATCH, FEATURES), "f4"), np.zeros(BATCH, "i4")
    jax.block_until_ready(step(total, jax.device_put(dict(zip(DATASETS, zeros, strict=True)))))
    return step, total


def numpy_step():
    """Return the same without JAX."""
    import numpy as np

    def step(total, batch):
        features, labels = (batch[name] for name in DATASETS)
        return total[0] + features.sum(0), total[1] + int(labels.sum())

    return step, (np.zeros(FEATURES), 0)


def stream(path, way):
    """Read one epoch under the limit, and print what it took."""
    from vramfit.data import Loader

    budget = BUDGETS[way]
    step, total = jax_step() if way == "jax" else numpy_step()
    with Loader(path, DATASETS, batch_size=BATCH, memory=budget) as loader:
        limit = status("VmData") + budget + REST
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        baseline = status("VmRSS")
        begin = time.perf_counter()
        for batch in loader.to_device() if way == "jax" else loader:
            total = step(total, batch)
            del batch
        seconds = time.perf_counter() - begin
        stats, plan = loader.stats, loader.plan
        labels = int(total[1])
    peak = status("VmHWM")
    print(json.dumps([baseline, peak, stats.rows, stats.bytes, seconds, stats.waiting_s, labels]))
    print(plan, file=sys.stderr)


def generate(path):
    """Write the file."""
    needed = SAMPLES * (FEATURES * 4 + 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < 2 * needed:
        sys.exit(f"{path.parent}: {free / 1e9:.1f} GB free, {2 * needed / 1e9:.1f} wanted")
    words = [sys.executable, "-m", "vramfit", "data", "generate", path, "--kind", "tabular"]
    words += ["--samples", SAMPLES, "--features", FEATURES, "--compression", "none"]
    begin = time.perf_counter()
    subprocess.run([str(word) for word in words], check=True)
    seconds = time.perf_counter() - begin
    print(f"generated in {seconds:.0f} s, {path.stat().st_size / seconds / 1e6:.0f} MB/s")


def labels_by_h5py(path):
    """Return the sum of the labels, for comparison."""
    import h5py

    with h5py.File(path) as file:
        labels = file[DATASETS[1]]
        parts = range(0, SAMPLES, SAMPLES // 100)
        return sum(int(labels[at : at + SAMPLES // 100].sum(dtype="i8")) for at in parts)


def report(path, way, expected):
    """Stream in a process of its own, and say what came of it."""
    done = subprocess.run(
        [sys.executable, __file__, "--stream", path, way],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
    )
    baseline, peak, rows, count, seconds, waited, labels = json.loads(done.stdout)
    size, budget = path.stat().st_size, BUDGETS[way]
    allowed = budget + REST
    if (rows, labels) != (SAMPLES, expected):
        sys.exit(f"{rows} samples whose labels add up to {labels}, and not to {expected}")
    print(f"\n{way}: {rows:,} samples, whose labels add up to what h5py finds")
    print(f"  file {size / MIB:.0f} MiB, {size / allowed:.0f} times what may be added to memory")
    print(f"  memory before {baseline / MIB:.1f} MiB, at the peak {peak / MIB:.1f} MiB")
    print(
        f"  {(peak - baseline) / MIB:.1f} MiB more, of a budget of {budget / MIB:.0f} MiB and "
        f"{REST / MIB:.0f} beside it: {'kept' if peak - baseline <= allowed else 'NOT KEPT'}"
    )
    print(f"  {rows / seconds / 1e6:.2f} million samples/s, {count / seconds / 1e6:.0f} MB/s")
    print(f"  {seconds:.1f} s, for {waited:.1f} of which the program waited for batches")
    return peak - baseline <= allowed


def main():
    """Stream in both ways."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    path = folder / "stream-100m.h5"
    print_load("before")
    if not path.exists():
        generate(path)
    expected = labels_by_h5py(path)
    kept = [report(path, way, expected) for way in BUDGETS]
    print_load("after")
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stream"]:
        stream(*sys.argv[2:])
    else:
        main()
