"""An array for eight GPUs, made on one and then distributed.

After jax-ml/jax#14075.
"""

import sys
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",))
sharding = NamedSharding(mesh, P("x"))
N = 1_600_000_000
if "--jit" in sys.argv:
    a = jax.jit(lambda: jnp.zeros(N), out_shardings=sharding)()
else:
    a = jax.device_put(jnp.zeros(N), sharding)
