"""Progress of work on the rows of a file, on a terminal."""

from __future__ import annotations

import sys
import time

from vramfit import _stderr
from vramfit.train.output.summary import duration

_INTERVAL_S = 0.2


class RowProgress:
    """Shows how many rows are done; on a terminal only.

    Args:
        what: What is done, as a verb.
        total: Number of rows.
        done: Rows that were done before.
        quiet: Whether to show nothing.
    """

    def __init__(self, what: str, total: int, done: int, *, quiet: bool) -> None:
        self._out = None if quiet or not sys.stderr.isatty() else sys.stderr
        self._what, self._total = what, total
        self._start = (time.monotonic(), done)
        self._next = 0.0

    def update(self, done: int) -> None:
        """Show how many rows are done, if it is time to."""
        now = time.monotonic()
        if self._out is None or now < self._next:
            return
        self._next = now + _INTERVAL_S
        start, before = self._start
        rate = (done - before) / max(now - start, 1e-9)
        eta = f"  ETA {duration((self._total - done) / rate)}" if rate > 0 else ""
        self._print(
            f"\r\x1b[K{self._what} {done / max(self._total, 1):4.0%}  {done}/{self._total} rows"
            f"  {rate:,.0f} rows/s{eta}"
        )

    def close(self) -> None:
        """Remove the line from the terminal."""
        self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        if self._out is not None:
            _stderr.write(self._out, text)
