"""Statistics of datasets, for normalization."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vramfit._native import compute_column_statistics
from vramfit.data.arguments import (
    LoaderOptions,
    as_memory,
    name_columns,
)
from vramfit.data.checks import as_array, check_columns, list_paths
from vramfit.data.dataset import DatasetFiles
from vramfit.data.samples import ColumnPlan, Rows, plan_columns
from vramfit.data.selection import describe_split, read_groups, read_rows
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_ARRAYS = ("count", "mean", "std", "min", "max", "nan", "infinite")


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of a dataset, for each element of the last axis of a row (one if it is a number).

    Attributes:
        rows: Rows that were read.
        shape: The shape of a row.
        dtype: The type of its elements.
        count: How many finite numbers there are.
        mean: Their mean.
        std: Their standard deviation, the root of the mean squared distance from the mean.
        min: The smallest of them; NaN if there is none.
        max: The largest of them; NaN if there is none.
        nan: How many numbers are NaN.
        infinite: How many numbers are infinite.
        labels: How many rows have each value, if a row is one integer with few values; else None.
        unpacked: Whether these are statistics of unpacked values, where values are packed by the
            conventions of netCDF: a loader with another `unpack` does not normalize with them.
    """

    rows: int
    shape: tuple[int, ...]
    dtype: str
    count: Array
    mean: Array
    std: Array
    min: Array
    max: Array
    nan: Array
    infinite: Array
    labels: dict[int, int] | None
    unpacked: bool = False

    @classmethod
    def _from_json(cls, found: Mapping[str, Any]) -> Self:
        import numpy as np

        labels = found["labels"]
        counts = ("count", "nan", "infinite")
        arrays = {
            name: np.array(
                [np.nan if one is None else one for one in found[name]],
                np.int64 if name in counts else np.float64,
            )
            for name in _ARRAYS
        }
        return cls(
            rows=found["rows"],
            shape=tuple(found["shape"]),
            dtype=found["dtype"],
            labels=None if labels is None else {it["value"]: it["rows"] for it in labels},
            unpacked=found["unpacked"],
            **arrays,
        )


def compute_statistics(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    datasets: str | Sequence[str] | Mapping[str, str],
    *,
    axis: int | Mapping[str, int] = 0,
    rows: Any = None,
    groups: Sequence[str] | None = None,
    split: tuple[Any, ...] | None = None,
    split_by: str | None = None,
    split_seed: int = 0,
    unpack: bool = False,
    allow_unclosed: bool = False,
    memory: str | int = "256MiB",
) -> dict[str, ColumnStatistics]:
    """Return statistics of the rows of datasets, read in one pass and bounded memory.

    The arguments are those of :class:`vramfit.data.Loader`, and `axis` is that of
    :class:`vramfit.data.Rows`. With the split of the training run,
    the statistics are those of its training set alone: add ``split_by="group"`` where its samples
    are windows.
    """
    names = name_columns(datasets)
    samples = Rows(axis=axis)
    rows, groups = as_array(rows), as_array(groups)
    files = DatasetFiles(list_paths(path), as_memory(memory), bool(unpack), bool(allow_unclosed))
    options = LoaderOptions(
        files=files.paths,
        columns=[column.to_native() for column in plan_columns(names, samples, None)],
        samples=samples._to_json(),
        memory=files.memory,
        selected_samples=read_rows(rows, files),
        selected_groups=read_groups(groups, rows, files),
        split=describe_split(split, split_by, split_seed),
        unpack=files.unpack,
        allow_unclosed=files.allow_unclosed,
    )
    found = json.loads(compute_column_statistics(options))
    return {name: ColumnStatistics._from_json(one) for name, one in zip(names, found, strict=True)}


