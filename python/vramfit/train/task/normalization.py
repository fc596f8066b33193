"""Normalization of inputs and targets by statistics of the training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramfit.errors import InvalidArgumentError, InvalidFileError
from vramfit.train.output.run_directory import CHECKPOINTS
from vramfit.train.run_record import read_record
from vramfit.train.task.loaders import find_split

_MAX_RATIO = 2.0**14
"""Means so many times larger than the deviation leave a float32 less than 10 bits of a value."""

Normalization = dict[str, dict[str, Any]]
"""`mean` and `std` of each feature, for `inputs` and `targets`: float32 arrays."""


def normalized_columns(config: Mapping[str, Any]) -> list[str]:
    """Return which of inputs and targets a configuration normalizes."""
    which = config["data"]["normalize"]
    return ["inputs", "targets"] if which == "both" else [which] if which else []


def compute_normalization(
    config: Mapping[str, Any],
) -> tuple[Normalization, list[str]]:
    """Return the statistics of the rows that a run trains on, and remarks about them.

    Features without spread keep their distance to the mean.

    Args:
        config: A whole configuration.
    """
    import numpy as np

    from vramfit.data import compute_statistics

    own = config["data"]
    columns = {name: own[name] for name in normalized_columns(config)}
    found = compute_statistics(
        own["path"],
        columns,
        split=find_split(config, "train"),
        memory=own["memory"],
    )
    normalization, notes = {}, []
    for name, one in found.items():
        missing = int(one.nan.sum() + one.infinite.sum())
        if missing:
            notes.append(
                f"{missing} values of `{columns[name]}` are NaN or infinite, and no part of the "
                "mean and deviation that it is normalized by"
            )
        std = np.where(one.std > 0, one.std, 1.0)
        ratio = float(np.max(np.abs(one.mean) / std, initial=0.0))
        if ratio > _MAX_RATIO and one.dtype in ("float64", "int32", "uint32", "int64", "uint64"):
            notes.append(
                f"values of `{columns[name]}` are up to {ratio:.3g} deviations from 0, and float32 "
                "rounds off a part of what distinguishes them: store them relative to an offset"
            )
        largest = float(np.max(np.abs([one.mean, std]), initial=0.0, where=np.isfinite(one.mean)))
        if largest > np.finfo(np.float32).max:
            raise InvalidArgumentError(
                f"values of `{columns[name]}` are too large for float32: {largest:g}",
                hint="store them in another unit",
            )
        normalization[name] = {
            "mean": np.nan_to_num(one.mean).astype(np.float32),
            "std": std.astype(np.float32),
        }
    return normalization, notes


def recorded_normalization(
    config: Mapping[str, Any],
) -> tuple[Normalization, Sequence[str]] | None:
    """Return the statistics of the run that is resumed, and remarks; None without any.

    They are part of its checkpoints, whatever the data is now.
    """
    import numpy as np

    directory = Path(config["training"]["directory"])
    try:
        has_checkpoints = any(path.name.isdecimal() for path in (directory / CHECKPOINTS).iterdir())
        record = read_record(directory)
    except (OSError, InvalidFileError):
        return None
    known = record.normalization
    if not has_checkpoints or known is None or sorted(known) != sorted(normalized_columns(config)):
        return None
    found = {
        name: {word: np.array(one[word], np.float32) for word in ("mean", "std")}
        for name, one in known.items()
    }
    return found, record.remarks


def as_lists(normalization: Normalization) -> dict[str, dict[str, list[float]]] | None:
    """Return statistics as JSON has them; None where nothing is normalized."""
    found = {
        name: {word: array.tolist() for word, array in one.items()}
        for name, one in normalization.items()
    }
    return found or None


def unknown_normalization(config: Mapping[str, Any], data: Mapping[str, Any]) -> Normalization:
    """Return statistics of the right shapes, for a dry run or before a checkpoint is restored."""
    import numpy as np

    found = {}
    for name in normalized_columns(config):
        features = (data[name]["shape"][1:] or [1])[-1]
        ones = np.ones(features, np.float32)
        found[name] = {"mean": np.zeros_like(ones), "std": ones}
    return found


def normalize(values: Any, statistics: Mapping[str, Any] | None) -> Any:
    """Return values ``[rows, ..., features]`` with mean 0 and deviation 1."""
    if statistics is None:
        return values
    import jax.numpy as jnp

    values = values.astype(jnp.float32)
    if values.ndim == 1:
        return (values - statistics["mean"][0]) / statistics["std"][0]
    return (values - statistics["mean"]) / statistics["std"]


def denormalize(values: Any, statistics: Mapping[str, Any] | None, row: tuple[int, ...]) -> Any:
    """Return outputs ``[rows, values of a row]`` in the units of the targets.

    Args:
        values: The outputs.
        statistics: Those of the targets; None if they are not normalized.
        row: The shape of a row of the targets.
    """
    if statistics is None:
        return values
    if not row:
        return values * statistics["std"][0] + statistics["mean"][0]
    shaped = values.reshape(values.shape[0], *row)
    return (shaped * statistics["std"] + statistics["mean"]).reshape(values.shape)
