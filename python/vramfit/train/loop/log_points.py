"""Reading the metrics of steps, and delivering them at log points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramfit.train.events import LogPoint
from vramfit.train.loop.metrics import MetricsBuffer, first_not_finite
from vramfit.train.loop.nan_diagnosis import report_nan
from vramfit.train.result import StopReason

if TYPE_CHECKING:
    from vramfit.train.loop.train_loop import TrainLoop


class LogPoints:
    """The metrics of a run, from the device to the callbacks.

    Methods that read values return `nan` if a loss is not finite.
    """

    def __init__(self, loop: TrainLoop) -> None:
        self._loop = loop
        self._buffer = MetricsBuffer(
            loop.options.log_every,
            loop.telemetry.timers,
            values_known=not loop.placement.is_virtual,
        )

    def add(self, metrics: Mapping[str, Any], steps: int, *, stacked: bool) -> None:
        """Add the metrics of a step, or of a stack of steps, which stay on the device."""
        self._buffer.add(metrics, steps, stacked=stacked)

    def is_due(self) -> bool:
        """Return whether the current step is a log point."""
        progress = self._loop.progress
        passed = progress.step - progress.log_windows.start
        return self._buffer.values_known and passed >= self._loop.options.log_every

    def advance(self) -> StopReason | None:
        """Make the current step a log point, and deliver the one before, whose values are there."""
        windows = self._loop.progress.log_windows
        previous = windows.start
        windows.end_window(self._loop.progress.step)
        if (reason := self._consume(self._buffer.rotate())) is not None:
            return reason
        self._deliver(previous)
        return None

    def finish(self) -> StopReason | None:
        """Make the current step a log point, and deliver all up to it; waits for the device."""
        if not self._buffer.values_known:
            return None
        progress = self._loop.progress
        progress.log_windows.end_window(progress.step)
        if (reason := self.read_all()) is not None:
            return reason
        # Nothing is left to read of a window that a checkpoint has read whole.
        progress.log_windows.complete(progress.read_step)
        self._deliver(progress.step)
        return None

    def read_all(self) -> StopReason | None:
        """Read all values so far, and deliver nothing; waits for the device."""
        return self._consume(self._buffer.flush())

    def _consume(self, chunks: list[dict[str, Any]]) -> StopReason | None:
        progress = self._loop.progress
        for chunk in chunks:
            progress.metric_sums.add(chunk)
            losses = chunk["loss"]
            index = first_not_finite(losses) if self._loop.options.stop_on_nan else None
            if index is not None:
                step = progress.read_step - len(losses) + index + 1
                self._loop.nan = report_nan(self._loop, step, float(losses[index]))
                return "nan"
            progress.log_windows.add(chunk, progress.read_step)
        return None

    def _deliver(self, last: int) -> None:
        """Deliver the log points up to a step."""
        loop = self._loop
        for step, means in loop.progress.log_windows.take_ready(last):
            loop.telemetry.log_metrics(step, loop.epoch_number, means)
            loop.deliver(LogPoint(step, loop.epoch_number, means))