def find_normalization(
    normalize: Any, columns: Sequence[ColumnPlan], kinds: Mapping[str, str], *, unpack: bool
) -> dict[str, tuple[list[float], list[float]]]:
    """Return means and standard deviations of the columns that an argument says to normalize.

    Args:
        normalize: The argument of the loader.
        columns: The columns.
        kinds: The types that they are converted to.
        unpack: Whether the loader unpacks values that are packed by the conventions of netCDF.

    Raises:
        InvalidArgumentError: The argument is no normalization of the columns, or one of values
            that are not unpacked as those of the loader.
    """
    if normalize is None:
        return {}
    if isinstance(normalize, str | os.PathLike):
        return _find_in_file(normalize, columns, kinds, unpack=unpack)
    hint = 'use `normalize="stats.json"` or `normalize={"x": (mean, std)}`'
    if not isinstance(normalize, Mapping):
        raise InvalidArgumentError(
            f"`normalize` is {normalize!r}, which is neither a file nor a dictionary", hint=hint
        )
    check_columns("normalize", normalize, [column.name for column in columns])
    for name, one in normalize.items():
        if isinstance(one, ColumnStatistics):
            _check_unpacked(f"`normalize` of `{name}`", one.unpacked, unpack=unpack)
    found = {name: _as_pair(name, one, hint) for name, one in normalize.items()}
    # A column that is another one some rows later has its scale.
    by_dataset = {column.dataset: found[column.name] for column in columns if column.name in found}
    for column in columns:
        if column.name not in found and column.shift != 0 and column.dataset in by_dataset:
            found[column.name] = by_dataset[column.dataset]
    return found


def _find_in_file(
    path: str | os.PathLike[str],
    columns: Sequence[ColumnPlan],
    kinds: Mapping[str, str],
    *,
    unpack: bool,
) -> dict[str, tuple[list[float], list[float]]]:
    known = _read_file(path)
    found = {}
    for column in columns:
        one = known.get(column.dataset.strip("/"))
        if one is not None:
            # Files of before there was `--unpack` do not say.
            is_unpacked = one.get("unpacked", False)
            _check_unpacked(f"`{os.fspath(path)}`", is_unpacked, unpack=unpack)
        if one is not None and ("float" in one["dtype"] or "float" in kinds.get(column.name, "")):
            found[column.name] = (one["mean"], one["std"])
    if not found:
        wanted, there = (
            ", ".join(f"`{name}`" for name in names)
            for names in ([column.dataset for column in columns], known)
        )
        raise InvalidArgumentError(
            f"`{os.fspath(path)}` has statistics of {there}, and no floats among {wanted}",
            hint="compute them for the same paths: `vramfit data stats FILE --dataset 'data/*/obs' "
            "--output stats.json`",
        )
    return found


def _check_unpacked(what: str, is_unpacked: bool, *, unpack: bool) -> None:
    """Check that statistics are of values as the loader reads them."""
    if is_unpacked == unpack:
        return
    if unpack:
        raise InvalidArgumentError(
            f"{what} has statistics of values as they are stored, and the loader unpacks them",
            hint="compute those of unpacked values: `vramfit data stats FILE --unpack`, or "
            "`compute_statistics(..., unpack=True)`",
        )
    raise InvalidArgumentError(
        f"{what} has statistics of unpacked values, and the loader reads them as they are stored",
        hint="add `unpack=True` to the loader, or compute statistics without it",
    )


def _as_pair(name: str, one: Any, hint: str) -> tuple[list[float], list[float]]:
    import numpy as np

    pair = (one.mean, one.std) if isinstance(one, ColumnStatistics) else one
    try:
        mean, std = (np.atleast_1d(np.asarray(part, np.float64)).ravel().tolist() for part in pair)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"`normalize` of `{name}` is {one!r}, which is not a mean and a deviation", hint=hint
        ) from None
    return mean, std


def _read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if found["schema"] != 1:
            raise InvalidArgumentError(
                f"`{os.fspath(path)}` has format version {found['schema']}, and this vramfit "
                "reads version 1",
                hint="make one: `vramfit data stats FILE --output stats.json`",
            )
        known = {name.strip("/"): one for name, one in found["datasets"].items()}
        for one in known.values():
            one["mean"], one["std"], one["dtype"]
        return known
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"`{os.fspath(path)}` is not a file of statistics",
            cause=str(error),
            hint="make one: `vramfit data stats FILE --output stats.json`",
        ) from None
