"""Gradients and their update are two jitted lambdas, which JAX calls alike."""

import jax
import jax.numpy as jnp

gradients = jax.jit(jax.grad(lambda w, x: ((x @ w) ** 2).mean()))
update = jax.jit(lambda w, g: w - 0.01 * g)
w, x = jnp.ones((2048, 2048)), jnp.ones((8, 2048))
for step in range(9):
    w = update(w, gradients(w, x))
    print("step", step + 1)
