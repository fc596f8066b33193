"""Three steps of fully sharded data parallelism: each host has a part of weights and moments."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mock_hosts import initialize_hosts

LAYERS, WIDTH, ROWS = 8, 4096, 2048  # rows of a host

mesh = initialize_hosts()
parts = NamedSharding(mesh, P(None, "hosts"))
rows = NamedSharding(mesh, P("hosts"))


def loss_of(weights, x):
    def layer(x, weight):
        return with_sharding_constraint(jax.nn.relu(x @ weight), rows), None

    x, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
    return jnp.mean(x**2)


def step(state, x):
    weights, moments = state
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    moments = 0.9 * moments + with_sharding_constraint(slopes, parts)
    return with_sharding_constraint((weights - 1e-3 * moments, moments), parts), loss


def make(key):
    weights = jax.random.normal(key, (LAYERS, WIDTH, WIDTH)) / WIDTH**0.5
    return weights, weights * 0


def make_batch(key):
    return jax.random.normal(key, (ROWS * mesh.size, WIDTH))


print_stats("before")
state = jax.jit(make, out_shardings=parts)(jax.random.key(0))
batch = jax.jit(make_batch, out_shardings=rows)(jax.random.key(1))
jax.block_until_ready((state, batch))
print_stats("made")
steps(step, state, batch, 3)
