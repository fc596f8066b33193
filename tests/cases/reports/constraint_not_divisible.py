"""A sharding constraint whose axis the devices do not divide.

After jax-ml/jax#26946.
"""

import sys
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

rows, width = int(sys.argv[1]), 65536
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
sharding = NamedSharding(mesh, P("data", None))


@jax.jit
def make():
    table = jnp.sin(jnp.arange(rows * width, dtype=jnp.float32)).reshape(rows, width)
    return jax.lax.with_sharding_constraint(table, sharding)


table = make()
print(table.sharding.shard_shape(table.shape))
