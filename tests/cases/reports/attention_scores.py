"""Attention by XLA or by cuDNN.

After NovaSky-AI/SkyRL#624, jax-ml/jax#32430.
"""

import sys
import jax
import jax.numpy as jnp

B, T, H, D = 2, 16384, 32, 128
q = jnp.ones((B, T, H, D), jnp.bfloat16)


@jax.jit
def attend(q):
    def loss(q):
        return jax.nn.dot_product_attention(q, q, q, is_causal=True, implementation=sys.argv[1]).astype(jnp.float32).mean()

    return jax.grad(loss)(q)


attend(q)
