"""Layers in which each step of a sequence looks at all others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    """Attention, then a layer of four times the width; each is added to what came in."""

    def __init__(self, width: int, heads: int, dropout: float, dtype: str, rngs: nnx.Rngs) -> None:
        kind = jnp.dtype(dtype)
        self.before_attention = nnx.LayerNorm(width, dtype=kind, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            heads, width, dtype=kind, decode=False, rngs=rngs, keep_rngs=False
        )
        self.before_layers = nnx.LayerNorm(width, dtype=kind, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, dtype=kind, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, dtype=kind, rngs=rngs)
        self.dropout = nnx.Dropout(dropout)

    def __call__(
        self, x: jax.Array, rngs: nnx.Rngs | None, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return ``[rows, steps, width]`` of the same shape; steps look where `mask` is true."""
        x = x + self._kept(self.attention(self.before_attention(x), mask=mask), rngs)
        wide = jax.nn.gelu(self.wide(self.before_layers(x)))
        return x + self._kept(self.narrow(wide), rngs)

    def _kept(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.dropout(x, deterministic=rngs is None, rngs=rngs)


class Transformer(nnx.Module):
    """An encoder; the last step, which has looked at all others, predicts.

    With `each_step` each step looks at itself and those before it, and predicts.

    Args:
        shape: Steps of a sequence, and numbers of a step.
        width: The width of each layer.
        layers: How many blocks.
        heads: Attention heads of a block; they divide the width.
        outputs: How many numbers to predict.
        dropout: The part of what each block adds that is left out in training.
        dtype: What layers compute in; parameters are float32.
        rngs: Where the first parameters come from.
        embedding: Makes vectors of tokens; None where inputs are numbers.
        each_step: Whether each step predicts.
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
        places = 0.02 * jax.random.normal(rngs.params(), (steps, width))
        self.places = nnx.Param(places)
        self.blocks = nnx.List(Block(width, heads, dropout, dtype, rngs) for _ in range(layers))
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, steps, features]``, or from tokens.

        With `each_step` it is ``[rows, steps, outputs]``.
        """
        x = self.embedding(inputs)
        x = x + self.places[...].astype(x.dtype)
        steps = x.shape[1]
        mask = jnp.tril(jnp.ones((steps, steps), bool))[None, None] if self.each_step else None
        for block in self.blocks:
            x = block(x, rngs, mask)
        x = x if self.each_step else x[:, -1]
        return self.head(self.norm(x.astype(jnp.float32)))
