"""Notes which error ends a program where Python keeps none: in a thread, and behind an exit code.

Loaded when Python starts in a dry run. Nothing that the program does changes, and no array lives
longer: of an error only texts and code objects are kept. ``_uncaught_error`` asks it at the end.
"""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, NoReturn

# Under which the module is found again, as it is loaded from a file and not through its package.
NAME = "_vramfit_program_end"
# A trace says what failed, not everything that a message may hold.
MAX_MESSAGE_CHARACTERS = 200


class Failure(NamedTuple):
    """An error: its class, the first line of its message, and the lines that it went through."""

    name: str
    message: str
    # The outermost first.
    places: list[tuple[CodeType, int]]
    # How many programs had been executed on the GPU by then.
    executions: int


class _Exit(NamedTuple):
    """A call of ``sys.exit``: why, and where the main thread's first frame was."""

    reason: Failure | None
    frame: FrameType
    instruction: int


# Says how many programs were executed on the GPU; the plugin sets it.
executions: Callable[[], int] = int
_printed: Failure | None = None
_in_thread: Failure | None = None
_exit: _Exit | None = None
_message: Failure | None = None


def install() -> None:
    """Note what the program prints of its errors, what ends its threads, and why it exits."""
    _note_printed_errors()
    _note_errors_of_threads()
    _note_exits()
    _note_message()


def failure_of(error: BaseException) -> Failure:
    """Return what is kept of an error."""
    places = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    try:
        message = str(error)
    except Exception:  # the class is the program's own
        message = ""
    return Failure(type(error).__name__, _first_line(message), places, executions())


def thread_failure() -> Failure | None:
    """Return the last error that ended a thread, if no program was executed after it."""
    return _if_last(_in_thread)


def exit_failure() -> Failure | None:
    """Return why ``sys.exit`` was called with an error, if that call ended the main thread.

    Where the program caught ``SystemExit`` and went on, its first frame has left the instruction.
    """
    if _exit is None or _exit.frame.f_lasti != _exit.instruction:
        return None
    return _exit.reason


def exit_message() -> Failure | None:
    """Return what ``raise SystemExit("text")`` has said; Python keeps no line of it."""
    return _if_last(_message)


def exit_reason(status: object) -> Failure | None:
    """Return why a program exits with this status: the error that it handles or has printed."""
    if status is None or status == 0:
        return None
    handled = sys.exc_info()[1]
    if isinstance(handled, Exception):
        return failure_of(handled)
    if isinstance(status, str):
        frame = sys._getframe(1)
        places = [(each.f_code, line) for each, line in traceback.walk_stack(frame)]
        return Failure("SystemExit", _first_line(status), places[::-1], executions())
    return _if_last(_printed)


def _if_last(failure: Failure | None) -> Failure | None:
    return failure if failure is not None and failure.executions == executions() else None


def _first_line(message: str) -> str:
    """Return the first line of a message; of one that contains a traceback, what that ends with."""
    lines = [line for line in message.splitlines() if line.strip()]
    first, *rest = lines or [""]
    head, is_traceback, _ = first.partition("Traceback (most recent call last):")
    if is_traceback and rest:
        errors = (line for line in reversed(rest) if line[:1].isalpha())
        first = head + next(errors, rest[-1])
    if len(first) > MAX_MESSAGE_CHARACTERS:
        return first[: MAX_MESSAGE_CHARACTERS - 1].rstrip() + "…"
    return first


def _note_printed_errors() -> None:
    """Note what `traceback` and `logging` format: a program may print an error and exit later."""
    plain = traceback.TracebackException.__init__

    @functools.wraps(plain)
    def noting(self: Any, exc_type: Any, exc_value: Any, exc_traceback: Any, **options: Any) -> Any:
        global _printed
        if isinstance(exc_value, Exception) and exc_traceback is not None:
            _printed = failure_of(exc_value)
        return plain(self, exc_type, exc_value, exc_traceback, **options)

    traceback.TracebackException.__init__ = noting  # type: ignore[method-assign]


def _note_errors_of_threads() -> None:
    """Note the errors of threads, whatever is `threading.excepthook` then."""
    make: Callable[[], Callable[[Any], None]] = threading._make_invoke_excepthook  # type: ignore[attr-defined]

    def making() -> Callable[[Any], None]:
        invoke = make()

        def noting(thread: Any) -> None:
            global _in_thread
            error = sys.exc_info()[1]
            if isinstance(error, Exception):
                _in_thread = failure_of(error)
            del error  # it refers to this frame
            invoke(thread)

        return noting

    threading._make_invoke_excepthook = making  # type: ignore[attr-defined]


def _note_exits() -> None:
    leave = sys.exit

    @functools.wraps(leave)
    def noting(status: Any = None, /) -> NoReturn:
        global _exit
        if threading.current_thread() is threading.main_thread():
            frame = sys._getframe(0)
            while frame.f_back is not None:
                frame = frame.f_back
            _exit = _Exit(exit_reason(status), frame, frame.f_lasti)
            del frame  # a frame in a variable of its own is a cycle
        leave(status)

    sys.exit = noting


def _note_message() -> None:
    """Note what Python itself writes to standard error first: the text of a ``SystemExit``.

    No frame of the program is left then. The traceback of another error is written so, too.
    """
    stream = sys.stderr
    if stream is None:
        return
    write = stream.write

    def noting(text: str, /) -> int:
        global _message
        is_first = _message is None and sys._getframe(0).f_back is None
        if is_first and threading.current_thread() is threading.main_thread():
            line = _first_line(text)
            _message = Failure("SystemExit", line, [], executions()) if line else None
        return write(text)

    stream.write = noting  # type: ignore[method-assign]
