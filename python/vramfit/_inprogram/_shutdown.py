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
HANDLERS_TIMEOUT_S = 10.0
# As many further steps in the main thread show that the exception was caught.
STEPS_AFTER_EXIT = 10

# Taken by whoever runs the exit handlers, and never given back: they must run only once.
_exiting = threading.Lock()
_main_thread_steps = 0


def start() -> None:
    """Ask the program to exit; called once, in the thread that has executed the last step."""
    if not threading.main_thread().is_alive():
        _end()  # nothing of the program is left but threads like this one
        return
    atexit.register(_on_interpreter_exit)
    _native.ask_main_thread_to_exit()
    with contextlib.suppress(RuntimeError):  # no threads any more: the interpreter is ending
        threading.Thread(target=_ensure_exit, name="vramfit-shutdown", daemon=True).start()


def extra_step() -> None:
    """Count a step that the main thread has executed after the exit was requested."""
    global _main_thread_steps
    _main_thread_steps += 1
    if _main_thread_steps >= STEPS_AFTER_EXIT:
        _end()


def _on_interpreter_exit() -> None:
    """Note that the interpreter ends by itself; the first exit handler, in the main thread."""
    _exiting.acquire()
    # Threads that the interpreter does not wait for would be ended inside JAX, which aborts then.
    _native.hold_other_threads()


def _ensure_exit() -> None:
    """Make sure that the program ends."""
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
    """End the process, unless its exit handlers are running already."""
    if not _exiting.acquire(blocking=False):
        return
    atexit.unregister(_on_interpreter_exit)
    handlers = threading.Thread(target=_run_exit_handlers, daemon=True)
    with contextlib.suppress(RuntimeError):
        handlers.start()
        handlers.join(HANDLERS_TIMEOUT_S)
    os._exit(0)


def _run_exit_handlers() -> None:
    _native.hold_other_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
