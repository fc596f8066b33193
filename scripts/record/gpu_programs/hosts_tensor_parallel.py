"""Three steps of layers whose columns are divided over the hosts, with a `psum` after each."""

from functools import partial

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps
from jax import shard_map
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mock_hosts import initialize_hosts

LAYERS, WIDTH, HIDDEN, ROWS = 4, 2048, 16384, 4096

mesh = initialize_hosts()
SPECS = (P(None, None, "hosts"), P(None, "hosts"))


@partial(shard_map, mesh=mesh, in_specs=(SPECS, P()), out_specs=P())
def forward(weights, x):
    def layer(x, pair):
        up, down = pair
        return x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "hosts"), None

    return jax.lax.scan(layer, x, weights)[0]


def step(weights, x):
    loss, slopes = jax.value_and_grad(lambda weights: jnp.mean(forward(weights, x) ** 2))(weights)
    weights = jax.tree.map(lambda w, g: w - 1e-3 * g, weights, slopes)
    return jax.lax.with_sharding_constraint(weights, shardings), loss


def make(key):
    up, down = jax.random.split(key)
    return (
        jax.random.normal(up, (LAYERS, WIDTH, HIDDEN)) / WIDTH**0.5,
        jax.random.normal(down, (LAYERS, HIDDEN, WIDTH)) / HIDDEN**0.5,
    )


shardings = tuple(NamedSharding(mesh, spec) for spec in SPECS)
print_stats("before")
weights = jax.jit(make, out_shardings=shardings)(jax.random.key(0))
every = NamedSharding(mesh, P())
batch = jax.jit(lambda key: jax.random.normal(key, (ROWS, WIDTH)), out_shardings=every)(
    jax.random.key(1)
)
jax.block_until_ready((weights, batch))
print_stats("made")
steps(step, weights, batch, 3)
