"""Kill a training run at random moments, go on each time, and compare the end with a whole run.

The run reads an HDF5 file, makes a checkpoint every few steps and is ended by SIGKILL: while Python
starts, while it trains, while a checkpoint is written. The last attempt is left alone. Its
parameters, optimizer state and mean losses have to be those of a run that nobody disturbed, to the
last bit. A callback changes the learning rate by what it has seen of the losses.

A run that is to be killed does not begin its last epoch: it is still there when the signal comes,
however busy the machine is.

    python scripts/verify/kill_training.py --kills 100
"""

import argparse
import collections
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROWS, BATCH = 4096, 32


def train(file, directory, epochs, held):
    """Be the run: train a small network and print a digest of all that was learnt.

    With a file `held`, make it and wait to be killed where the last epoch would begin.
    """
    import jax
    import jax.numpy as jnp

    from vramfit.data import Loader
    from vramfit.train import Checkpoints, LogPoint, fit

    class LowerRate:
        """Lowers the learning rate by a little when the loss has increased."""

        previous = float("inf")

        def __call__(self, event, run):
            if isinstance(event, LogPoint):
                if event.metrics["loss"] > self.previous:
                    run.learning_rate = 0.99 * run.learning_rate
                self.previous = event.metrics["loss"]

        def save_state(self):
            return self.previous

        def restore_state(self, previous):
            self.previous = previous

    def step(state, batch):
        def loss_of(weights):
            hidden = jnp.tanh(batch["x"] @ weights["a"])
            return ((hidden @ weights["b"] - batch["y"]) ** 2).mean()

        loss, slopes = jax.value_and_grad(loss_of)(state["weights"])
        momentum = jax.tree.map(lambda m, s: 0.9 * m + s, state["momentum"], slopes)
        key, noise = jax.random.split(state["key"])
        rate = state["hyperparams"]["learning_rate"]
        weights = jax.tree.map(
            lambda w, m: w - rate * m + 1e-4 * jax.random.normal(noise, w.shape),
            state["weights"],
            momentum,
        )
        return {**state, "weights": weights, "momentum": momentum, "key": key}, loss

    class HeldLoader(Loader):
        def _start(self, epoch, position):
            if held is not None and epoch == epochs - 1:
                held.touch()
                threading.Event().wait()
            return super()._start(epoch, position)

    key = jax.random.key(0)
    weights = {"a": jax.random.normal(key, (8, 64)), "b": jax.random.normal(key, (64,)) / 8}
    momentum = jax.tree.map(jnp.zeros_like, weights)
    result = fit(
        step,
        {
            "weights": weights,
            "momentum": momentum,
            "key": key,
            "hyperparams": {"learning_rate": jnp.float32(0.01)},
        },
        HeldLoader(file, ["x", "y"], batch_size=BATCH, memory="4MiB"),
        epochs=epochs,
        directory=directory,
        checkpoints=None if directory is None else Checkpoints(every_seconds=0.05),
        log_every=7,
        progress="plain",
        callbacks=[LowerRate()],
    )
    learnt = {**result.state, "key": jax.random.key_data(result.state["key"])}
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(learnt)):
        digest.update(leaf.tobytes())
    digest.update(json.dumps([epoch.train for epoch in result.epochs]).encode())
    print(digest.hexdigest(), result.steps)


def write(file):
    """Write a file that can be learnt."""
    import h5py
    import numpy as np

    values = np.random.default_rng(0)
    x = values.standard_normal((ROWS, 8)).astype("f4")
    with h5py.File(file, "w") as f:
        f.create_dataset("x", data=x, chunks=(64, 8), compression="gzip")
        f["y"] = np.sin(x.sum(axis=1)).astype("f4")


def child(file, directory, epochs, held=None):
    """Start a run; see `train`."""
    words = [sys.executable, __file__, "--epochs", str(epochs), "--file", str(file)]
    if directory is not None:
        words += ["--directory", str(directory)]
    if held is not None:
        words += ["--held", str(held)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def journal_of(directory):
    """Return which file the journal is: each attempt makes a new one."""
    journal = directory / "metrics.jsonl"
    return journal.stat().st_ino if journal.exists() else None


def wait_for_steps(run, directory, before, held):
    """Wait until a run has made steps, going by its journal, or makes no more."""
    while run.poll() is None and not held.exists():
        if journal_of(directory) != before:
            _, _, since = (directory / "metrics.jsonl").read_text().rpartition('"start"')
            if '"steps"' in since:
                return
        time.sleep(0.01)


def moment(directory):
    """Say what the run was doing when it was killed, as far as its files tell."""
    under_way = list((directory / "checkpoints").glob("*tmp*"))
    return "writing a checkpoint" if under_way else "training"


def disturb(file, directory, epochs, kills, seed=0):
    """Kill a run so many times, let it end, and return its digest and when it was killed."""
    chance = random.Random(seed)
    killed = collections.Counter()
    held = directory.with_name("held")
    for _ in range(kills):
        held.unlink(missing_ok=True)
        before = journal_of(directory)
        run = child(file, directory, epochs, held)
        if chance.random() < 0.15:
            time.sleep(chance.uniform(0, 3))
            when = "starting"
        else:
            wait_for_steps(run, directory, before, held)
            # Longer than the pause between two checkpoints, most of the time.
            time.sleep(chance.uniform(0, 0.3))
            when = None
        run.send_signal(signal.SIGKILL)
        _, err = run.communicate()
        if run.returncode != -signal.SIGKILL:
            raise SystemExit(f"the run failed by itself:\n{err}")
        killed[when or moment(directory)] += 1
    run = child(file, directory, epochs)
    out, err = run.communicate()
    if run.returncode != 0:
        raise SystemExit(f"the run failed by itself:\n{err}")
    return out.split(), killed


def main():
    """Compare a disturbed run with a whole one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="by default enough for all kills")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--held", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file is not None:
        train(given.file, given.directory, given.epochs, given.held)
        return 0
    epochs = given.epochs or 30 + 12 * given.kills
    # In memory where that is possible: it is the moments that are tried, not the disk.
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        file, directory = Path(folder, "train.h5"), Path(folder, "run")
        write(file)
        out, err = child(file, None, epochs).communicate()
        whole = out.split()
        if not whole:
            raise SystemExit(f"the run failed by itself:\n{err}")
        begun = time.monotonic()
        found, killed = disturb(file, directory, epochs, given.kills, given.seed)
        seconds = time.monotonic() - begun
    words = ", ".join(f"{count} while {when}" for when, count in sorted(killed.items()))
    print(f"{sum(killed.values())} kills ({words}), {whole[1]} steps, {seconds:.0f} s")
    if found != whole:
        print(f"DIFFERENT: {found} instead of {whole}")
        return 1
    print(f"the same to the last bit: {whole[0][:16]}…")
    return 0


if __name__ == "__main__":
    sys.exit(main())
