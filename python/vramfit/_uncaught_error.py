"""The error that ends a program: an exception that nothing in it caught."""

from __future__ import annotations

import sys
import traceback

from vramfit._frames import is_library, site_of

# A trace says what failed, not everything that a message may hold.
MAX_MESSAGE_CHARACTERS = 200


def uncaught_error() -> tuple[str, str, str] | None:
    """Return class, first line of the message and line of the uncaught exception, if there is one.

    To be asked while the interpreter exits: Python keeps the exception it has just printed. In an
    interactive session that is the last of many, none of which ended the program.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or hasattr(sys, "ps1") or "IPython" in sys.modules:
        return None
    message = str(error).partition("\n")[0][:MAX_MESSAGE_CHARACTERS]
    return type(error).__name__, message, _site(error)


def _site(error: BaseException) -> str:
    """Return the innermost line of the program's own files that the exception went through."""
    places = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for code, line in reversed(places):
        if not is_library(code.co_filename):
            return site_of(code, line)
    return ""
