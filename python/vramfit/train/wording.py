"""Words for the one who has asked: a program that calls `fit`, or a user of `vramfit train`.

Both can do the same things, under different names, and a hint is worth nothing to someone who
cannot write what it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_of_the_command = ContextVar("of_the_command", default=False)


@contextmanager
def for_the_command() -> Iterator[None]:
    """Speak to someone who has written a configuration, and a command line."""
    before = _of_the_command.set(True)
    try:
        yield
    finally:
        _of_the_command.reset(before)


def is_for_the_command() -> bool:
    """Return whether `vramfit train` has asked, and no program."""
    return _of_the_command.get()


def worded(*, program: str, command: str) -> str:
    """Return the words that the one who has asked can use."""
    return command if _of_the_command.get() else program
