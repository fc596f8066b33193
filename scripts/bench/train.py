"""`vramfit.train.fit` beside loops written by hand: what the loop costs, and what scanning wins.

Each figure is a ratio of two runs in one process, the median of several turns, because the speed of
the machine varies. Goals: at most 3 % above a hand-written loop (jit, donated state) at steps of
400 µs, for which the network is made as wide as it takes here; at least 1.3 times as fast with
steps of a small network (64-128-10) in one dispatch; at most 2 % of three epochs waiting for a
contiguous file; at most 50 ms of standing still for a checkpoint of 64 MB.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from measuring import print_load

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vramfit.data import Loader
from vramfit.train import Checkpoints, fit

STEPS, BATCH, TURNS = 1500, 256, 9
STEP_SECONDS = 400e-6
OPTIMIZER = optax.adamw(1e-3)
# Neurons, so many that a step takes as long on this machine.
width = 32


def start():
    """Return a small network and its optimizer."""
    keys = jax.random.split(jax.random.key(0), 2)
    weights = [
        jax.random.normal(keys[0], (64, width)) / 8,
        jax.random.normal(keys[1], (width, 10)) / np.sqrt(width),
    ]
    return {"weights": weights, "optimizer": OPTIMIZER.init(weights)}


def find_width(batch):
    """Make the network as wide as a step of `STEP_SECONDS` takes."""
    global width
    few = Resident(batch, STEPS // 5)
    while width < 8192 and min(by_hand(few) for _ in range(3)) < STEP_SECONDS:
        width += max(32, width // 8)


def step(state, batch):
    """Take a step."""

    def loss_of(weights):
        logits = jax.nn.relu(batch["x"] @ weights[0]) @ weights[1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    loss, slopes = jax.value_and_grad(loss_of)(state["weights"])
    updates, optimizer = OPTIMIZER.update(slopes, state["optimizer"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": optimizer}, loss


class Resident:
    """One batch again and again, so that reading does not count."""

    def __init__(self, batch, count=STEPS):
        self.batch, self.count = batch, count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            yield self.batch


class Shuffled:
    """The rows of arrays in memory in a random order, as anyone writes it."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        order = np.random.default_rng(1).permutation(len(self.x))
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[begin : begin + BATCH]
            yield {"x": self.x[rows], "y": self.y[rows]}


def by_hand(batches):
    """Return seconds per step of a loop as anyone writes it; compiled before."""
    jitted = jax.jit(step, donate_argnums=0)
    state, loss = jitted(start(), next(iter(batches)))
    loss.block_until_ready()
    begun, count = time.perf_counter(), 0
    for batch in batches:
        state, loss = jitted(state, batch)
        count += 1
    loss.block_until_ready()
    return (time.perf_counter() - begun) / count


def by_fit(batches, **options):
    """Return seconds per step of `fit`, and the result."""
    result = fit(step, start(), batches, progress="none", **options)
    timing = result.timing
    return (timing.data_wait + timing.step) / result.steps, result


def ratio(ours, others):
    """Return the median of the ratios, and the range."""
    ratios = sorted(a / b for a, b in zip(ours, others, strict=True))
    return statistics.median(ratios), ratios[0], ratios[-1]


def show(what, value, low, high, goal):
    """Print a figure."""
    print(f"  {what:<52} {value:6.3f}  ({low:.3f} to {high:.3f})  goal {goal}")


def in_turn(*runs):
    """Run each several times in turn, every other time backwards, and return what each gave."""
    found = [[] for _ in runs]
    for turn in range(TURNS):
        both = list(zip(runs, found, strict=True))
        for run, given in both[:: 1 if turn % 2 else -1]:
            given.append(run())
    return found


