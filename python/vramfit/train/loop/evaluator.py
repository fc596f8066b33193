"""Evaluation: the means of metrics over all batches of a data set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from vramfit.train.data.batch_source import BatchSource
from vramfit.train.loop.compiled_step import CompiledStep, check_metrics
from vramfit.train.loop.metrics import MetricsBuffer
from vramfit.train.output.timers import Stopwatch
from vramfit.train.train_progress import MetricSums

_MAX_STEPS_IN_FLIGHT = 2
_CHUNK_STEPS = 64


class Evaluator:
    """Evaluates states on the batches of a source.

    Args:
        step: The compiled `eval_step`.
        source: The batches.
        timers: The timers of the run, which count compilation apart.
        values_known: Whether values can be read; on a virtual GPU they never are.
    """

    def __init__(
        self, step: CompiledStep, source: BatchSource, timers: Stopwatch, *, values_known: bool
    ) -> None:
        self._step = step
        self._source = source
        self._timers = timers
        # One for all evaluations, so that what it compiles is compiled once.
        self._metrics = MetricsBuffer(_CHUNK_STEPS, timers, values_known=values_known)

    def run(self, state: Any, should_stop: Callable[[], bool]) -> dict[str, float] | None:
        """Return the means over all batches, nothing where values are unknown.

        None if `should_stop`, which is called between batches, has returned True.
        """
        sums = MetricSums()
        in_flight: deque[Any] = deque()
        for batch in self._source.start(0):
            if should_stop():
                return None
            before = self._step.count
            metrics = self._step(state, batch)
            if self._step.count != before:
                self._timers.seconds["compile"] += self._step.take_compile_seconds()
                check_metrics(metrics, role="eval_step")
            self._metrics.add(metrics)
            in_flight.append(metrics["loss"])
            if len(in_flight) > _MAX_STEPS_IN_FLIGHT:
                in_flight.popleft().block_until_ready()
            if self._metrics.should_read():
                for chunk in self._metrics.rotate():
                    sums.add(chunk)
        for chunk in self._metrics.flush():
            sums.add(chunk)
        return sums.means()
