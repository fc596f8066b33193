"""The timers of a run: how long each activity took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vramfit.train.result import Timing

_SECTIONS = ("compile", "data_wait", "eval", "checkpoint", "callbacks", "device_wait")
# Those that may be within another section, whose time is their own.
_NESTED = ("compile", "eval", "checkpoint", "callbacks")


class Stopwatch:
    """Sums up seconds by section; the rest of the time of an epoch counts as its steps.

    A section within another interrupts it: compilation, or the evaluation of a callback.

    Attributes:
        seconds: The sums so far, by the names of the fields of `Timing`.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.seconds = dict.fromkeys((*_SECTIONS, "step"), 0.0)
        self._epoch_start = (self._start, dict(self.seconds))

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count the time inside as one section."""
        start, before = time.perf_counter(), self._nested_seconds(name)
        try:
            yield
        finally:
            passed = time.perf_counter() - start
            self.seconds[name] += passed - (self._nested_seconds(name) - before)

    def _nested_seconds(self, name: str) -> float:
        return sum(self.seconds[other] for other in _NESTED if other != name)

    def start_epoch(self) -> None:
        """Count for an epoch from here."""
        self._epoch_start = (time.perf_counter(), dict(self.seconds))

    def end_steps(self) -> None:
        """Count as steps all time of this epoch so far that is in no other section."""
        start, before = self._epoch_start
        passed = time.perf_counter() - start
        others = ("data_wait", "step", *_NESTED)
        passed -= sum(self.seconds[name] - before[name] for name in others)
        self.seconds["step"] += max(passed, 0.0)

    def epoch_timing(self) -> Timing:
        """Return the times of the epoch."""
        start, before = self._epoch_start
        since = {name: value - before[name] for name, value in self.seconds.items()}
        return Timing(wall=time.perf_counter() - start, **since)

    def total_timing(self) -> Timing:
        """Return the times since the start."""
        return Timing(wall=time.perf_counter() - self._start, **self.seconds)
