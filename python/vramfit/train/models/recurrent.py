"""Layers that go through a sequence step by step, and carry what they remember."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class Recurrent(nnx.Module):
    """GRU or LSTM: each layer sees what the one below says at each step.

    The last step predicts, or each of them.

    Args:
        kind: ``gru`` or ``lstm``.
        features: Numbers of a step.
        widths: The width of each layer.
        outputs: How many numbers to predict.
        dropout: The part of each layer's outputs that is left out in training.
        dtype: What layers compute in; parameters are float32.
        rngs: Where the first parameters come from.
        embedding: Makes vectors of tokens; None where inputs are numbers.
        each_step: Whether each step predicts.
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
