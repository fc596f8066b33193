"""Weights of samples, from an array or a dataset."""

from __future__ import annotations

import math
from typing import Any

from vramfit.data.checks import list_paths
from vramfit.data.samples import Rows, plan_columns
from vramfit.errors import InvalidArgumentError

_ROWS_AT_A_TIME = 4096


def read_weights(
    weights: Any, path: Any, *, memory: str, unpack: bool, allow_unclosed: bool
) -> bytes | None:
    """Return a weight for each sample as 64-bit floats.

    Args:
        weights: The argument of the loader.
        path: The files, if it is a dataset.
        memory: Memory for decoded chunks of it.
        unpack: Whether values packed by the conventions of netCDF are unpacked.
        allow_unclosed: Whether files that were not closed are read.
    """
    if weights is None:
        return None
    import numpy as np

    if isinstance(weights, str):
        return _read_dataset(
            weights, path, memory=memory, unpack=unpack, allow_unclosed=allow_unclosed
        )
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


def _read_dataset(dataset: str, path: Any, *, memory: str, **options: bool) -> bytes:

    from vramfit._native import RowReader

    (column,) = plan_columns({"weights": dataset}, Rows(), None)
    # Not a loader: that would need a budget of its own, and the weights are in memory as a whole.
    reader = RowReader(
        list_paths(path),
        [column.to_native("float64")],
        Rows()._to_json(),
        trim=False,
        cache=memory,
        floats=None,
        **options,
    )
    ((_, _, shape),) = reader.columns
    if math.prod(shape) != 1:
        raise InvalidArgumentError(
            f"`{dataset}` has rows of shape {tuple(shape)}, and not a weight for each sample",
            hint="use a dataset with one number in each row",
        )
    found = bytearray()
    for start in range(0, reader.rows, _ROWS_AT_A_TIME):
        rows = range(start, min(start + _ROWS_AT_A_TIME, reader.rows))
        found += reader.read(list(rows))[0]
    return bytes(found)
