"""Three steps of experts: rows travel to the host of their expert and back (`all_to_all`)."""

from functools import partial

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps
from jax import shard_map
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mock_hosts import initialize_hosts

WIDTH, HIDDEN, ROWS = 2048, 8192, 8192  # rows of a host, which has one expert

mesh = initialize_hosts()
parts = NamedSharding(mesh, P("hosts"))
travel = partial(jax.lax.all_to_all, axis_name="hosts", split_axis=0, concat_axis=0, tiled=True)


@partial(shard_map, mesh=mesh, in_specs=(P("hosts"), P("hosts")), out_specs=P("hosts"))
def forward(weights, x):
    up, down = (weight[0] for weight in weights)
    x = x + travel(jax.nn.gelu(travel(x) @ up) @ down)
    return jax.lax.ppermute(x, "hosts", [(i, (i + 1) % mesh.size) for i in range(mesh.size)])


def step(weights, x):
    loss, slopes = jax.value_and_grad(lambda weights: jnp.mean(forward(weights, x) ** 2))(weights)
    weights = jax.tree.map(lambda w, g: w - 1e-3 * g, weights, slopes)
    return jax.lax.with_sharding_constraint(weights, parts), loss


def make(key):
    up, down = jax.random.split(key)
    return (
        jax.random.normal(up, (mesh.size, WIDTH, HIDDEN)) / WIDTH**0.5,
        jax.random.normal(down, (mesh.size, HIDDEN, WIDTH)) / HIDDEN**0.5,
    )


def make_batch(key):
    return jax.random.normal(key, (ROWS * mesh.size, WIDTH))


print_stats("before")
weights = jax.jit(make, out_shardings=parts)(jax.random.key(0))
batch = jax.jit(make_batch, out_shardings=parts)(jax.random.key(1))
jax.block_until_ready((weights, batch))
print_stats("made")
steps(step, weights, batch, 3)
