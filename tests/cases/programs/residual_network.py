"""The network and the training step of several programs."""

import jax
import jax.numpy as jnp


def layer(x, w):
    return x + jnp.tanh(jnp.tanh(x @ w) @ w.T)


def loss(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x**2)


@jax.jit
def train_step(ws, x):
    return jax.tree.map(lambda w, g: w - 0.1 * g, ws, jax.grad(loss)(ws, x))
