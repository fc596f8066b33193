"""The clock of a run: which part of it took how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vramfit.train.result import Timing

_PARTS = ("compile", "data_wait", "eval", "checkpoint", "device_wait")


class Watch:
    """Adds up seconds by part; what is in no other part of an epoch is its steps.

    Compiling interrupts whatever it happens in, so it is taken out of that.
    """

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self.seconds = dict.fromkeys((*_PARTS, "step"), 0.0)
        self._mark = (self._begun, dict(self.seconds))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside as one part."""
        begun, compiled = time.perf_counter(), self.seconds["compile"]
        try:
            yield
        finally:
            passed = time.perf_counter() - begun
            self.seconds[name] += passed - (self.seconds["compile"] - compiled)

    def begin_epoch(self) -> None:
        """Count for an epoch from here."""
        self._mark = (time.perf_counter(), dict(self.seconds))

    def end_steps(self) -> None:
        """Count as steps what this epoch took so far and nothing else explains."""
        begun, before = self._mark
        passed = time.perf_counter() - begun
        others = ("compile", "data_wait", "eval", "checkpoint", "step")
        passed -= sum(self.seconds[name] - before[name] for name in others)
        self.seconds["step"] += max(passed, 0.0)

    def epoch(self) -> Timing:
        """Return the times of the epoch."""
        begun, before = self._mark
        since = {name: value - before[name] for name, value in self.seconds.items()}
        return Timing(wall=time.perf_counter() - begun, **since)

    def total(self) -> Timing:
        """Return the times since the beginning."""
        return Timing(wall=time.perf_counter() - self._begun, **self.seconds)
