"""Log points: which steps each of them covers, and when it is delivered.

Both depend on the number of steps only. When values are read depends on the clock as well, because
a checkpoint reads all that there are. If log points did, too, callbacks that act on them would make
another run of one that was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from vramfit.train.metric_sums import MetricSums


@dataclass
class LogWindows:
    """The steps between log points, and the means over them that were not delivered yet.

    Attributes:
        start: The step of the latest log point, or of the start of the epoch.
        ends: The log points with steps whose values were not read yet.
        sums: Sums over the steps that were read of the first window that is not complete.
        ready: The means of complete windows by their last steps, in order.
        delivered: The last log point that was delivered.
    """

    start: int = 0
    ends: list[int] = field(default_factory=list)
    sums: MetricSums = field(default_factory=MetricSums)
    ready: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    delivered: int = 0

    def end_window(self, step: int) -> None:
        """Make the step that was dispatched last a log point, unless it is one."""
        if step > self.start:
            self.ends.append(step)
            self.start = step

    def add(self, chunk: Mapping[str, Any], read_step: int) -> None:
        """Add values of steps of one window, the last of which is `read_step`."""
        self.sums.add(chunk)
        self.complete(read_step)

    def complete(self, read_step: int) -> None:
        """Complete the window that ends at the last step that was read, if one does."""
        if self.ends and self.ends[0] <= read_step:
            step = self.ends.pop(0)
            if means := self.sums.means():
                self.ready.append((step, means))
            self.sums = MetricSums()

    def take_ready(self, last: int) -> list[tuple[int, dict[str, float]]]:
        """Return the means of complete windows up to a step, for delivery."""
        taken = [window for window in self.ready if window[0] <= last]
        self.ready = self.ready[len(taken) :]
        if taken:
            self.delivered = taken[-1][0]
        return taken

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it. All values must have been read."""
        return {
            "start": self.start,
            "sums": self.sums.to_json(),
            "ready": [list(window) for window in self.ready],
            "delivered": self.delivered,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_json` was called on."""
        ready = [(step, means) for step, means in values["ready"]]
        return cls(**{**values, "sums": MetricSums(**values["sums"]), "ready": ready})
