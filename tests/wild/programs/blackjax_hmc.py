"""blackjax: Hamiltonian Monte Carlo, all samples in one scan."""

import blackjax
import jax
import jax.numpy as jnp
import plan


def log_density(x):
    return -0.5 * jnp.sum(x**2)


kernel = blackjax.hmc(log_density, 1e-2, jnp.ones(1000), 10)


@jax.jit
def sample(state, keys):
    def body(state, key):
        state, _ = kernel.step(key, state)
        return state, state.position

    return jax.lax.scan(body, state, keys)


state = kernel.init(jnp.zeros(1000))
keys = jax.random.split(jax.random.key(0), 500)
plan.note(sample, state, keys)
state, positions = sample(state, keys)
print(positions.shape)
