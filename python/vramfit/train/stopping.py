"""Reasons to stop: a signal, and epochs without a better validation loss."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

from vramfit.train.wording import is_for_the_command

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """While it is open, SIGTERM and Ctrl-C ask the run to stop behind the step that runs.

    A second one ends the process at once; in a program a second Ctrl-C raises
    ``KeyboardInterrupt``. Python gives signals to the main thread only; elsewhere they are left
    alone.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # A handler that was not set from Python cannot be set again from here.
            with contextlib.suppress(TypeError):
                signal.signal(number, handler)
        self._before.clear()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT and not is_for_the_command():
            raise KeyboardInterrupt
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
