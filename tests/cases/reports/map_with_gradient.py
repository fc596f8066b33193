"""The gradient through `lax.map(batch_size=)`: it saves as much as vmap.

After jax-ml/jax#19614, kokabsc/gwkokab#451.
"""

import sys
import jax
import jax.numpy as jnp

N, D, L = 4096, 4096, 24
ws = [jnp.ones((64, 64)) * 0.1 for _ in range(L)]
xs = jnp.ones((N, D // 64, 64))


def row(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


@jax.jit
def gradient(ws, xs):
    def loss(ws):
        f = lambda x: row(ws, x)
        if sys.argv[1] == "vmap":
            return jax.vmap(f)(xs).mean()
        if sys.argv[1] == "remat":
            f = jax.checkpoint(f)
        return jax.lax.map(f, xs, batch_size=64).mean()

    return jax.grad(loss)(ws)


gradient(ws, xs)
