"""Four GPUs, and everything on the first.

After google-deepmind/alphafold3#213, google-deepmind/functa#11.
"""

import jax
import jax.numpy as jnp

params = [jnp.ones((8192, 8192)) * 0.01 for _ in range(24)]  # 6 GiB


@jax.jit
def step(params, x):
    def loss(params):
        y = x
        for w in params:
            y = jnp.tanh(y @ w)
        return jnp.mean(y**2)

    return [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params))]


for _ in range(3):
    params = step(params, jnp.ones((16384, 8192)))
