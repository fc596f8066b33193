"""A transformer: layers in which each step of a sequence attends to others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    """Attention, then a feed-forward layer of four times the width, both with residuals."""

    def __init__(self, width: int, heads: int, dropout: float, dtype: str, rngs: nnx.Rngs) -> None:
        kind = jnp.dtype(dtype)
        self.attention_norm = nnx.LayerNorm(width, dtype=kind, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            heads, width, dtype=kind, decode=False, rngs=rngs, keep_rngs=False
        )
        self.feedforward_norm = nnx.LayerNorm(width, dtype=kind, rngs=rngs)
        self.expand = nnx.Linear(width, 4 * width, dtype=kind, rngs=rngs)
        self.project = nnx.Linear(4 * width, width, dtype=kind, rngs=rngs)
        self.dropout = nnx.Dropout(dropout)

    def __call__(
        self, x: jax.Array, rngs: nnx.Rngs | None, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return ``[rows, steps, width]``; steps attend where `mask` is true."""
        x = x + self._dropped(self.attention(self.attention_norm(x), mask=mask), rngs)
        wide = jax.nn.gelu(self.expand(self.feedforward_norm(x)))
        return x + self._dropped(self.project(wide), rngs)

    def _dropped(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.dropout(x, deterministic=rngs is None, rngs=rngs)


class Transformer(nnx.Module):
    """An encoder, with a prediction at the last step, which attends to all others.

    With `each_step` each step attends to itself and earlier ones, and has a prediction.

    Args:
        shape: Number of steps in a sequence, and of values in a step.
        width: The width of each layer.
        layers: Number of blocks.
        heads: Number of attention heads in a block; the width is divisible by it.
        outputs: Number of values to predict.
        dropout: Dropout probability before each residual connection.
        dtype: Data type of computation; parameters are float32.
        rngs: Random numbers for the initial parameters.
        embedding: The embedding of tokens; None if inputs are numbers.
        each_step: Whether to predict at each step.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        width: int,
        layers: int,
        heads: int,
        outputs: int,
        *,
        dropout: float,
        dtype: str,
        rngs: nnx.Rngs,
        embedding: nnx.Embed | None = None,
        each_step: bool = False,
    ) -> None:
        steps, features = shape
        self.embedding = embedding or nnx.Linear(features, width, dtype=jnp.dtype(dtype), rngs=rngs)
        self.each_step = each_step
        positions = 0.02 * jax.random.normal(rngs.params(), (steps, width))
        self.positions = nnx.Param(positions)
        self.blocks = nnx.List(Block(width, heads, dropout, dtype, rngs) for _ in range(layers))
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, steps, features]``, or from tokens.

        With `each_step` it is ``[rows, steps, outputs]``.
        """
        x = self.embedding(inputs)
        x = x + self.positions[...].astype(x.dtype)
        steps = x.shape[1]
        mask = jnp.tril(jnp.ones((steps, steps), bool))[None, None] if self.each_step else None
        for block in self.blocks:
            x = block(x, rngs, mask)
        x = x if self.each_step else x[:, -1]
        return self.head(self.norm(x.astype(jnp.float32)))
