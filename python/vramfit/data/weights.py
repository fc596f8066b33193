"""Weights of samples, from an array or a dataset."""

from __future__ import annotations

from typing import Any

from vramfit.data.dataset import DatasetArgument, DatasetFiles
from vramfit.errors import InvalidArgumentError


def read_weights(weights: Any, files: DatasetFiles) -> bytes | None:
    """Return a weight for each sample as 64-bit floats.

    Args:
        weights: The argument of the loader.
        files: The files, if it is the path of a dataset.
    """
    if weights is None:
        return None
    import numpy as np

    if isinstance(weights, str):
        weights = DatasetArgument("weights", weights, files, kind="float64").read_numbers()
    try:
        array = np.asarray(weights)
    except ValueError:
        array = np.empty(0, object)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biuf":
        raise InvalidArgumentError(
            f"`weights` is an array of {array.dtype} of shape {array.shape}, which is not a number "
            "for each sample",
            hint="use an array with one weight for each sample, or the path of a dataset with them",
        )
    return array.astype("<f8").tobytes()
