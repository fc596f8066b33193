"""Adam, alone or in `optax.MultiSteps` with k = 1.

After google-deepmind/optax#472, young-geng/EasyLM#36.
"""

import sys
import jax
import jax.numpy as jnp
import optax

params = {f"w{i}": jnp.ones((4096, 4096)) * 0.01 for i in range(8)}
tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
if len(sys.argv) > 1:
    tx = optax.MultiSteps(tx, every_k_schedule=int(sys.argv[1]))
state = jax.jit(tx.init)(params)


def loss(params, x):
    for w in params.values():
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def step(params, state, x):
    g = jax.grad(loss)(params, x)
    u, state = tx.update(g, state, params)
    return optax.apply_updates(params, u), state


step = jax.jit(step, donate_argnums=(0, 1))
for i in range(4):
    params, state = step(params, state, jnp.ones((256, 4096)))
