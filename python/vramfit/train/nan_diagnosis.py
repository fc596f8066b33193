"""Why a loss is NaN or infinite: whether the data of that step is to blame, by dataset and row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramfit.train.feed import Feed

_MAX_ROWS_SHOWN = 3


@dataclass(frozen=True)
class NanCause:
    """What the data of a step says about a loss that is not finite.

    Attributes:
        in_data: Whether there are NaN or infinite values in it; None if it could not be read again.
        text: One clause about it.
    """

    in_data: bool | None
    text: str


def diagnose(feed: Feed, epoch: int, batch: int, step: int | None) -> NanCause:
    """Read the data of a step again, and look for values that are not finite.

    Args:
        feed: Where batches come from. The pass over it ends here.
        epoch: The epoch, from 0.
        batch: The batch (or stack of batches) in it, from 0.
        step: The step in a stack, from 0; None for single batches.
    """
    try:
        found = feed.read_again(epoch, batch)
    except Exception:  # of whatever the user's batches raise; the NaN is what is to be reported
        found = None
    if found is None:
        return NanCause(None, "whether its data is to blame could not be found out")
    columns, first_row = found
    parts = []
    for name, values in columns.items():
        start = first_row
        if step is not None:
            start += step * values.shape[1]
            values = values[step]
        if rows := _bad_rows(values):
            of_file = feed.file_rows(epoch, start, rows[:_MAX_ROWS_SHOWN])
            parts.append(_describe(name, rows, of_file, feed))
    if not parts:
        return NanCause(
            False,
            "the data of that step is finite, so it is the computation: a division by or logarithm "
            "of zero, an overflow, or too high a learning rate",
        )
    return NanCause(True, "the data of that step is to blame: " + "; ".join(parts))


def _bad_rows(values: Any) -> list[int]:
    """Return the rows of an array in which a value is NaN or infinite."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim == 0 or array.dtype.kind in "biuSUO":
        return []
    finite = np.isfinite(array)
    rows = np.flatnonzero(~finite.reshape(array.shape[0], -1).all(axis=1))
    return [int(row) for row in rows]


def _describe(name: str, rows: list[int], of_file: list[int] | None, feed: Feed) -> str:
    """Return which rows of a column are bad, as the file counts them where that is known."""
    shown = rows[:_MAX_ROWS_SHOWN]
    dataset = feed.dataset(name)
    where = f"`{name}`" if dataset in (None, name) else f"`{name}` (dataset `{dataset}`)"
    numbers = ", ".join(map(str, of_file or shown))
    more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    kind = "row" if len(rows) == 1 else "rows"
    of_what = "of the file" if of_file else "of the batch"
    return f"{where} is NaN or infinite in {kind} {numbers}{more} {of_what}"
