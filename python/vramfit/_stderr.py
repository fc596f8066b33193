"""Lines of vramfit's own on standard error, which belongs to the user's program."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO


def write_line(text: str) -> None:
    """Write text and a newline at once, or nothing where standard error is closed.

    `print` makes two calls of `write(2)` for them: a signal, or a line of another process of the
    run, may come between.
    """
    if sys.stderr is not None:
        write(sys.stderr, f"{text}\n")


def write(out: TextIO, text: str) -> None:
    """Write text to a stream at once; one that takes nothing any more is left alone."""
    # A terminal that was closed, or a log on a full disk, does not end the program.
    with contextlib.suppress(OSError, ValueError):
        out.write(text)
        out.flush()
