"""A tiny simulation. Why does nvidia-smi show 18 GB?

After ShaneFlandermeyer/bmpc-jax#2, dirac-institute/kbmod#860, google-deepmind/mujoco_playground#102, google/brax#589, google/torchax#16.
"""

import jax
import jax.numpy as jnp


@jax.jit
def simulate(q):
    def body(q, _):
        q = q + 0.01 * jnp.sin(q[::-1])
        return q, q

    return jax.lax.scan(body, q, None, length=1000)


q, trajectory = simulate(jnp.ones((64,)))
