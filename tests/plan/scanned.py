"""Trains sixteen layers in a scan, each of which keeps its input: ``python scanned.py ROWS``."""

import sys

import jax
import jax.numpy as jnp


def layer(x, w):
    return x + jnp.sin(jnp.sin(x @ w) @ w.T), None


def loss(ws, x):
    x, _ = jax.lax.scan(layer, x, ws)
    return jnp.mean(x**2)


@jax.jit
def step(ws, x):
    value, gradients = jax.value_and_grad(loss)(ws, x)
    return ws - gradients, value


ws = jnp.ones((16, 512, 512)) * 0.01
x = jnp.ones((int(sys.argv[1]), 512))
for _ in range(4):
    ws, value = step(ws, x)
print("loss", float(value))
