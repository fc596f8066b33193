"""brax: an environment stepped under vmap and scan."""

import jax
from brax import envs

env = envs.get_environment("inverted_pendulum", backend="spring")


@jax.jit
def unroll(key):
    state = jax.vmap(env.reset)(jax.random.split(key, 256))

    def body(state, _):
        action = jax.numpy.zeros((256, env.action_size))
        state = jax.vmap(env.step)(state, action)
        return state, state.obs

    return jax.lax.scan(body, state, None, length=20)


state, observations = unroll(jax.random.PRNGKey(0))
print(observations.shape)