def loops(folder):
    """Compare the loops with a batch that lies on the device."""
    random = np.random.default_rng(0)
    x = random.standard_normal((STEPS * BATCH, 64)).astype("f4")
    y = random.integers(0, 10, len(x)).astype("i4")
    path = folder / "train.h5"
    with h5py.File(path, "w") as f:
        f["x"], f["y"] = x, y
    batch = {"x": jnp.array(x[:BATCH]), "y": jnp.array(y[:BATCH])}
    find_width(batch)
    hand, memory, ours, results = in_turn(
        lambda: by_hand(Resident(batch)),
        lambda: by_hand(Shuffled(x, y)),
        lambda: by_fit(Resident(batch))[0],
        lambda: by_fit(Loader(path, ["x", "y"], batch_size=BATCH, memory="64MiB"), epochs=3),
    )
    loaded = [seconds for seconds, _ in results]
    timings = [result.timing for _, result in results]
    waits = sorted(timing.data_wait / (timing.data_wait + timing.step) for timing in timings)
    print(f"a step takes {statistics.median(hand) * 1e6:.0f} µs by hand, with {width} neurons")
    show("fit / hand-written jit and donate", *ratio(ours, hand), "<= 1.03")
    show("fit from HDF5 / hand-written, batch on the device", *ratio(loaded, hand), "<= 1.03")
    show("fit from HDF5 / hand-written, shuffled in memory", *ratio(loaded, memory), "<= 1.03")
    median = statistics.median(waits)
    show("share of time waiting for the file", median, waits[0], waits[-1], "<= 0.02")


def scanned_by_hand(stacks, stacked):
    """Return seconds per step of a loop over `lax.scan` as anyone writes it."""
    scanned = jax.jit(lambda state, stack: jax.lax.scan(step, state, stack), donate_argnums=0)
    state, losses = scanned(start(), next(iter(stacks)))
    losses.block_until_ready()
    begun = time.perf_counter()
    for stack in stacks:
        state, losses = scanned(state, stack)
    losses.block_until_ready()
    return (time.perf_counter() - begun) / len(stacks) / stacked


def scans():
    """Compare loops that give the device many steps at once."""
    global width
    width = 128
    random = np.random.default_rng(0)
    x, y = random.standard_normal((BATCH, 64)).astype("f4"), random.integers(0, 10, BATCH)
    batch = {"x": jnp.array(x), "y": jnp.array(y, jnp.int32)}
    for stacked in (8, 32):
        stack = {name: jnp.stack([part] * stacked) for name, part in batch.items()}
        stacks = Resident(stack, STEPS // stacked)
        single, by_scan, ours = in_turn(
            lambda: by_hand(Resident(batch)),
            lambda stacks=stacks, at_once=stacked: scanned_by_hand(stacks, at_once),
            lambda stacks=stacks, at_once=stacked: by_fit(stacks, steps_per_dispatch=at_once)[0],
        )
        if stacked == 8:
            print(f"a small step takes {statistics.median(single) * 1e6:.0f} µs by hand")
        show(f"hand-written / fit, {stacked} steps in a dispatch", *ratio(single, ours), ">= 1.3")
        show(f"hand-written scan of {stacked} / the same", *ratio(by_scan, ours), "none")


def checkpoints(folder):
    """Measure how long training stands still for a checkpoint of 64 MB."""
    weights = {name: jnp.ones((2000, 2000)) for name in "abcd"}
    # Enough steps between two checkpoints for one to be written: otherwise the disk is measured.
    noise = [np.float32(number) for number in range(240)]

    def slow(state, batch):
        return jax.tree.map(lambda w: w * 1.0001 + batch, state), state["a"][0, 0]

    def seconds(**options):
        result = fit(slow, jax.tree.map(jnp.copy, weights), noise, progress="none", **options)
        return result.timing.checkpoint

    stood = []
    for turn in range(TURNS):
        # Three checkpoints against one: the difference is two, without the wait at the end.
        many = Checkpoints(every_steps=80, every_seconds=None)
        one = Checkpoints(every_steps=None, every_seconds=None)
        first = seconds(directory=folder / f"many{turn}", checkpoints=many)
        second = seconds(directory=folder / f"one{turn}", checkpoints=one)
        stood.append((first - second) / 2)
    stood.sort()
    show(
        "seconds of standing still, 64 MB", statistics.median(stood), stood[0], stood[-1], "<= 0.05"
    )


def main():
    """Print the figures."""
    print_load("before")
    print(f"JAX {jax.__version__} on {jax.devices()[0].platform}")
    with tempfile.TemporaryDirectory() as folder:
        loops(Path(folder))
        scans()
        checkpoints(Path(folder))
    print_load("after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
