"""The steps of an epoch, without waiting for the device but where that is meant.

The program is a few steps ahead of the device, and no more: it waits for the step before the last,
which leaves the device with one to run and one to begin. Further ahead nothing would be won, and
the batches of all steps under way would lie in device memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from vramfit.train.compiled import check_metrics, named
from vramfit.train.feed import real_steps
from vramfit.train.sitting import Sitting
from vramfit.train.troubles import batch_rows

AHEAD = 2
"""Steps that are given to the device before the program waits for the first of them."""

_END = object()


def train(sitting: Sitting, batches: Iterator[Any]) -> str | None:
    """Do the steps of an epoch, and return a reason to stop, or None behind the last one."""
    standing, meter = sitting.standing, sitting.meter
    seconds, now = sitting.watch.seconds, time.perf_counter
    stacked = sitting.rules.stacked
    left = sitting.feed.rows_left()
    total = _total(sitting)
    under_way: deque[Any] = deque()
    waited = 0.0
    while True:
        begun = now()
        batch = next(batches, _END)
        passed = now() - begun
        seconds["data_wait"] += passed
        waited += passed
        if batch is _END:
            return None
        steps = 1
        if stacked > 1:
            batch, steps, left = real_steps(batch, left)
        metrics = _step(sitting, batch, steps)
        # The loader wants its memory back.
        del batch
        standing.step += steps
        standing.steps_of_epoch += steps
        standing.batches += 1
        meter.add(metrics, steps, stacked=stacked > 1)
        under_way.append(next(iter(metrics.values())))
        if len(under_way) > AHEAD:
            begun = now()
            under_way.popleft().block_until_ready()
            seconds["device_wait"] += now() - begun
        log_point = meter.due()
        if log_point and (reason := sitting.take(meter.turn())) is not None:
            return reason
        stop, save = sitting.wishes(log_point=log_point)
        if stop:
            return "signal"
        if save:
            sitting.watch.end_steps()
            if (reason := sitting.save()) is not None:
                return reason
        sitting.progress.step(standing.steps_of_epoch, total, waited)


def _step(sitting: Sitting, batch: Any, steps: int) -> Any:
    """Give a step, or a stack of them, to the device."""
    program = sitting.step
    before = program.count
    if before == 0:
        sitting.rows = batch_rows(batch, sitting.rules.stacked)
    sitting.state, metrics = program(sitting.state, batch)
    if program.count != before:
        took = program.take_seconds()
        sitting.watch.seconds["compile"] += took
        sitting.progress.pass_over(took)
        check_metrics(metrics, stacked=0 if sitting.rules.stacked == 1 else steps)
    return named(metrics)


def _total(sitting: Sitting) -> int | None:
    """Return the steps of an epoch, where they are known before its end."""
    batches = sitting.feed.batches()
    return None if batches is None else batches * sitting.rules.stacked
