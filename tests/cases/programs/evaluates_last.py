"""As many small steps as the argument says, then an evaluation of the whole validation set."""

import sys

import jax
import jax.numpy as jnp


@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)


@jax.jit
def evaluate(w, x):
    h = x @ w
    return jnp.sin(h).sum(0) + jnp.sort(h, 0)[0]


w = jnp.ones((2048, 2048))
for _ in range(int(sys.argv[1])):
    w = train_step(w, jnp.ones((256, 2048)))
print(evaluate(w, jnp.ones((65536, 2048))).shape)
