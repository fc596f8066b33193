"""Six steps of a network whose state is donated: Adam by hand, matrix products in 32 bits."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps

WIDTH, LAYERS, BATCH = 4096, 6, 8192


def loss_of(weights, x):
    for weight in weights:
        x = jax.nn.relu(x @ weight)
    return jnp.mean(x**2)


def step(state, x):
    weights, first, second = state
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slopes)
    weights = jax.tree.map(
        lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), weights, first, second
    )
    return (weights, first, second), loss


@jax.jit
def make(key):
    keys = jax.random.split(key, LAYERS)
    weights = [jax.random.normal(k, (WIDTH, WIDTH)) / WIDTH**0.5 for k in keys]
    return weights, [w * 0 for w in weights], [w * 0 for w in weights]


print_stats("before")
state = make(jax.random.key(0))
jax.block_until_ready(state)
print_stats("made")
x = jax.random.normal(jax.random.key(1), (BATCH, WIDTH))
print_stats("batch")
state = steps(step, state, x, 6)
del x
print_stats("without batch")
