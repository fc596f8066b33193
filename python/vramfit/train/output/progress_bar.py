"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from vramfit import _stderr
from vramfit._functions._locale import for_terminal
from vramfit.train.options import ProgressMode
from vramfit.train.output.summary import duration, epoch_line, epoch_summary, number, wrapped
from vramfit.train.result import Epoch

_BAR_INTERVAL_S = 0.2
_LINE_INTERVAL_S = 30.0
_MAX_BAR_WIDTH = 24
_MIN_BAR_WIDTH = 8
_SEPARATOR = "  "


class ProgressBar:
    """Shows the progress of an epoch. Never waits for the device.

    Args:
        mode: `auto` (a bar on a terminal, lines elsewhere), `plain` (lines), `compact` (as `auto`,
            with one line per epoch instead of its summary) or `none`.
        epochs: Number of epochs; None where only steps are limited.
        steps: Number of steps of the run; None where only epochs are limited.
        quiet: Whether another process of the same run shows it.
    """

    def __init__(
        self,
        mode: ProgressMode,
        epochs: int | None,
        steps: int | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self._out: TextIO | None = None if mode == "none" or quiet else sys.stderr
        self._has_bar = mode != "plain" and self._out is not None and self._out.isatty()
        self._compact = mode == "compact"
        self._full, self._empty = ("█", "░") if _has_blocks(self._out) else ("#", "-")
        self._interval = _BAR_INTERVAL_S if self._has_bar else _LINE_INTERVAL_S
        self._epochs = epochs
        self._steps = steps
        self._next_update = 0.0
        self._shown = False
        self._start = (0.0, 0)
        # Of the last whole epoch, with its evaluation and checkpoint.
        self._epoch_seconds: float | None = None
        self.loss: float | None = None

    def start_epoch(self, epoch: int, steps: int, step: int = 0) -> None:
        """Start an epoch.

        Args:
            epoch: Its number, from 1.
            steps: Steps of it that are done already.
            step: Steps of the run that are done already.
        """
        now = time.monotonic()
        self._epoch, self._start = epoch, (now, steps)
        self._steps_before = step - steps
        self._next_update = now + self._interval

    def skip(self, seconds: float) -> None:
        """Exclude time from the rate, such as that of compiling."""
        self._start = (self._start[0] + seconds, self._start[1])

    def update(self, done: int, total: int | None, data_wait: float) -> None:
        """Show the progress of the epoch, if it is time to.

        Args:
            done: Steps of the epoch that were dispatched.
            total: Steps of the epoch, or None if unknown.
            data_wait: Seconds spent waiting for data in this epoch.
        """
        if self._out is None:
            return
        now = time.monotonic()
        if now < self._next_update:
            return
        self._next_update = now + self._interval
        seconds = max(now - self._start[0], 1e-9)
        rate = (done - self._start[1]) / seconds
        parts, share = self._position(done, total)
        if self.loss is not None:
            parts.append(f"loss {number(self.loss)}")
        if rate > 0:
            parts += self._etas(done, total, rate)
        parts += [f"{rate:.1f} steps/s", f"data wait {data_wait / seconds:.0%}"]
        if self._has_bar:
            self._write(self._fitted(parts, share), transient=True)
        else:
            self._write(_SEPARATOR.join(parts), transient=False)

    def _run_steps(self, total: int | None) -> int | None:
        """Return the steps of the run where their number is limited."""
        if self._steps is None or self._epochs is None or total is None:
            return self._steps
        # The epochs may end first. Those before this one may have had another number of steps.
        return min(self._steps, self._steps_before + total * (self._epochs - self._epoch + 1))

    def _position(self, done: int, total: int | None) -> tuple[list[str], float | None]:
        """Return where the run is, in the epoch or by steps, and the share that the bar shows."""
        if (run_steps := self._run_steps(total)) is not None:
            step = self._steps_before + done
            share = min(step / run_steps, 1)
            return [f"step {step}/{run_steps}", f"{share:4.0%}", f"epoch {self._epoch}"], share
        epoch = f"epoch {self._epoch}" + (f"/{self._epochs}" if self._epochs else "")
        if not total:
            return [epoch, f"{done} steps"], None
        share = min(done / total, 1)
        return [epoch, f"{share:4.0%}", f"{done}/{total}"], share

    def _etas(self, done: int, total: int | None, rate: float) -> list[str]:
        """Return how long the epoch will take, and the run unless this is the last epoch.

        Only the run where it has a number of steps.
        """
        if (run_steps := self._run_steps(total)) is not None:
            return [f"ETA {duration(max(run_steps - self._steps_before - done, 0) / rate)}"]
        if not total:
            return []
        epoch_left = max(total - done, 0) / rate
        etas = [f"ETA {duration(epoch_left)}"]
        if self._epochs is not None and (epochs_left := self._epochs - self._epoch) > 0:
            epoch_seconds = self._epoch_seconds or total / rate
            etas.append(f"run ETA {duration(epoch_left + epochs_left * epoch_seconds)}")
        return etas

    def _fitted(self, parts: list[str], share: float | None) -> str:
        """Return a line that fits the terminal: whole parts, the last ones dropped first."""
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
        """Print that something is being compiled, which can take minutes without a sign of life."""
        if self._out is not None:
            self._write(f"compiling the {what} ...", transient=self._has_bar)

    def end_epoch(self, epoch: Epoch, elapsed: float) -> None:
        """Print the summary of a finished epoch."""
        self._epoch_seconds = epoch.timing.wall - epoch.timing.compile
        if self._out is None:
            return
        if self._compact:
            self.print(epoch_line(epoch, self._epochs, elapsed))
        else:
            self._write(epoch_summary(epoch, self._epochs, elapsed), transient=False)

    def print(self, text: str) -> None:
        """Print a paragraph that stays."""
        if self._out is not None:
            self._write(wrapped(text, "  "), transient=False)

    def print_report(self, text: str) -> None:
        """Print lines that stay, as they are."""
        if self._out is not None:
            self._write(text, transient=False)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._shown and self._out is not None:
            _stderr.write(self._out, "\r\x1b[K")
            self._shown = False

    def _write(self, text: str, *, transient: bool) -> None:
        out = self._out
        if out is None:
            return
        text = for_terminal(text)
        if transient:
            _stderr.write(out, f"\r\x1b[K{text}")
        else:
            self.close()
            _stderr.write(out, f"{text}\n")
        self._shown = transient


def _has_blocks(out: TextIO | None) -> bool:
    """Return whether a stream can show the characters of a bar; `LANG=C` cannot."""
    try:
        "█░".encode(getattr(out, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
