"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from vramfit._errors import InvalidArgumentError
from vramfit.train.summary import duration, number

_BAR_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_WIDTH = 24
_NARROW = 10  # on a terminal of less than 100 columns


class Progress:
    """Shows how far an epoch is. Nothing of it waits for the device.

    Args:
        manner: `auto`, `plain` or `none`.
        epochs: How many there will be.
        quiet: Whether another process of the same run shows it.
    """

    def __init__(self, manner: str, epochs: int, *, quiet: bool = False) -> None:
        if manner not in ("auto", "plain", "none"):
            raise InvalidArgumentError(
                f"`progress={manner!r}` is not known", hint="say `auto`, `plain` or `none`"
            )
        self._out: TextIO | None = None if manner == "none" or quiet else sys.stderr
        self._bar = manner == "auto" and self._out is not None and self._out.isatty()
        self._pause = _BAR_SECONDS if self._bar else _PLAIN_SECONDS
        self._epochs = epochs
        self._next = 0.0
        self._shown = False
        self._begun = (0.0, 0)
        self.loss: float | None = None

    def begin(self, epoch: int, steps: int) -> None:
        """Begin an epoch, counted from 1, some steps of which are done."""
        now = time.monotonic()
        self._epoch, self._begun = epoch, (now, steps)
        self._next = now + self._pause

    def pass_over(self, seconds: float) -> None:
        """Leave time out of the rate, such as that of compiling."""
        self._begun = (self._begun[0] + seconds, self._begun[1])

    def step(self, done: int, total: int | None, waiting: float) -> None:
        """Show how far it is, if it is time to.

        Args:
            done: Steps of the epoch that were given to the device.
            total: How many it has, or None.
            waiting: Seconds that were waited for data since it was begun.
        """
        if self._out is None:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._pause
        seconds = max(now - self._begun[0], 1e-9)
        rate = (done - self._begun[1]) / seconds
        words = [f"epoch {self._epoch}/{self._epochs}"]
        if total:
            words.append(f"{min(done / total, 1):4.0%}")
            if self._bar:
                wide = _WIDTH if shutil.get_terminal_size().columns >= 100 else _NARROW
                full = min(wide * done // total, wide)
                words.append("█" * full + "░" * (wide - full))
            words.append(f"{done}/{total}")
        else:
            words.append(f"{done} steps")
        words.append(f"{rate:.1f} steps/s")
        if self.loss is not None:
            words.append(f"loss {number(self.loss)}")
        words.append(f"data {waiting / seconds:.0%}")
        if total and rate > 0:
            words.append(f"left {duration(max(total - done, 0) / rate)}")
        self._write("  ".join(words), transient=self._bar)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        if self._out is not None:
            self._write(text, transient=False)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._shown and self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._shown = False

    def _write(self, text: str, *, transient: bool) -> None:
        out = self._out
        if out is None:
            return
        if transient:
            width = shutil.get_terminal_size().columns - 1
            out.write(f"\r\x1b[K{text[:width]}")
        else:
            self.end()
            out.write(f"{text}\n")
        self._shown = transient
        out.flush()
