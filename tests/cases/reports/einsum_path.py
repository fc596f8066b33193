"""An einsum whose cheapest path has an intermediate larger than the GPU.

After jax-ml/jax#31103.
"""

import sys
import jax
import jax.numpy as jnp

n, d = 300_000, 128
a, b, c = (jnp.ones((n, d)) for _ in range(3))
t = jnp.ones((d, d, d))


@jax.jit
def form(a, b, c, t):
    if "--chunks" in sys.argv:
        return jax.lax.map(lambda abc: jnp.einsum("i,j,k,ijk->", *abc, t), (a, b, c), batch_size=4096)
    return jnp.einsum("ni,nj,nk,ijk->n", a, b, c, t)


form(a, b, c, t)
