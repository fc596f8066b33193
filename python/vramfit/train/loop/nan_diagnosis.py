"""Why a loss is NaN or infinite: whether the data of that step is the cause, by dataset and row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramfit.train.data.batch_source import BatchSource
from vramfit.train.result import NanCause

if TYPE_CHECKING:
    from vramfit.train.loop.train_loop import TrainLoop

_MAX_ROWS_SHOWN = 3


def report_nan(loop: TrainLoop, step: int, loss: float) -> NanCause:
    """Report the loss of a step that is not finite, and return its likely cause."""
    progress, stacked = loop.progress, loop.options.steps_per_dispatch
    step_of_epoch = step - (progress.step - progress.steps_of_epoch)
    batch, index = divmod(step_of_epoch - 1, stacked)
    cause = diagnose(loop.source, progress.epoch, batch, index if stacked > 1 else None)
    steps = [] if loop.checkpoints is None else loop.checkpoints.all_steps()
    loop.telemetry.log_nan(
        step=step,
        epoch=progress.epoch + 1,
        step_of_epoch=step_of_epoch,
        loss=loss,
        cause=cause.text,
        checkpoint=steps[0] if steps else None,
    )
    return cause


def diagnose(source: BatchSource, epoch: int, batch: int, step: int | None) -> NanCause:
    """Read the data of a step again, and search it for values that are not finite.

    Args:
        source: Where batches come from. Iteration over it ends here.
        epoch: The epoch, from 0.
        batch: The batch (or stack of batches) in it, from 0.
        step: The step in a stack, from 0; None for single batches.
    """
    try:
        found = source.read_again(epoch, batch)
    except Exception:  # of whatever kind the user's batches raise; the NaN is what matters
        found = None
    if found is None:
        return NanCause(None, "the data of that step could not be read again to check it")
    columns, first_row = found
    parts = []
    for name, values in columns.items():
        start = first_row
        if step is not None:
            start += step * values.shape[1]
            values = values[step]
        if rows := _rows_not_finite(values):
            file_rows = source.file_rows(epoch, start, rows[:_MAX_ROWS_SHOWN])
            parts.append(_describe(name, rows, file_rows, source.dataset(name)))
    if not parts:
        return NanCause(
            False,
            "the data of that step is finite, so the cause is the computation: a division by or "
            "logarithm of zero, an overflow, or a learning rate that is too high",
        )
    return NanCause(True, "the cause is the data of that step: " + "; ".join(parts))


def _rows_not_finite(values: Any) -> list[int]:
    """Return the rows of an array in which a value is NaN or infinite."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim == 0 or array.dtype.kind in "biuSUO":
        return []
    finite = np.isfinite(array)
    rows = np.flatnonzero(~finite.reshape(array.shape[0], -1).all(axis=1))
    return [int(row) for row in rows]


def _describe(name: str, rows: list[int], file_rows: list[int] | None, dataset: str | None) -> str:
    """Return which rows of a column are not finite, by their numbers in the file where known."""
    shown = rows[:_MAX_ROWS_SHOWN]
    column = f"`{name}`" if dataset in (None, name) else f"`{name}` (dataset `{dataset}`)"
    numbers = ", ".join(map(str, file_rows or shown))
    more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    kind = "row" if len(rows) == 1 else "rows"
    where = "of the file" if file_rows else "of the batch"
    return f"{column} is NaN or infinite in {kind} {numbers}{more} {where}"
