"""The steps of an epoch, without waiting for the device but where that is meant.

The program is some steps ahead of the device, and no more: before it gives the device another, it
waits for one that was given long ago. Without that the batches of all steps under way would lie in
device memory. Large batches mean long steps, of which two are enough; with small ones more help
against other programs on the machine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from vramfit._errors import InvalidArgumentError
from vramfit.train.compiled import check_metrics, named
from vramfit.train.feed import real_steps
from vramfit.train.sitting import Sitting
from vramfit.train.troubles import batch_rows

_LEAST, _MOST = 2, 16
_BYTES = 32 << 20  # of batches under way; small beside what a step needs

_END = object()


def train(sitting: Sitting, batches: Iterator[Any]) -> str | None:
    """Do the steps of an epoch, and return a reason to stop, or None behind the last one."""
    import jax

    standing, meter = sitting.standing, sitting.meter
    seconds, now = sitting.watch.seconds, time.perf_counter
    stacked = sitting.rules.stacked
    left = sitting.feed.rows_left()
    total = _total(sitting)
    marks: deque[Any] = deque()
    newest: Any = None
    stride = most = count = 0
    waited_before = seconds["data_wait"]
    while True:
        begun = now()
        batch = next(batches, _END)
        # While the device still computes, nothing waits for data, however long a batch takes.
        if newest is None or newest.is_ready():
            seconds["data_wait"] += now() - begun
        if batch is _END:
            _must_have_steps(standing.steps_of_epoch)
            return None
        steps = 1
        if stacked > 1:
            batch, steps, left = real_steps(batch, left)
        if not stride:
            stride, most = _strides(_ahead(sitting, batch))
        metrics = _step(sitting, batch, steps)
        # The loader wants its memory back.
        del batch
        standing.step += steps
        standing.steps_of_epoch += steps
        standing.batches += 1
        meter.add(metrics, steps, stacked=stacked > 1)
        count += 1
        newest = next(iter(metrics.values()))
        if count % stride == 0:
            marks.append(newest)
            if len(marks) > most:
                begun = now()
                marks.popleft().block_until_ready()
                seconds["device_wait"] += now() - begun
        log_point = meter.due()
        if log_point and (reason := sitting.take(meter.turn())) is not None:
            return reason
        stop, save = sitting.wishes(log_point=log_point)
        if stop:
            return "signal"
        if save:
            # The steps under way would have been waited for without a checkpoint, too.
            begun = now()
            jax.block_until_ready(sitting.state)
            seconds["device_wait"] += now() - begun
            sitting.watch.end_steps()
            if (reason := sitting.save()) is not None:
                return reason
        sitting.progress.step(standing.steps_of_epoch, total, seconds["data_wait"] - waited_before)


def _must_have_steps(count: int) -> None:
    if count == 0:
        raise InvalidArgumentError(
            "`data` has no batch: an epoch of it was over before it had begun",
            hint="give batches that can be gone through again and again",
        )


def _step(sitting: Sitting, batch: Any, steps: int) -> Any:
    """Give a step, or a stack of them, to the device."""
    program = sitting.step
    before = program.count
    if before == 0:
        sitting.rows = batch_rows(batch, sitting.rules.stacked)
        sitting.progress.compiling("training step")
    sitting.state, metrics = program(sitting.state, batch)
    if program.count != before:
        took = program.take_seconds()
        sitting.watch.seconds["compile"] += took
        sitting.progress.pass_over(took)
        check_metrics(metrics, stacked=0 if sitting.rules.stacked == 1 else steps)
    return named(metrics)


def _ahead(sitting: Sitting, batch: Any) -> int:
    """Return how many steps may be under way."""
    import jax

    size = sum(leaf.nbytes for leaf in jax.tree.leaves(batch) if hasattr(leaf, "nbytes"))
    ahead: int = min(_MOST, max(_LEAST, _BYTES // max(size, 1)))
    if sitting.place.devices[0].platform != "cpu":
        return ahead
    # There batches lie in the loader's own memory until they are used up.
    return min(ahead, sitting.feed.spare() or ahead)


def _strides(ahead: int) -> tuple[int, int]:
    """Return behind how many steps the program waits, and for the step how many waits ago.

    Waiting behind every step would wake the program as often, beside a CPU that computes.
    """
    stride = max(1, ahead // 4)
    return stride, (ahead + 1) // stride - 1


def _total(sitting: Sitting) -> int | None:
    """Return the steps of an epoch, where they are known before its end."""
    batches = sitting.feed.batches()
    return None if batches is None else batches * sitting.rules.stacked
