"""Three steps of one attention layer, computed by cuDNN without a matrix of scores."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps

HEADS, SIZE, SEQUENCE, BATCH = 16, 128, 8192, 4
WIDTH = HEADS * SIZE


def loss_of(weights, x):
    qkv, out = weights
    q, k, v = jnp.moveaxis((x @ qkv).reshape(BATCH, SEQUENCE, 3, HEADS, SIZE), 2, 0)
    seen = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
    return jnp.mean((seen.reshape(x.shape) @ out).astype(jnp.float32) ** 2)


def step(weights, x):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    return jax.tree.map(lambda w, g: w - (1e-3 * g).astype(w.dtype), weights, slopes), loss


@jax.jit
def make(key):
    keys = jax.random.split(key, 3)
    weights = [
        jax.random.normal(keys[0], (WIDTH, 3 * WIDTH), jnp.bfloat16) * 0.02,
        jax.random.normal(keys[1], (WIDTH, WIDTH), jnp.bfloat16) * 0.02,
    ]
    return weights, jax.random.normal(keys[2], (BATCH, SEQUENCE, WIDTH), jnp.bfloat16)


print_stats("before")
weights, x = make(jax.random.key(0))
jax.block_until_ready((weights, x))
print_stats("made")
weights = steps(step, weights, x, 3)
