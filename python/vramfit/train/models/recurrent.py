"""Recurrent networks: layers that process a sequence step by step and carry a hidden state."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class Recurrent(nnx.Module):
    """Stacked GRU or LSTM layers.

    The prediction is made at the last step, or at each step.

    Args:
        kind: ``gru`` or ``lstm``.
        features: Number of values in a step.
        widths: The width of each layer.
        outputs: Number of values to predict.
        dropout: Dropout probability after each layer.
        dtype: Data type of computation; parameters are float32.
        rngs: Random numbers for the initial parameters.
        embedding: The embedding of tokens; None if inputs are numbers.
        each_step: Whether to predict at each step.
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
        embedding: nnx.Embed | None = None,
        each_step: bool = False,
    ) -> None:
        cell = {"gru": nnx.GRUCell, "lstm": nnx.OptimizedLSTMCell}[kind]
        sizes = [features, *widths]
        self.cells = nnx.List(
            cell(size, width, dtype=jnp.dtype(dtype), rngs=rngs)
            for size, width in zip(sizes, widths, strict=False)
        )
        self.dropout = nnx.Dropout(dropout)
        self.head = nnx.Linear(sizes[-1], outputs, rngs=rngs)
        self.embedding = embedding
        self.each_step = each_step
        self.kind = kind
        self.dtype = jnp.dtype(dtype)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, steps, features]``, or from tokens.

        With `each_step` it is ``[rows, steps, outputs]``.
        """
        x = inputs if self.embedding is None else self.embedding(inputs)
        # A scan goes along the first axis.
        x = x.swapaxes(0, 1).astype(self.dtype)
        for cell in self.cells:
            start = jnp.zeros((inputs.shape[0], cell.hidden_features), self.dtype)
            carry = start if self.kind == "gru" else (start, start)
            _, x = jax.lax.scan(cell, carry, x)
            x = self.dropout(x, deterministic=rngs is None, rngs=rngs)
        x = x.swapaxes(0, 1) if self.each_step else x[-1]
        return self.head(x.astype(jnp.float32))
