"""Models and a loss as users write them, in three libraries; tests copy this file."""

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx


class Net(nnx.Module):
    """A batch normalization and a dropout, which have a state of their own."""

    def __init__(self, row_shape, outputs, width=16, *, rngs):
        self.first = nnx.Linear(row_shape[-1], width, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, x):
        x = x.reshape(x.shape[0], -1, x.shape[-1]).mean(axis=1)
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


def make_net(outputs, row_shape, rngs, width):
    return Net(row_shape, outputs, width, rngs=rngs)


class LinenNet(linen.Module):
    outputs: int
    width: int = 16

    @linen.compact
    def __call__(self, x, train: bool):
        x = linen.Dense(self.width)(x)
        x = linen.BatchNorm(use_running_average=not train)(x)
        x = linen.Dropout(0.2, deterministic=not train)(linen.relu(x))
        return linen.Dense(self.outputs)(x)


class EquinoxNet(eqx.Module):
    layers: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    order: jax.Array

    def __init__(self, row_shape, outputs, width=16, *, key):
        self.layers = eqx.nn.MLP(row_shape[0], outputs, width, 1, key=key)
        self.dropout = eqx.nn.Dropout(0.2)
        self.order = jnp.arange(row_shape[0])[::-1]

    def __call__(self, x, key=None):
        return self.layers(self.dropout(x[self.order], key=key))


def make_mlp(row_shape, outputs, key):
    """A module of Equinox without arrays that are not trained."""
    return eqx.nn.MLP(row_shape[0], outputs, 16, 1, key=key)


def one_axis_too_many(row_shape, outputs, rngs):
    return nnx.Sequential(nnx.Linear(row_shape[0], outputs, rngs=rngs), lambda x: x[:, None])


class Fails(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        raise ValueError("my own words")


def row_losses(outputs, targets):
    error = outputs - targets.reshape(outputs.shape)
    return {"loss": (error**2).mean(axis=-1), "absolute": abs(error).mean(axis=-1)}


def mean_loss(outputs, targets):
    return row_losses(outputs, targets)["loss"].mean()


def without_outputs(row_shape, rngs):
    return nnx.Linear(row_shape[0], 1, rngs=rngs)


def two_outputs(rngs):
    return nnx.Linear(6, 2, rngs=rngs)


def no_model():
    return 3
