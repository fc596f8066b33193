"""Messages in the terms of the caller: a program that calls `fit`, or a user of `vramfit train`.

Both can do the same things under different names, and a hint is useless to someone who has no
place to write what it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakSet

from vramfit.errors import VramfitError

_is_cli = ContextVar("is_cli", default=False)
_failed_runs: WeakSet[VramfitError] = WeakSet()


@contextmanager
def for_cli() -> Iterator[None]:
    """Phrase messages for someone who wrote a configuration file and a command line."""
    token = _is_cli.set(True)
    try:
        yield
    finally:
        _is_cli.reset(token)


def is_cli() -> bool:
    """Return whether `vramfit train` is running, and not a program that calls `fit`."""
    return _is_cli.get()


def rephrase(*, program: str, command: str) -> str:
    """Return the wording that the caller can use."""
    return command if _is_cli.get() else program


@contextmanager
def during_training() -> Iterator[None]:
    """Mark errors of a run that had started: what was asked for can be done, and failed."""
    try:
        yield
    except VramfitError as error:
        _failed_runs.add(error)
        raise


def is_during_training(error: VramfitError) -> bool:
    """Return whether a run had started when an error was raised."""
    return error in _failed_runs
