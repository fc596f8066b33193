"""Three steps of a convolutional network: cuDNN chooses algorithms, each with a workspace."""

import itertools

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps

BATCH, SIZE, WIDTHS = 128, 64, (3, 64, 128, 256)


def loss_of(weights, x):
    for weight in weights:
        x = jax.nn.relu(
            jax.lax.conv_general_dilated(
                x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(x**2)


@jax.jit
def make(key):
    keys = jax.random.split(key, len(WIDTHS))
    pairs = itertools.pairwise(WIDTHS)
    return [jax.random.normal(k, (3, 3, *pair)) * 0.1 for k, pair in zip(keys, pairs, strict=False)]


def step(weights, x):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, slopes), loss


print_stats("before")
weights = make(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (BATCH, SIZE, SIZE, 3))
jax.block_until_ready((weights, x))
print_stats("made")
weights = steps(step, weights, x, 3)
