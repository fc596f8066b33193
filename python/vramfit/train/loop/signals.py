"""SIGTERM, SIGHUP and Ctrl-C as requests to stop after the current step."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from types import FrameType
from typing import Any, Self

from vramfit import _stderr
from vramfit.train.messages import is_cli

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# From when on another signal may end the program at once; see `stop_requests.rs`.
FORCE_AFTER_S = 15.0
_ANNOUNCEMENT = (
    "still finishing the current step and saving the state; another Ctrl-C or SIGTERM from now on "
    "ends the program immediately, without saving"
)


class StopSignals:
    """From :meth:`install` on, each signal asks the run to stop after the current step.

    Process groups, `timeout` and schedulers send more than one, so further ones are the same
    request until a line has said that they are not: then SIGTERM ends the process, and Ctrl-C
    raises ``KeyboardInterrupt``. Of `vramfit train` it is the command that ends this process.
    Signals that are ignored (`nohup`) remain so. Python delivers signals to the main thread only;
    in other threads their handlers are left alone.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._is_announced = False
        self._previous_handlers: dict[int, Any] = {}
        self._pid = os.getpid()
        # Can be used in a signal handler, whatever this has interrupted.
        self._events: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def install(self) -> None:
        """Begin to handle signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._on_signal)
        if not is_cli():
            threading.Thread(target=self._announce, name="vramfit-stop", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        # The process of `vramfit train` has nothing left to do but to report the outcome, which a
        # second signal must not prevent.
        if is_cli():
            return
        self._events.put(False)
        for number, handler in self._previous_handlers.items():
            # A handler that was not set from Python cannot be set again from here.
            with contextlib.suppress(TypeError):
                signal.signal(number, handler)
        self._previous_handlers.clear()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # In a process that the program has forked, which a pool ends by SIGTERM.
            previous = self._previous_handlers.get(number)
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
            os.kill(os.getpid(), number)
        elif self.received is None:
            self.received = number
            self._events.put(True)
        elif self._is_announced and number == signal.SIGINT:
            raise KeyboardInterrupt
        elif self._is_announced and number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _announce(self) -> None:
        """Wait for a signal, and some time later say that another one ends the program."""
        if not self._events.get():
            return
        try:
            self._events.get(timeout=FORCE_AFTER_S)
        except queue.Empty:
            # First: the answer to the line may come at once.
            self._is_announced = True
            _stderr.write_line(f"\n{_ANNOUNCEMENT}")
