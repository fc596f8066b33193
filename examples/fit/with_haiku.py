"""A classifier in Haiku, trained from an HDF5 file.

vramfit data generate table.h5 --kind tabular --samples 20k
python examples/fit/with_haiku.py table.h5
"""

import sys

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from vramfit.data import Loader
from vramfit.train import fit

CLASSES = 10


NETWORK = hk.without_apply_rng(
    hk.transform(lambda x: hk.nets.MLP([128, CLASSES], activation=jax.nn.relu)(x))
)
OPTIMIZER = optax.adamw(3e-3)


def start():
    """Return weights and the optimizer's state."""
    params = NETWORK.init(jax.random.key(0), jnp.zeros((1, 16)))
    return {"params": params, "optimizer": OPTIMIZER.init(params)}


def losses(params, batch):
    """Return the cross-entropy of each row."""
    logits = NETWORK.apply(params, batch["features"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])


def step(state, batch):
    """Take a step of AdamW."""
    loss, slopes = jax.value_and_grad(lambda params: losses(params, batch).mean())(state["params"])
    updates, optimizer = OPTIMIZER.update(slopes, state["optimizer"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "optimizer": optimizer}, loss


def evaluate(state, batch):
    """Return the mean loss of the rows that are real."""
    each = losses(state["params"], batch)
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
