"""A classifier in plain JAX, trained from an HDF5 file.

vramfit data generate table.h5 --kind tabular --samples 20k
python examples/fit/with_jax.py table.h5
"""

import sys

import jax
import jax.numpy as jnp

from vramfit.data import Loader
from vramfit.train import fit

CLASSES = 10


def start():
    """Return weights and momentum."""
    first, second = jax.random.split(jax.random.key(0))
    weights = {
        "hidden": jax.random.normal(first, (16, 128)) / 4,
        "out": jax.random.normal(second, (128, CLASSES)) / 12,
    }
    return {"weights": weights, "momentum": jax.tree.map(jnp.zeros_like, weights)}


def losses(weights, batch):
    """Return the cross-entropy of each row."""
    logits = jnp.tanh(batch["features"] @ weights["hidden"]) @ weights["out"]
    chances = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(chances, batch["labels"][:, None], axis=1)[:, 0]


def step(state, batch):
    """Take a step of gradient descent with momentum."""
    loss, slopes = jax.value_and_grad(lambda w: losses(w, batch).mean())(state["weights"])
    momentum = jax.tree.map(lambda m, s: 0.9 * m + s, state["momentum"], slopes)
    weights = jax.tree.map(lambda w, m: w - 0.1 * m, state["weights"], momentum)
    return {"weights": weights, "momentum": momentum}, loss


def evaluate(state, batch):
    """Return the mean loss of the rows that are real."""
    each = losses(state["weights"], batch)
    return (each * batch["mask"]).sum() / batch["mask"].sum()


def load(part):
    share = (part, 0.1)
    names = ["features", "labels"]
    return Loader(sys.argv[1], names, batch_size=100, split=share, mask=part == "validation")


def main():
    result = fit(
        step,
        start(),
        load("train"),
        eval_step=evaluate,
        eval_data=load("validation"),
        epochs=5,
        directory=sys.argv[2] if len(sys.argv) > 2 else None,
    )
    print(f"validation loss {result.best.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
