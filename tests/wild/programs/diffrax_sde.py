"""diffrax: many paths of a stochastic differential equation, no training."""

import diffrax
import jax
import jax.numpy as jnp
import plan


def path(key):
    brownian = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key)
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y),
        diffrax.ControlTerm(lambda t, y, args: jnp.asarray(0.3), brownian),
    )
    solution = diffrax.diffeqsolve(
        terms,
        diffrax.Euler(),
        0.0,
        1.0,
        dt0=0.01,
        y0=1.0,
        saveat=diffrax.SaveAt(steps=True),
        max_steps=128,
    )
    return solution.ys


simulate = jax.jit(jax.vmap(path))
keys = jax.random.split(jax.random.key(0), 4096)
plan.note(simulate, keys)
paths = simulate(keys)
print(paths.shape)
