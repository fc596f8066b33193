"""A classifier in Flax NNX, trained from an HDF5 file.

vramfit data generate table.h5 --kind tabular --samples 20k
python examples/fit/with_nnx.py table.h5
"""

import sys

import jax
import optax
from flax import nnx

from vramfit.data import Loader
from vramfit.train import fit

CLASSES = 10


class Network(nnx.Module):
    """Two layers with dropout."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(16, 128, rngs=rngs)
        self.dropout = nnx.Dropout(0.05, rngs=rngs)
        self.out = nnx.Linear(128, CLASSES, rngs=rngs)

    def __call__(self, features):
        return self.out(self.dropout(nnx.relu(self.hidden(features))))


# Split once: taking a module apart in every step takes longer than a small step.
GRAPH, PARAMS, REST = nnx.split(Network(nnx.Rngs(0)), nnx.Param, ...)
OPTIMIZER = optax.adamw(3e-3)


def start():
    """Return weights, dropout's counters and the optimizer's state."""
    return {"params": PARAMS, "rest": REST, "optimizer": OPTIMIZER.init(PARAMS)}


def losses(model, batch):
    """Return the cross-entropy of each row."""
    logits = model(batch["features"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])


def step(state, batch):
    """Take a step of AdamW."""

    def loss_of(params):
        model = nnx.merge(GRAPH, params, state["rest"], copy=True)
        return losses(model, batch).mean(), nnx.split(model, nnx.Param, ...)[2]

    (loss, rest), slopes = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
    updates, optimizer = OPTIMIZER.update(slopes, state["optimizer"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "rest": rest, "optimizer": optimizer}, loss


def evaluate(state, batch):
    """Return the mean loss of the rows that are real."""
    model = nnx.merge(GRAPH, state["params"], state["rest"], copy=True)
    model.eval()
    each = losses(model, batch)
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
