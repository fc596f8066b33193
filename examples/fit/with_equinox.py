"""A classifier in Equinox, trained from an HDF5 file.

vramfit data generate table.h5 --kind tabular --samples 20k
python examples/fit/with_equinox.py table.h5
"""

import sys

import equinox as eqx
import jax
import optax

from vramfit.data import Loader
from vramfit.train import fit

CLASSES = 10


MODEL = eqx.nn.MLP(16, CLASSES, width_size=128, depth=1, key=jax.random.key(0))
# A state is made of arrays; what is none, such as the activation, stays outside.
PARAMS, STATIC = eqx.partition(MODEL, eqx.is_array)
OPTIMIZER = optax.adamw(3e-3)


def start():
    """Return weights and the optimizer's state."""
    return PARAMS, OPTIMIZER.init(PARAMS)


def losses(params, batch):
    """Return the cross-entropy of each row."""
    logits = jax.vmap(eqx.combine(params, STATIC))(batch["features"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])


def step(state, batch):
    """Take a step of AdamW."""
    params, optimizer = state
    loss, slopes = jax.value_and_grad(lambda params: losses(params, batch).mean())(params)
    updates, optimizer = OPTIMIZER.update(slopes, optimizer, params)
    return (eqx.apply_updates(params, updates), optimizer), loss


def evaluate(state, batch):
    """Return the mean loss of the rows that are real."""
    each = losses(state[0], batch)
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
