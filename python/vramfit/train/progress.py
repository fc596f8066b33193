"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from vramfit._errors import InvalidArgumentError
from vramfit._locale import for_terminal
from vramfit.train.result import Epoch
from vramfit.train.summary import duration, epoch_line, epoch_summary, number, wrapped

MODES = ("auto", "plain", "compact", "none")

_BAR_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_MAX_BAR_WIDTH = 24
_MIN_BAR_WIDTH = 8
_SEPARATOR = "  "


class Progress:
    """Shows how far an epoch is. Nothing of it waits for the device.

    Args:
        mode: `auto` (a bar on a terminal, lines elsewhere), `plain` (lines), `compact` (as `auto`,
            with one line for each epoch instead of its summary) or `none`.
        epochs: How many there will be.
        quiet: Whether another process of the same run shows it.
    """

    def __init__(self, mode: str, epochs: int, *, quiet: bool = False) -> None:
        if mode not in MODES:
            *others, last = (f"`{mode}`" for mode in MODES)
            raise InvalidArgumentError(
                f"`progress={mode!r}` is not known", hint=f"say {', '.join(others)} or {last}"
            )
        self._out: TextIO | None = None if mode == "none" or quiet else sys.stderr
        self._bar = mode != "plain" and self._out is not None and self._out.isatty()
        self._compact = mode == "compact"
        self._full, self._empty = ("█", "░") if _has_blocks(self._out) else ("#", "-")
        self._pause = _BAR_SECONDS if self._bar else _PLAIN_SECONDS
        self._epochs = epochs
        self._next = 0.0
        self._shown = False
        self._begun = (0.0, 0)
        # Of the last whole epoch, with its evaluation and checkpoint.
        self._epoch_seconds: float | None = None
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
        parts = [f"epoch {self._epoch}/{self._epochs}"]
        if total:
            parts += [f"{min(done / total, 1):4.0%}", f"{done}/{total}"]
        else:
            parts.append(f"{done} steps")
        if self.loss is not None:
            parts.append(f"loss {number(self.loss)}")
        if total and rate > 0:
            parts += self._time_left(max(total - done, 0) / rate, total / rate)
        parts += [f"{rate:.1f} steps/s", f"data {waiting / seconds:.0%}"]
        if self._bar:
            share = min(done / total, 1) if total else None
            self._write(self._fitted(parts, share), transient=True)
        else:
            self._write(_SEPARATOR.join(parts), transient=False)

    def _time_left(self, of_epoch: float, whole_epoch: float) -> list[str]:
        """Return how long the epoch will take, and the run where that is another time."""
        left = [f"left {duration(of_epoch)}"]
        if (further := self._epochs - self._epoch) > 0:
            each = self._epoch_seconds or whole_epoch
            left.append(f"run left {duration(of_epoch + further * each)}")
        return left

    def _fitted(self, parts: list[str], share: float | None) -> str:
        """Return a line that fits the terminal: whole parts, the last ones left out first."""
        room = shutil.get_terminal_size().columns - 1
        while len(parts) > 1 and len(_SEPARATOR.join(parts)) > room:
            parts = parts[:-1]
        left = room - len(_SEPARATOR.join(parts)) - len(_SEPARATOR)
        if share is not None and left >= _MIN_BAR_WIDTH and len(parts) > 1:
            width = min(left, _MAX_BAR_WIDTH)
            full = int(width * share)
            parts = [*parts[:2], self._full * full + self._empty * (width - full), *parts[2:]]
        return _SEPARATOR.join(parts)

    def compiling(self, what: str) -> None:
        """Say that something is being compiled, which can take minutes without a sign of life."""
        if self._out is not None:
            self._write(f"compiling the {what} ...", transient=self._bar)

    def end_epoch(self, epoch: Epoch, elapsed: float) -> None:
        """Tell of an epoch that is finished."""
        self._epoch_seconds = epoch.timing.wall - epoch.timing.compile
        if self._out is None:
            return
        if self._compact:
            self.say(epoch_line(epoch, self._epochs, elapsed))
        else:
            self._write(epoch_summary(epoch, self._epochs, elapsed), transient=False)

    def say(self, text: str) -> None:
        """Write a paragraph that stays."""
        if self._out is not None:
            self._write(wrapped(text, "  "), transient=False)

    def report(self, text: str) -> None:
        """Write lines that stay, as they are."""
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
        text = for_terminal(text)
        if transient:
            out.write(f"\r\x1b[K{text}")
        else:
            self.end()
            out.write(f"{text}\n")
        self._shown = transient
        out.flush()


def _has_blocks(out: TextIO | None) -> bool:
    """Return whether a stream can show the characters of a bar; `LANG=C` cannot."""
    try:
        "█░".encode(getattr(out, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
