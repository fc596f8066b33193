"""Twenty steps of residual blocks with `gelu`, written as a loop or with `jax.lax.scan`.

Activations are most of the peak, and nothing is rematerialized: a plan has something to find.
Prints each loss to the bit, and the time of a step. Argument: `loop` or `scan`.
"""

import sys
import time

import jax
import jax.numpy as jnp
from allocator_stats import print_stats

WIDTH, BATCH, STEPS = 2048, 16384, 20
# A loop takes as long to compile as it has blocks.
BLOCKS = 16 if sys.argv[1] == "scan" else 6


def block(x, weights):
    up, down = weights
    return x + jax.nn.gelu(x @ up) @ down


def loss_of(weights, x):
    if sys.argv[1] == "scan":
        x, _ = jax.lax.scan(lambda x, one: (block(x, one), None), x, weights)
    else:
        for number in range(BLOCKS):
            x = block(x, jax.tree.map(lambda weight, at=number: weight[at], weights))
    return jnp.mean(x**2)


@jax.jit
def step(weights, x):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, slopes), loss


@jax.jit
def make(key):
    sizes = [(WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)]
    keys = jax.random.split(key, 3)
    weights = tuple(
        jax.random.normal(k, (BLOCKS, *size)) * 0.02 for k, size in zip(keys, sizes, strict=False)
    )
    return weights, jax.random.normal(keys[2], (BATCH, WIDTH))


weights, x = jax.block_until_ready(make(jax.random.key(0)))
print_stats("made")
seconds = []
for number in range(STEPS):
    start = time.perf_counter()
    weights, loss = jax.block_until_ready(step(weights, x))
    seconds.append(time.perf_counter() - start)
    print("LOSS", float(loss).hex(), flush=True)
    if number < 2:
        print_stats(f"step {number}")
print_stats("all steps")
print(f"SECONDS {min(seconds):.6f}", flush=True)
