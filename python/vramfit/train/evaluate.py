"""Evaluation: the means of metrics over all batches of a data set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from vramfit.train.compiled import Program, check_metrics
from vramfit.train.feed import Feed
from vramfit.train.metrics import Meter, Totals
from vramfit.train.watch import Watch

AHEAD = 2
"""Batches that are given to the device before the program waits for the oldest of them."""


def evaluator(
    program: Program, feed: Feed, watch: Watch, *, known: bool
) -> Callable[[Any, Callable[[], bool]], dict[str, float] | None]:
    """Return what evaluates a state: means over all batches; nothing where values are not known.

    It asks between batches whether to stop, and then returns None.
    """
    # One for all evaluations, so that what it compiles is compiled once.
    meter = Meter(64, watch, known=known)

    def evaluate(state: Any, stop: Callable[[], bool]) -> dict[str, float] | None:
        totals = Totals()
        under_way: deque[Any] = deque()
        for batch in feed.begin(0):
            if stop():
                return None
            before = program.count
            metrics = program(state, batch)
            if program.count != before:
                watch.seconds["compile"] += program.take_seconds()
                check_metrics(metrics, role="eval_step")
            meter.add(metrics)
            under_way.append(metrics["loss"])
            if len(under_way) > AHEAD:
                under_way.popleft().block_until_ready()
            if meter.due():
                for rows in meter.turn():
                    totals.add(rows)
        for rows in meter.settle():
            totals.add(rows)
        return totals.means()

    return evaluate
