"""flax.nnx: a small transformer block, its state split and donated."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import plan
from flax import nnx


class Block(nnx.Module):
    def __init__(self, width, *, rngs):
        self.attention = nnx.MultiHeadAttention(
            num_heads=4, in_features=width, decode=False, rngs=rngs
        )
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.widen = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.narrow(jax.nn.gelu(self.widen(x)))


model = Block(256, rngs=nnx.Rngs(0))
graph, params = nnx.split(model, nnx.Param)
tx = optax.adamw(1e-3)
state = (params, tx.init(params))


@partial(jax.jit, donate_argnums=0)
def update(state, x):
    params, moments = state

    def loss_of(params):
        return jnp.mean(nnx.merge(graph, params)(x) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, moments = tx.update(grads, moments, params)
    return (optax.apply_updates(params, updates), moments), loss


x = jnp.ones((16, 64, 256))
for _ in range(4):
    state, loss = update(state, x)
plan.note(update, state, x)
print(float(loss))
