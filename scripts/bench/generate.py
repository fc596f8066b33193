"""How fast `vramfit data generate` writes, beside h5py writing the same arrays from memory.

h5py has the easier task: its arrays are there, ours are made up on the way. Both write the same
chunks with the same filters to the same folder, in turns; gzip is at level 4 in h5py and at 2 in
ours, zstd at 3 and at 1: the usual ones of both, of which ours makes the smaller file. Without
compression both wait for the disk. Goal: three times as fast with gzip, on two idle cores. On a
busy machine only the seconds of processor time say something.

`maturin develop --release` makes the build that users get, and `make bench` uses it.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import hdf5plugin
from measuring import print_load

from vramfit import _native

SAMPLES = 40_000
REPEATS = 5
WAYS = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "zstd": {"compression": hdf5plugin.Zstd(clevel=3), "shuffle": True},
}


def ours(path, compression):
    """Generate a file; return the seconds by the clock and of the processors, Python's included."""
    path.unlink(missing_ok=True)
    words = [sys.executable, "-m", "vramfit", "data", "generate", path, "--kind", "sequences"]
    words += ["--samples", SAMPLES, "--compression", compression, "--quiet"]
    start, used = time.perf_counter(), children()
    subprocess.run([str(word) for word in words], check=True)
    return time.perf_counter() - start, children() - used


def children():
    """Return the seconds that finished child processes have used of the processors."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def theirs(path, arrays, chunk_rows, options):
    """Write the arrays with h5py, to the disk as ours; return the same two times."""
    path.unlink(missing_ok=True)
    start, used = time.perf_counter(), time.process_time()
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            chunks = (chunk_rows, *array.shape[1:]) if options else None
            file.create_dataset(name, data=array, chunks=chunks, **options)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - start, time.process_time() - used


def main():
    """Print a table."""
    print("a release build" if _native.is_release else "a build for development")
    print_load("before")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = pathlib.Path(folder, "ours.h5")
        for compression, options in WAYS.items():
            ours(path, compression)
            with h5py.File(path) as file:
                arrays = {name: file[name][:] for name in file}
                chunks = file["input_sequences"].chunks
            size = sum(array.nbytes for array in arrays.values()) / 1e6
            chunk_rows = chunks[0] if chunks else None
            pairs = [
                (
                    ours(path, compression),
                    theirs(pathlib.Path(folder, "theirs.h5"), arrays, chunk_rows, options),
                )
                for _ in range(REPEATS)
            ]
            for at, unit in enumerate(["by the clock", "a second of one processor"]):
                our, their = (
                    statistics.median(run[at] for run in runs) for runs in zip(*pairs, strict=True)
                )
                print(
                    f"{compression:>5}: vramfit {size / our:5.0f} MB/s, h5py {size / their:5.0f} "
                    f"MB/s {unit}: {their / our:.1f} times as fast"
                )
    print_load("after")


if __name__ == "__main__":
    main()
