"""Which samples are read: numbers, groups, sets of a split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vramfit.data.checks import as_integer, check_choice, check_counts, check_text
from vramfit.data.dataset import DatasetArgument, DatasetFiles
from vramfit.errors import InvalidArgumentError

SplitArgument = tuple[str, float, float, tuple[int, int] | None, str, bool | None, int]


@dataclass(frozen=True)
class KFold:
    """One of several folds, which is used for validation while the others are for training.

    Each sample is in the validation set of one fold, and in the training sets of the others::

        for fold in range(5):
            train = Loader(..., split=("train", KFold(5, fold)))
            validation = Loader(..., split=("validation", KFold(5, fold)))

    Attributes:
        folds: The number of folds.
        fold: Which of them, from 0.
    """

    folds: int
    fold: int

    def __post_init__(self) -> None:
        check_counts(folds=self.folds)
        if not 0 <= as_integer("fold", self.fold) < self.folds or self.folds < 2:
            raise InvalidArgumentError(
                f"fold {self.fold} of {self.folds} is not one of two or more",
                hint="folds are counted from 0: `KFold(5, 0)` to `KFold(5, 4)`",
            )


def read_groups(groups: Any, rows: Any, files: DatasetFiles) -> list[str] | None:
    """Return the names of groups to read.

    Args:
        groups: The argument of the loader: names, or the path of a dataset with them.
        rows: The argument of the loader, which excludes it.
        files: The files of that dataset.
    """
    if groups is None:
        return None
    if rows is not None:
        raise InvalidArgumentError(
            "`rows` and `groups` were given", hint="use one of them to select samples"
        )
    # No wildcard stands for a slash.
    if isinstance(groups, str) and "/" in groups:
        dataset = DatasetArgument("groups", groups, files, is_text=True)
        dataset.check_is_one("the names")
        groups = dataset.read_texts()
    is_list = isinstance(groups, Iterable) and not isinstance(groups, str | bytes)
    names = list(groups) if is_list else [groups]
    names = [name.decode(errors="replace") if isinstance(name, bytes) else name for name in names]
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"`groups` is {groups!r}, but must be names of groups",
            hint='use the names that `*` stands for: `groups=["demo_0", "demo_7"]`',
        )
    for name in names:
        check_text("groups", name)
    return names


def read_rows(rows: Any, files: DatasetFiles) -> tuple[bytes, int | None] | None:
    """Return sample numbers as ranges, and how many samples there must be if they are of a mask.

    Args:
        rows: The argument of the loader: numbers in any order, a mask with a value for each sample,
            a range, a slice, or the path of a dataset with numbers or a mask.
        files: The files of that dataset.
    """
    if rows is None:
        return None
    import numpy as np

    hint = "use sample numbers, a mask, or a range: `rows=np.flatnonzero(labels == 3)`"
    if isinstance(rows, str):
        dataset = DatasetArgument("rows", rows, files)
        rows = dataset.read_numbers()
        if not _is_mask(rows):
            dataset.check_is_one("the numbers")
    if isinstance(rows, slice):
        limits = [0 if rows.start is None else rows.start, rows.stop, rows.step or 1]
        if rows.stop is None or min(as_integer("rows", limit) for limit in limits) < 0:
            raise InvalidArgumentError(
                f"`rows` is {rows}, which depends on the number of samples",
                hint="use a slice with a start and an end from 0 on",
            )
        rows = range(*limits)
    try:
        array = np.asarray(rows)
    except ValueError:
        raise InvalidArgumentError(
            f"`rows` is {rows!r}, and selects no samples", hint=hint
        ) from None
    mask_length = None
    if _is_mask(array):
        mask_length = len(array)
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(
            f"`rows` is an array of {array.dtype} of shape {array.shape}, and selects no samples",
            hint=hint,
        )
    array = np.sort(array)
    if array[0] < 0 or array[-1] >= 1 << 63:
        raise InvalidArgumentError(
            f"`rows` has {array[0] if array[0] < 0 else array[-1]}, which is not the number of a "
            "sample",
            hint="count from 0 on, from the first sample",
        )
    array = array.astype(np.int64)
    steps = np.diff(array)
    if (steps == 0).any():
        repeated = array[1:][steps == 0][0]
        raise InvalidArgumentError(
            f"`rows` has {repeated} more than once",
            hint="list each sample once: `np.unique(rows)`",
        )
    starts = np.flatnonzero(np.concatenate([[True], steps != 1]))
    ends = np.concatenate([starts[1:], [len(array)]]) - 1
    pairs = np.stack([array[starts], array[ends] + 1], axis=1)
    return pairs.astype("<u8").tobytes(), mask_length


def _is_mask(array: Any) -> bool:
    """Whether an array has a truth value for each sample.

    Files have them also as integers: of more than two, which are all 0 or 1, one is repeated, as no
    number of a sample may be.
    """
    if array.ndim != 1 or array.dtype.kind not in "biu":
        return False
    return bool(array.dtype == bool or (array.size > 2 and ((array == 0) | (array == 1)).all()))


def describe_split(split: Any, by: str | None, seed: int) -> SplitArgument | None:
    """Return a split as the native loader expects it, as :class:`LoaderOptions` says."""
    if by is not None:
        check_choice("split_by", by, ("sample", "group"))
    if split is None:
        return None
    hint = (
        'use `("train", 0.1)`: a tenth is for validation; `("train", 0.8, 0.1, 0.1)`, or '
        '`("train", KFold(5, 0))`'
    )
    invalid = InvalidArgumentError(f"`split` is {split!r}, which is not a split", hint=hint)
    if not isinstance(split, tuple | list) or len(split) < 2 or not isinstance(split[0], str):
        raise invalid
    name, *rest = split
    mode = rest.pop() if isinstance(rest[-1], str) else "spread"
    by_group = None if by is None else by == "group"
    if len(rest) == 1 and isinstance(rest[0], KFold):
        fold = rest[0]
        check_choice("split", mode, ("spread", "blocks"))
        mode = "tail" if mode == "blocks" else mode
        return name, 0.0, 0.0, (fold.fold, fold.folds), mode, by_group, seed
    try:
        fractions = [float(fraction) for fraction in rest]
    except (TypeError, ValueError):
        raise invalid from None
    if len(fractions) == 1:
        return name, fractions[0], 0.0, None, mode, by_group, seed
    if len(fractions) not in (2, 3) or abs(sum(fractions) - 1) > 1e-6:
        raise InvalidArgumentError(
            f"the fractions of `split` are {fractions}, and do not sum to 1", hint=hint
        )
    test = fractions[2] if len(fractions) == 3 else 0.0
    return name, fractions[1], test, None, mode, by_group, seed
