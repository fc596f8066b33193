"""A small task that the tests of training share: a line through noisy points."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np

from vramfit.data import Loader

ROWS = 1003


def write(path, rows=ROWS):
    """Write points `x` with values `y` that a linear function nearly has."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 4)).astype("f4")
    y = x @ np.array([1, 2, 3, 4], "f4") + 0.1 * random.standard_normal(rows).astype("f4")
    with h5py.File(path, "w") as f:
        f["x"], f["y"] = x, y
    return path


def load(path, **options):
    # The trainer pads the last batch, so that one and several devices take the same steps.
    padding = {} if "stacked_batches" in options else {"last_batch": "pad", "mask": False}
    options = {"batch_size": 32, "memory": "8MiB", **padding, **options}
    return Loader(path, ["x", "y"], **options)


def start():
    return {"w": jnp.zeros(4), "momentum": jnp.zeros(4), "steps": jnp.zeros((), jnp.int32)}


def error(weights, batch):
    return (batch["x"] @ weights - batch["y"]) ** 2


def step(state, batch):
    loss, slope = jax.value_and_grad(lambda w: error(w, batch).mean())(state["w"])
    momentum = 0.9 * state["momentum"] + slope
    new = {
        "w": state["w"] - 0.003 * momentum,
        "momentum": momentum,
        "steps": state["steps"] + 1,
    }
    return new, {"loss": loss, "slope": jnp.abs(slope).max()}


def evaluate(state, batch):
    errors = error(state["w"], batch)
    real = batch["mask"] if "mask" in batch else jnp.ones(errors.shape)
    return {"loss": (errors * real).sum() / real.sum()}


def by_hand(path, epochs, **options):
    """Return the state and the losses of a loop as anyone writes it."""
    state, jitted, losses = start(), jax.jit(step, donate_argnums=0), []
    loader = load(path, **options)
    for epoch in range(epochs):
        for batch in loader.epoch(epoch):
            state, metrics = jitted(state, batch)
            losses.append(float(metrics["loss"]))
    return state, losses


def bits(leaf):
    """Return an array as numpy can compare it."""
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def same(one, other):
    """Say whether two states are the same to the last bit."""
    one, other = jax.tree.map(bits, (one, other))
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
