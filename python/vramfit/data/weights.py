"""Weights of samples, from an array or a dataset."""

from __future__ import annotations

from typing import Any

from vramfit.errors import InvalidArgumentError

_ROWS_AT_A_TIME = 4096


def read_weights(weights: Any, **options: Any) -> bytes | None:
    """Return a weight for each sample as 64-bit floats.

    Args:
        weights: The argument of the loader.
        options: Arguments of a loader that reads a dataset of weights.
    """
    if weights is None:
        return None
    import numpy as np

    if isinstance(weights, str):
        return _read_dataset(weights, options)
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


def _read_dataset(dataset: str, options: dict[str, Any]) -> bytes:
    import numpy as np

    from vramfit.data.loader import Loader

    with Loader(
        datasets={"weights": dataset},
        batch_size=_ROWS_AT_A_TIME,
        shuffle=False,
        dtype={"weights": "float64"},
        x64=True,
        **options,
    ) as loader:
        found = np.empty(loader.rows, "<f8")
        done = 0
        for batch in loader:
            rows = batch["weights"]
            if rows[0].size != 1:
                raise InvalidArgumentError(
                    f"`{dataset}` has rows of shape {rows.shape[1:]}, and not a weight for each "
                    "sample",
                    hint="use a dataset with one number in each row",
                )
            found[done : done + len(rows)] = rows.reshape(-1)
            done += len(rows)
    return found.tobytes()
