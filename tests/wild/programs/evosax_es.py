"""evosax: an evolution strategy, asked and told in a Python loop."""

import evosax.algorithms as algorithms
import jax
import jax.numpy as jnp

start = jnp.zeros(10_000)
strategy = algorithms.SimpleES(population_size=256, solution=start)
params = strategy.default_params
key = jax.random.key(0)
state = strategy.init(key, start, params)


@jax.jit
def generation(key, state):
    population, state = strategy.ask(key, state, params)
    fitness = jnp.sum(population**2, axis=1)
    state, _ = strategy.tell(key, population, fitness, state, params)
    return state, fitness.min()


for _ in range(4):
    key, this = jax.random.split(key)
    state, best = generation(this, state)
print(float(best))
