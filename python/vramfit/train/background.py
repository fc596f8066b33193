"""Work that is done while training goes on, one piece at a time and always in the same thread.

In the same one, because orbax hands the error of a checkpoint to each thread that asks, once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A thread, and what it does."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._work: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece of work; the one before must have been waited for."""
        self._work = self._thread.submit(work)

    def busy(self) -> bool:
        """Say whether something is being done."""
        return self._work is not None and not self._work.done()

    def wait(self) -> None:
        """Wait for the work that was begun, and raise what it raised, to the first who waits."""
        work, self._work = self._work, None
        if work is not None:
            work.result()

    def close(self) -> None:
        """End the thread behind its work."""
        self._thread.shutdown()
