"""jax-md: a Lennard-Jones fluid; the state of the simulation is no optimizer's."""

import jax
import jax.numpy as jnp
import plan
from jax_md import energy, simulate, space

count, box = 1000, 12.0
displacement, shift = space.periodic(box)
potential = energy.soft_sphere_pair(displacement)
init, apply = simulate.nvt_nose_hoover(potential, shift, dt=1e-3, kT=0.1)
key = jax.random.PRNGKey(0)
state = init(key, jax.random.uniform(key, (count, 3)) * box)


@jax.jit
def steps(state):
    return jax.lax.fori_loop(0, 10, lambda _, state: apply(state), state)


for _ in range(3):
    state = steps(state)
plan.note(steps, state)
print(jnp.shape(state.position))
