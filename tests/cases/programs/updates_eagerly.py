"""Gradients from a jitted function, and an update in plain Python that takes more than they do."""

import sys

import jax
import jax.numpy as jnp

gradients = jax.jit(jax.grad(lambda w, x: ((x @ w) ** 2).mean()))
w, x = jnp.ones((2048, 2048)), jnp.ones((8, 2048))
for step in range(int(sys.argv[1])):
    g = gradients(w, x)
    velocity = [g * n for n in range(6)]
    w = w - 0.01 * sum(velocity)
    del velocity
    print("step", step + 1)
