"""Three steps of data parallelism: every host has all weights, and gradients are summed."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mock_hosts import initialize_hosts

LAYERS, WIDTH, ROWS = 6, 4096, 4096  # rows of a host

mesh = initialize_hosts()
every, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("hosts"))


def loss_of(weights, x):
    for weight in weights:
        x = jax.nn.relu(x @ weight)
    return jnp.mean(x**2)


def step(state, x):
    weights, moments = state
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, slopes)
    weights = jax.tree.map(lambda w, m: w - 1e-3 * m, weights, moments)
    return jax.lax.with_sharding_constraint((weights, moments), every), loss


def make(key):
    keys = jax.random.split(key, LAYERS)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for key in keys]
    return weights, [weight * 0 for weight in weights]


def make_batch(key):
    return jax.random.normal(key, (ROWS * mesh.size, WIDTH))


print_stats("before")
state = jax.jit(make, out_shardings=every)(jax.random.key(0))
batch = jax.jit(make_batch, out_shardings=rows)(jax.random.key(1))
jax.block_until_ready((state, batch))
print_stats("made")
steps(step, state, batch, 3)
