"""Differentiate through N inner SGD steps, rolled or unrolled.

After jax-ml/jax#26618.
"""

import sys
import jax
import jax.numpy as jnp

N = int(sys.argv[1])
UNROLL = "--unroll" in sys.argv
D, B = 4096, 512  # 64 MiB of weights a layer


def apply(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return x


@jax.jit
def meta_gradient(params, xs):
    def outer(params):
        def inner(params, x):
            g = jax.grad(lambda p: jnp.mean(apply(p, x) ** 2))(params)
            return [p - 0.1 * q for p, q in zip(params, g)], None

        params, _ = jax.lax.scan(inner, params, xs, unroll=UNROLL or 1)
        return jnp.mean(apply(params, xs[0]) ** 2)

    return jax.grad(outer)(params)


params = [jnp.ones((D, D)) * 0.01 for _ in range(2)]
xs = jnp.ones((N, B, D))
meta_gradient(params, xs)
