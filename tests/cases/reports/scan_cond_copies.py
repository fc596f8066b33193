"""A scan that updates its carry or passes it on: the passthrough of `cond` copies the whole carry.

After jax-ml/jax#38145.
"""

import sys
import jax
import jax.numpy as jnp

N = 1 << 28  # 1 GiB a leaf


@jax.jit
def train(params, flags):
    def body(params, flag):
        if "--where" in sys.argv:
            return [p - flag.astype(p.dtype) * 0.1 * p for p in params], None
        return jax.lax.cond(flag, lambda p: [q - 0.1 * q for q in p], lambda p: p, params), None

    return jax.lax.scan(body, params, flags)[0]


train = jax.jit(train, donate_argnums=0)
params = [jnp.ones((N,)) for _ in range(3)]
params = train(params, jnp.arange(100) % 3 == 0)
