"""Ends a run whose steps are done (``--steps``): by ``SystemExit`` where the program lets it.

The exception comes up in the main thread, as after ``sys.exit()`` there, so ``finally`` blocks and
exit handlers run. A program may not get it (its main thread waits in C), catch it and go on, or
wait for a thread that never ends. Then it is ended here, with what an exit would still do: exit
handlers, the rest of its output, the end of the trace, exit code 0.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time

from vramfit import _native

# A program that has not ended this long after its last step is ended. Cleaning up may take time.
EXIT_TIMEOUT_S = 30.0
# Exit handlers that take longer than this, run by us, are left alone.
HANDLERS_S = 10.0
# As many further steps in the main thread show that the exception was caught.
STEPS_AFTER_EXIT = 10

# Taken by whoever runs the exit handlers, and never given back: they must run only once.
_exiting = threading.Lock()
_steps_in_main = 0


def begin() -> None:
    """Ask the program to end; called once, in whatever thread has executed the last step."""
    if not threading.main_thread().is_alive():
        _end()  # nothing of the program is left but threads like this one
        return
    atexit.register(_program_exits)
    _native.ask_main_thread_to_exit()
    with contextlib.suppress(RuntimeError):  # no threads any more: the interpreter is ending
        threading.Thread(target=_watch, name="vramfit-ending", daemon=True).start()


def further() -> None:
    """Take note of a step that the main thread has executed although the run is over."""
    global _steps_in_main
    _steps_in_main += 1
    if _steps_in_main >= STEPS_AFTER_EXIT:
        _end()


def _program_exits() -> None:
    """Note that the interpreter ends by itself; the first exit handler, in the main thread."""
    _exiting.acquire()
    # Threads that the interpreter does not wait for would be ended inside JAX, which aborts then.
    _native.hold_other_threads()


def _watch() -> None:
    """See to it that the program ends."""
    main = threading.main_thread()
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    steps = 0
    while time.monotonic() < deadline:
        if main.is_alive():
            # Again until it has come up: a signal is lost on a thread that is just about to wait.
            _native.ask_main_thread_to_exit()
            steps = _native.further_steps()
        elif _native.further_steps() > steps:
            _end()  # the interpreter waits for a thread that goes on
        time.sleep(0.1)
    _end()
    os._exit(0)  # the exit handlers run already, and do not come to an end


def _end() -> None:
    """End the process, unless its exit handlers run already."""
    if not _exiting.acquire(blocking=False):
        return
    atexit.unregister(_program_exits)
    last_words = threading.Thread(target=_last_words, daemon=True)
    with contextlib.suppress(RuntimeError):
        last_words.start()
        last_words.join(HANDLERS_S)
    os._exit(0)


def _last_words() -> None:
    _native.hold_other_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
