"""A classifier in Flax Linen, trained from an HDF5 file.

vramfit data generate table.h5 --kind tabular --samples 20k
python examples/fit/with_linen.py table.h5
"""

import sys

import jax
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

from vramfit.data import Loader
from vramfit.train import fit

CLASSES = 10


class Network(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, features):
        return nn.Dense(CLASSES)(nn.relu(nn.Dense(128)(features)))


def start():
    """Return Flax's own kind of state."""
    network = Network()
    params = network.init(jax.random.key(0), jax.numpy.zeros((1, 16)))["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optax.adamw(3e-3))


def losses(state, params, batch):
    """Return the cross-entropy of each row."""
    logits = state.apply_fn({"params": params}, batch["features"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])


def step(state, batch):
    """Take a step of AdamW."""
    loss_of = jax.value_and_grad(lambda params: losses(state, params, batch).mean())
    loss, slopes = loss_of(state.params)
    return state.apply_gradients(grads=slopes), loss


def evaluate(state, batch):
    """Return the mean loss of the rows that are real."""
    each = losses(state, state.params, batch)
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
