"""Evaluation: the metrics of a state for all batches of a data set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.accumulators import Accumulator
from vramfit.train.data.batch_source import BatchSource
from vramfit.train.loop.compiled_step import CompiledStep, check_metrics
from vramfit.train.loop.metrics import MetricsBuffer
from vramfit.train.metric_sums import MetricSums
from vramfit.train.output.timers import Stopwatch

_MAX_STEPS_IN_FLIGHT = 2
_CHUNK_STEPS = 64


class Evaluator:
    """Evaluates states on the batches of a source.

    Args:
        step: The compiled `eval_step`.
        source: The batches.
        accumulators: What merges the metrics that are no scalars, by their names.
        timers: The timers of the run, which count compilation apart.
        values_known: Whether values can be read; on a virtual GPU they never are.
    """

    def __init__(
        self,
        step: CompiledStep,
        source: BatchSource,
        accumulators: Mapping[str, Accumulator],
        timers: Stopwatch,
        *,
        values_known: bool,
    ) -> None:
        self.step = step
        self._source = source
        self._accumulators = accumulators
        self._timers = timers
        self._values_known = values_known
        # One for all evaluations, so that what it compiles is compiled once.
        self._metrics = MetricsBuffer(_CHUNK_STEPS, timers, values_known=values_known)

    def run(
        self, state: Any, should_stop: Callable[[], bool], source: BatchSource | None = None
    ) -> dict[str, float] | None:
        """Return the metrics for all batches, nothing where values are unknown.

        None if `should_stop`, which is called between batches, has returned True.

        Args:
            state: The state.
            should_stop: Whether to give up.
            source: Other batches than usual.
        """
        sums = MetricSums()
        totals: dict[str, Any] = {}
        in_flight: deque[dict[str, Any]] = deque()
        for batch in (source or self._source).start(0):
            if should_stop():
                self._metrics.flush()
                return None
            metrics = self._run_step(state, batch)
            # Kept for the wait, and merged after it.
            waited = {name: metrics.pop(name) for name in self._accumulators}
            self._metrics.add(metrics)
            in_flight.append({"": metrics["loss"], **waited})
            if len(in_flight) > _MAX_STEPS_IN_FLIGHT:
                self._merge(totals, in_flight.popleft())
            if self._metrics.should_read():
                for chunk in self._metrics.rotate():
                    sums.add(chunk)
        while in_flight:
            self._merge(totals, in_flight.popleft())
        for chunk in self._metrics.flush():
            sums.add(chunk)
        return sums.means() | self._compute(totals, sums)

    def _run_step(self, state: Any, batch: Any) -> dict[str, Any]:
        before = self.step.count
        metrics = self.step(state, batch)
        if self.step.count != before:
            self._timers.seconds["compile"] += self.step.take_compile_seconds()
            check_metrics(metrics, role="eval_step", accumulated=self._accumulators)
        return dict(metrics)

    def _merge(self, totals: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays.pop("").block_until_ready()
        if not self._values_known:
            return
        for name, array in arrays.items():
            total = totals.get(name)
            totals[name] = self._accumulators[name].merge(total, _as_64_bits(array))

    def _compute(self, totals: dict[str, Any], sums: MetricSums) -> dict[str, float]:
        """Return the metrics that the accumulators make of their totals."""
        metrics: dict[str, float] = {}
        for name, total in totals.items():
            computed = self._accumulators[name].compute(total)
            values = (
                {f"{name}_{part}": value for part, value in computed.items()}
                if isinstance(computed, Mapping)
                else {name: computed}
            )
            for full_name, value in values.items():
                if full_name in sums.sums or full_name in metrics:
                    raise InvalidArgumentError(
                        f"the accumulator `{name}` computes `{full_name}`, which is a metric of "
                        "`eval_step` or of another accumulator, too",
                        hint="give it another name",
                    )
                metrics[full_name] = float(value)
        return metrics


def _as_64_bits(array: Any) -> Any:
    """Return an array on the host, wide enough for sums over all batches."""
    import numpy as np

    values = np.asarray(array)
    return values.astype(np.int64 if values.dtype.kind in "biu" else np.float64)
