"""dynamiqs: the Schroedinger equation of a driven oscillator."""

import dynamiqs as dq
import jax.numpy as jnp

levels = 64
a = dq.destroy(levels)
hamiltonian = a.dag() @ a + 0.1 * (a + a.dag())
result = dq.sesolve(
    hamiltonian,
    dq.basis(levels, 0),
    jnp.linspace(0, 1, 21),
    progress_meter=False,
)
print(result.states.shape)
