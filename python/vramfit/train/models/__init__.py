"""The built-in models: from a row of numbers, or a sequence of them, to a prediction.

They are written to be read, and to be copied into your own program when they are not enough. Each
is a flax module that is called with a batch of inputs, and with `rngs` for dropout: without them
there is no dropout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx

from vramfit.train.models.cnn import Cnn
from vramfit.train.models.mlp import Mlp
from vramfit.train.models.recurrent import Recurrent
from vramfit.train.models.transformer import Transformer

__all__ = ["Cnn", "Mlp", "Recurrent", "Transformer", "build"]


def build(
    config: Mapping[str, Any],
    row: Sequence[int],
    outputs: int,
    *,
    seed: int,
    vocabulary: int | None = None,
    each_step: bool = False,
) -> nnx.Module:
    """Return the model that the table ``[model]`` of a configuration describes.

    Args:
        config: The table, with a value for each key.
        row: The shape of one row of inputs; for sequences ``(steps, features)``, for tokens
            ``(steps,)``.
        outputs: Number of values to predict for each row.
        seed: Seed of the initial parameters.
        vocabulary: Number of different tokens; None if inputs are numbers.
        each_step: Whether to predict at each step, from this and earlier steps.
    """
    rngs = nnx.Rngs(seed)
    kind, widths = config["kind"], config["hidden_sizes"]
    rest = {"dropout": config["dropout"], "dtype": config["dtype"], "rngs": rngs}
    if kind == "mlp":
        return Mlp(math.prod(row), widths, outputs, **rest)
    if kind == "cnn":
        return Cnn(row, widths, outputs, **rest)
    rest["each_step"] = each_step
    if vocabulary is None:
        steps, features = row
    else:
        steps, features = row[0], widths[0]
        dtype = jnp.dtype(config["dtype"])
        rest["embedding"] = nnx.Embed(vocabulary, features, dtype=dtype, rngs=rngs)
    if kind == "transformer":
        shape = (steps, features)
        return Transformer(shape, widths[0], len(widths), config["heads"], outputs, **rest)
    return Recurrent(kind, features, widths, outputs, **rest)
