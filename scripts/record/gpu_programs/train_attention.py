"""Four steps of a transformer in bfloat16: attention, a scan over layers, `jax.checkpoint`."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats, steps

WIDTH, LAYERS, HEADS, SEQUENCE, BATCH, WORDS = 1024, 8, 16, 1024, 16, 32_000


def normed(x):
    return x * jax.lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True)).astype(
        x.dtype
    )


def layer(x, weights):
    qkv, out, up, down = (weight.astype(jnp.bfloat16) for weight in weights)
    shape = (BATCH, SEQUENCE, 3, HEADS, WIDTH // HEADS)
    q, k, v = jnp.moveaxis((normed(x) @ qkv).reshape(shape), 2, 0)
    scores = jnp.einsum("bshd,bthd->bhst", q, k) / (WIDTH // HEADS) ** 0.5
    seen = jnp.tril(jnp.ones((SEQUENCE, SEQUENCE), bool))
    shares = jax.nn.softmax(jnp.where(seen, scores.astype(jnp.float32), -1e30)).astype(x.dtype)
    x = x + jnp.einsum("bhst,bthd->bshd", shares, v).reshape(x.shape) @ out
    return x + jax.nn.gelu(normed(x) @ up) @ down, None


def loss_of(weights, tokens):
    table, layers = weights
    x = table.astype(jnp.bfloat16)[tokens[:, :-1]]
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, layers)
    logits = (normed(x) @ table.astype(jnp.bfloat16).T).astype(jnp.float32)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -jnp.mean(chosen)


def step(weights, tokens):
    loss, slopes = jax.value_and_grad(loss_of)(weights, tokens)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, slopes), loss


@jax.jit
def make(key):
    keys = iter(jax.random.split(key, 5))
    sizes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    table = jax.random.normal(next(keys), (WORDS, WIDTH)) * 0.02
    return table, tuple(jax.random.normal(next(keys), (LAYERS, *size)) * 0.02 for size in sizes)


print_stats("before")
weights = make(jax.random.key(0))
tokens = jax.random.randint(jax.random.key(1), (BATCH, SEQUENCE + 1), 0, WORDS)
jax.block_until_ready((weights, tokens))
print_stats("made")
weights = steps(step, weights, tokens, 4)
