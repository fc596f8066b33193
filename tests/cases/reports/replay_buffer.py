"""An off-policy agent whose replay buffer has one place per time step of the whole training.

After google-deepmind/mujoco#1431.
"""

import sys
import jax
import jax.numpy as jnp

SIZE, WIDTH = int(sys.argv[1]), 444


@jax.jit
def init(key):
    return {"data": jnp.zeros((SIZE, WIDTH), jnp.float32), "key": key, "position": jnp.zeros((), jnp.int32), "size": jnp.zeros((), jnp.int32)}


state = init(jax.random.PRNGKey(0))
print(state["data"].nbytes)
