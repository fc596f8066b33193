"""SIGTERM and Ctrl-C as requests to stop after the current step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

from vramfit.train.messages import is_cli

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While it is entered, SIGTERM and Ctrl-C ask the run to stop after the current step.

    A second one ends the process at once; in a program a second Ctrl-C raises
    ``KeyboardInterrupt``. Python delivers signals to the main thread only; in other threads their
    handlers are left alone.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            # A handler that was not set from Python cannot be set again from here.
            with contextlib.suppress(TypeError):
                signal.signal(number, handler)
        self._previous_handlers.clear()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT and not is_cli():
            raise KeyboardInterrupt
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
