"""Batches of zeros in place of the loaders', for a dry run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramfit.train.task.task import row_shape

DRY_RUN_BATCHES = 3
"""The second step is the first that starts with what a step has left in memory."""


class _ZeroLoader:
    """Batches with the shapes and types of the loader's, without reading a file."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([self._batch] * DRY_RUN_BATCHES)

    def __len__(self) -> int:
        return DRY_RUN_BATCHES


def synthetic_batches(
    config: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[_ZeroLoader, _ZeroLoader | None]:
    """Return batches for training and validation; see `loaders.open_loaders`."""
    import numpy as np

    rows = config["data"]["batch_size"]
    stacked = config["training"]["steps_per_dispatch"]
    shapes = {"inputs": row_shape(data), "targets": data["targets"]["shape"][1:]}
    if data["predicts_next"]:
        shapes["targets"] = shapes["inputs"]

    def zeros(*leading: int) -> dict[str, Any]:
        return {
            name: np.zeros((*leading, *shape), data[name]["batch_dtype"])
            for name, shape in shapes.items()
        }

    train = _ZeroLoader(zeros(stacked, rows) if stacked > 1 else zeros(rows))
    if data["validation_rows"] == 0:
        return train, None
    return train, _ZeroLoader({**zeros(rows), "mask": np.ones(rows, bool)})
