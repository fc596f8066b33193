"""A worker thread for saving checkpoints, one task at a time.

Always the same thread, because orbax reports the error of a checkpoint to each thread that asks,
once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundThread:
    """A thread, and the task that it is running."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._task: Future[None] | None = None

    def start(self, task: Callable[[], None]) -> None:
        """Start a task; the previous one must have been waited for."""
        self._task = self._executor.submit(task)

    def is_busy(self) -> bool:
        """Return whether a task is running."""
        return self._task is not None and not self._task.done()

    def wait(self) -> None:
        """Wait for the task; the first call after it raises what the task raised."""
        task, self._task = self._task, None
        if task is not None:
            task.result()

    def close(self) -> None:
        """End the thread after its task."""
        self._executor.shutdown()
