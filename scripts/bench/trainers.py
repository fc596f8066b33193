"""`vramfit.train.fit` beside Keras on JAX, and beside PyTorch's DataLoader before the same step.

One network, one optimizer, one data set: 64 numbers a row, 128 units, 10 classes, AdamW, batches
of 256 in a random order. vramfit streams the rows from an HDF5 file in every comparison. Keras has
them in memory, which is the best that it can be given. PyTorch's DataLoader is measured twice: with
rows in memory, and with a dataset that reads the file by h5py, row by row, as tutorials do.

Each figure is a ratio of two runs in one process, the median of several turns. Compiling is left
out of both sides. A rival that is not installed is said to be so.
"""

import importlib.util
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

from measuring import print_load

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

import h5py
import jax
import numpy as np
from train import BATCH, by_fit, show, start, step

from vramfit.data import Loader

STEPS, TURNS, FEW = 1500, 5, 40


def of_ours(path, **options):
    """Return seconds per step of `fit`, from the file."""
    stacked = options.get("steps_per_dispatch")
    loader = Loader(path, ["x", "y"], batch_size=BATCH, drop_last=True, stacked_batches=stacked)
    return by_fit(loader, **options)[0]


def of_keras(x, y, at_once):
    """Return seconds per step of Keras, with rows in memory, once it has compiled."""
    import keras

    model = keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=at_once,
    )
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    begun = time.perf_counter()
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    return (time.perf_counter() - begun) / (len(x) // BATCH)


def of_torch(data, workers, steps):
    """Return seconds per step of the hand-written loop, fed by PyTorch's DataLoader."""
    from torch.utils.data import DataLoader

    batches = DataLoader(
        data,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    jitted = jax.jit(step, donate_argnums=0)
    arrived = ({"x": x.numpy(), "y": y.numpy()} for x, y in batches)
    # The first batch waits for processes to start, and for the step to compile.
    state, loss = jitted(start(), next(arrived))
    loss.block_until_ready()
    begun = time.perf_counter()
    for batch in itertools.islice(arrived, steps):
        state, loss = jitted(state, batch)
    loss.block_until_ready()
    return (time.perf_counter() - begun) / steps


class Rows:
    """A dataset of PyTorch that reads rows of a file by h5py, opened where it is used."""

    def __init__(self, path, rows):
        self.path, self.rows, self.file = path, rows, None

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        self.file = self.file or h5py.File(self.path)
        return self.file["x"][row], self.file["y"][row]


def compare(what, ours, theirs):
    """Measure both in turn, and print how many times as fast ours is."""
    ratios = []
    for turn in range(TURNS):
        both = (ours, theirs) if turn % 2 else (theirs, ours)
        seconds = {run: run() for run in both}
        ratios.append(seconds[theirs] / seconds[ours])
    ratios.sort()
    show(what, ratios[len(ratios) // 2], ratios[0], ratios[-1], "> 1")


def main():
    """Print the figures."""
    print_load("before")
    print(f"JAX {jax.__version__} on {jax.devices()[0].platform}; how many times as fast fit is:")
    random = np.random.default_rng(0)
    x = random.standard_normal((STEPS * BATCH, 64)).astype("f4")
    y = random.integers(0, 10, len(x)).astype("i4")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.h5"
        with h5py.File(path, "w") as f:
            f["x"], f["y"] = x, y

        def ours():
            return of_ours(path)

        def ours_at_once():
            return of_ours(path, steps_per_dispatch=32)

        if importlib.util.find_spec("keras") is None:
            print("  keras is not installed, so it is not compared")
        else:
            compare("Keras, rows in memory", ours, lambda: of_keras(x, y, 1))
            compare("Keras, 32 steps at once; so is fit", ours_at_once, lambda: of_keras(x, y, 32))
        if importlib.util.find_spec("torch") is None:
            print("  torch is not installed, so it is not compared")
        else:
            from torch import from_numpy
            from torch.utils.data import TensorDataset

            memory = TensorDataset(from_numpy(x), from_numpy(y))
            compare("DataLoader, rows in memory", ours, lambda: of_torch(memory, 0, STEPS // 5))
            for workers in (0, 2):
                # A dataset that has opened its file cannot be sent to a process.
                compare(
                    f"DataLoader, h5py, {workers} workers",
                    ours,
                    lambda workers=workers: of_torch(Rows(path, len(x)), workers, FEW),
                )
    print_load("after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
