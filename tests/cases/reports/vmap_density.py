"""Sum of Gaussians on a grid, one for each of 1600 points, by vmap.

After jax-ml/jax#23548.
"""

import sys
import jax
import jax.numpy as jnp

n = int(sys.argv[1])
grid = jnp.stack(jnp.meshgrid(*[jnp.linspace(-1, 1, m) for m in (71, 75, 71)], indexing="ij"), -1)
points = jnp.ones((n, 3)) * 0.1


def one(grid, p):
    d2 = jnp.sum((grid - p) ** 2 / 5.29, -1)
    return jnp.exp(-0.5 * d2)


@jax.jit
def density(grid, points):
    if "--scan" in sys.argv:
        return jax.lax.scan(lambda s, p: (s + one(grid, p), None), jnp.zeros(grid.shape[:-1]), points)[0]
    return jax.vmap(one, (None, 0))(grid, points).sum(0)


density(grid, points)
