"""Layers that go through a sequence step by step, and carry what they remember."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class Recurrent(nnx.Module):
    """GRU or LSTM: each layer sees what the one below says at each step; the last step predicts.

    Args:
        kind: ``gru`` or ``lstm``.
        features: Numbers of a step.
        widths: The width of each layer.
        outputs: How many numbers to predict.
        dropout: The part of each layer's outputs that is left out in training.
        dtype: What layers compute in; parameters are float32.
        rngs: Where the first parameters come from.
    """

    def __init__(
        self,
        kind: str,
        features: int,
        widths: Sequence[int],
        outputs: int,
        *,
        dropout: float,
        dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        cell = {"gru": nnx.GRUCell, "lstm": nnx.OptimizedLSTMCell}[kind]
        sizes = [features, *widths]
        self.cells = nnx.List(
            cell(size, width, dtype=jnp.dtype(dtype), rngs=rngs)
            for size, width in zip(sizes, widths, strict=False)
        )
        self.dropout = nnx.Dropout(dropout)
        self.head = nnx.Linear(sizes[-1], outputs, rngs=rngs)
        self.kind = kind
        self.dtype = jnp.dtype(dtype)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, steps, features]``."""
        # A scan goes along the first axis.
        x = inputs.swapaxes(0, 1).astype(self.dtype)
        for cell in self.cells:
            start = jnp.zeros((inputs.shape[0], cell.hidden_features), self.dtype)
            carry = start if self.kind == "gru" else (start, start)
            _, x = jax.lax.scan(cell, carry, x)
            x = self.dropout(x, deterministic=rngs is None, rngs=rngs)
        return self.head(x[-1].astype(jnp.float32))
