"""A convolutional network: blocks that halve an image and widen its channels."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class Cnn(nnx.Module):
    """A convolutional network.

    Each block is a convolution of 3×3 pixels and, while the image has more than one pixel along
    both sides, the maximum of each 2×2 of them. The prediction is made from the mean over the
    image that is left.

    Args:
        shape: Height and width of an image, and its number of channels if it has that axis.
        channels: Number of channels of each block.
        outputs: Number of values to predict.
        dropout: Dropout probability after each block.
        dtype: Data type of computation; parameters are float32.
        rngs: Random numbers for the initial parameters.
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        outputs: int,
        *,
        dropout: float,
        dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        self.has_channels = len(shape) == 3
        sizes = [shape[2] if self.has_channels else 1, *channels]
        self.blocks = nnx.List(
            nnx.Conv(size, width, (3, 3), dtype=jnp.dtype(dtype), rngs=rngs)
            for size, width in zip(sizes, channels, strict=False)
        )
        self.dropout = nnx.Dropout(dropout)
        self.head = nnx.Linear(sizes[-1], outputs, rngs=rngs)

    def __call__(self, inputs: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Predict ``[rows, outputs]`` from ``[rows, height, width]``, with or without channels."""
        x = inputs if self.has_channels else inputs[..., None]
        for block in self.blocks:
            x = jax.nn.gelu(block(x))
            if min(x.shape[1:3]) > 1:
                x = nnx.max_pool(x, (2, 2), (2, 2))
            x = self.dropout(x, deterministic=rngs is None, rngs=rngs)
        return self.head(x.mean(axis=(1, 2)).astype(jnp.float32))
