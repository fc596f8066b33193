"""How fast windows, episodes and many files are read, beside h5py and Grain, in one run, as ratios.

Opponents: `lists` is what the loaders of episode data do (robomimic's `SequenceDataset`): a list of
episodes and starts, and a slice of an open h5py file for each sample; `grain` is the same
as a `MapDataset` with Grain's shuffle and batches. `rows` is our own loader over the same bytes as
contiguous rows of one file. All files lie in the page cache; bytes are those handed out.

Goals: windows 50x lists, episodes as far as memory allows (a slice of 50 KB takes h5py little more
time than copying it), both at least half as fast as rows; 10,000 files opened in 5 s, within the
memory budget.

    python scripts/bench/samples.py
"""

import pathlib
import resource
import statistics
import sys
import tempfile
import time

import h5py
import numpy as np
from measuring import print_load

from vramfit import _native
from vramfit.data import Groups, Loader, Windows

EPISODES = 2000
STEPS = 200
WIDTH = 64
LENGTH = 16
BATCH = 256
SECONDS = 1.0
REPEATS = 5
FILES = 10_000


def write(folder):
    """Write the same rows as episodes and as one dataset."""
    random = np.random.default_rng(0)
    with h5py.File(folder / "episodes.h5", "w") as f, h5py.File(folder / "rows.h5", "w") as flat:
        rows = flat.create_dataset("obs", (EPISODES * STEPS, WIDTH), "f4")
        for number in range(EPISODES):
            values = random.random((STEPS, WIDTH), dtype="f4")
            f[f"data/demo_{number}/obs"] = values
            rows[number * STEPS : (number + 1) * STEPS] = values
    (folder / "files").mkdir()
    for number in range(FILES):
        with h5py.File(folder / "files" / f"{number}.h5", "w") as f:
            f["x"] = np.full((100, 16), number, "f4")


class Slices:
    """Windows of episodes, each read by a slice of an open file."""

    def __init__(self, path, length):
        self.file = h5py.File(path)
        self.length = length
        starts = STEPS - length + 1
        self.places = [(f"data/demo_{e}/obs", s) for e in range(EPISODES) for s in range(starts)]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, number):
        dataset, start = self.places[number]
        return self.file[dataset][start : start + self.length]


def lists(path, length, batch):
    """Yield batches of slices for ever."""
    source, random = Slices(path, length), np.random.default_rng(0)
    while True:
        numbers = random.integers(0, len(source), batch)
        yield np.stack([source[number] for number in numbers])


def grain_batches(path, length, batch):
    """Yield Grain's batches for ever."""
    import grain

    dataset = grain.MapDataset.source(Slices(path, length)).seed(0).shuffle().repeat()
    yield from dataset.batch(batch).to_iter_dataset()


def ours(path, dataset, batch, **options):
    """Yield the batches of our loader for ever."""
    loader = Loader(path, dataset, batch_size=batch, memory="64MiB", drop_last=True, **options)
    while True:
        for found in loader:
            yield found[dataset]


def rate(batches):
    """Return megabytes a second, once the first batches are there."""
    for _ in range(3):
        next(batches)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        count += next(batches).nbytes
    return count / (time.perf_counter() - begin) / 1e6


def compare(name, ways):
    """Print how one kind of sample is read."""
    runs = {way: [] for way in ways}
    for _ in range(REPEATS):
        for way, batches in ways.items():
            runs[way].append(rate(batches))
    own, *others = ((way, statistics.median(found)) for way, found in runs.items())
    print(f"{name}: {own[1]:.0f} MB/s")
    for way, found in others:
        print(f"  {way:6} {found:8.1f} MB/s: {own[1] / found:8.2f}x")


def open_files(folder):
    """Print how long it takes to open many files, and what they take."""
    begin = time.perf_counter()
    with Loader(folder / "files", "x", batch_size=BATCH, memory="32MiB") as loader:
        opened = time.perf_counter() - begin
        rows = sum(len(batch["x"]) for batch in loader)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{FILES} files: opened in {opened:.2f} s; {rows} rows; {peak:.0f} MiB at the peak")


def main():
    """Print the ratios of all kinds of samples."""
    print("a release build" if _native.is_release else "a build for development")
    print_load("before")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder)
        episodes, rows = folder / "episodes.h5", folder / "rows.h5"
        open_files(folder)
        flat = ours(rows, "obs", BATCH)
        ways = {
            "ours": ours(episodes, "data/*/obs", BATCH, samples=Windows(LENGTH)),
            "rows": flat,
            "lists": lists(episodes, LENGTH, BATCH),
        }
        try:
            import grain  # noqa: F401

            ways["grain"] = grain_batches(episodes, LENGTH, BATCH)
        except ImportError:
            print("Grain is not installed")
        compare(f"windows of {LENGTH} rows", ways)
        ways = {
            "ours": ours(episodes, "data/*/obs", 16, samples=Groups()),
            "rows": flat,
            "lists": lists(episodes, STEPS, 16),
        }
        if "grain" in sys.modules:
            ways["grain"] = grain_batches(episodes, STEPS, 16)
        compare(f"episodes of {STEPS} rows", ways)
    print_load("after")


if __name__ == "__main__":
    main()
