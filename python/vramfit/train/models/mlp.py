"""A multilayer perceptron: dense layers, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class Mlp(nnx.Module):
    """A multilayer perceptron.

    Args:
        features: Number of values in a row; rows of another shape are flattened.
        widths: The width of each layer.
        outputs: Number of values to predict.
        dropout: Dropout probability after each layer.
        dtype: Data type of computation; parameters are float32.
        rngs: Random numbers for the initial parameters.
    """

    def __init__(
        self,
        features: int,
        widths: Sequence[int],
        outputs: int,
        *,
        dropout: float,
        dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        sizes = [features, *widths]
        self.layers = nnx.List(
            nnx.Linear(size, width, dtype=jnp.dtype(dtype), rngs=rngs)
            for size, width in zip(sizes, widths, strict=False)
        )
        self.dropout = nnx.Dropout(dropout)
        self.head = nnx.Linear(sizes[-1], outputs, rngs=rngs)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, ...]``."""
        x = inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))
        for layer in self.layers:
            x = jax.nn.gelu(layer(x))
            x = self.dropout(x, deterministic=rngs is None, rngs=rngs)
        return self.head(x.astype(jnp.float32))
