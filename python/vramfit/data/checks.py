"""Checks of single arguments."""

from __future__ import annotations

import difflib
import operator
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vramfit.errors import InvalidArgumentError


def as_integer(name: str, number: Any) -> int:
    """Return an integer of any integer type as `int`."""
    try:
        return operator.index(number)
    except TypeError:
        raise InvalidArgumentError(
            f"`{name}` is {number!r}, but must be an integer",
            hint=f"use `{name}=int(...)`" if isinstance(number, float) else None,
        ) from None


def as_array(values: Any) -> Any:
    """Return what is no array of NumPy but can be made one, such as a dataset of h5py, as an array.

    It can then be pickled, and used where there is no JAX. A single value is itself.
    """
    if not hasattr(values, "__array__"):
        return values
    import numpy as np

    array = np.asarray(values)
    return array[()] if array.ndim == 0 else array


def check_counts(**numbers: int) -> None:
    """Check that numbers are positive integers."""
    _check_at_least(1, numbers)


def check_optional_counts(**numbers: int | None) -> None:
    """Check that numbers are positive integers, if given."""
    _check_at_least(1, {name: number for name, number in numbers.items() if number is not None})


def check_positions(**numbers: int) -> None:
    """Check that numbers that count from 0 are integers of 64 bits."""
    _check_at_least(0, numbers)


def _check_at_least(least: int, numbers: Mapping[str, int]) -> None:
    for name, number in numbers.items():
        if not least <= as_integer(name, number) < 1 << 63:
            raise InvalidArgumentError(f"`{name}` is {number}, but must be at least {least}")


def check_booleans(**values: bool | None) -> None:
    """Check that options that are on or off are so, if given: the text "no" would be on."""
    for name, value in values.items():
        if value is not None and type(value).__name__ not in ("bool", "bool_"):
            raise InvalidArgumentError(f"`{name}` is {value!r}, but must be True or False")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Check that a value is one of several words."""
    if isinstance(value, str) and value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, n=1)
    listed = ", ".join(f'"{choice}"' for choice in choices)
    raise InvalidArgumentError(
        f"`{name}` is {value!r}, but must be one of {listed}",
        hint=f'did you mean "{near[0]}"?' if near else None,
    )


def check_columns(argument: str, mentioned: Iterable[str], columns: Sequence[str]) -> None:
    """Check that what an argument mentions are columns."""
    if unknown := [name for name in mentioned if name not in columns]:
        there = ", ".join(f"`{name}`" for name in columns)
        raise InvalidArgumentError(
            f"`{argument}` names {unknown[0]!r}, which is not a column",
            hint=f"the columns are {there}",
        )


def check_path(name: str, value: Any) -> None:
    """Check that a value is the path of a dataset."""
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(
            f"`{name}` is {value!r}, but must be the path of a dataset",
            hint=f'use `{name}="group/dataset"`',
        )
    check_text(name, value)


def check_text(name: str, value: str) -> None:
    """Check that a text is Unicode: Python keeps bytes that are not as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"`{name}` is {value!r}, which is not valid Unicode",
            hint="names in files are read as UTF-8",
        ) from None


def check_file(name: str, path: Any) -> str:
    """Return the path of one file."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InvalidArgumentError(
            f"`{name}` is {path!r}, but must be the path of a file",
            hint=f'use `{name}="shards.{name}"`',
        ) from None


def list_paths(path: Any) -> list[str]:
    """Return the files that an argument names: a path, a pattern, a directory, or several."""
    several = list(path) if isinstance(path, list | tuple) else [path]
    try:
        return [os.fsdecode(one) for one in several]
    except TypeError:
        raise InvalidArgumentError(
            f"`path` is {path!r}, but must be a path or several",
            hint='use `"train.h5"`, `"shards/*.h5"` or a list of paths',
        ) from None


class ReadLock:
    """A lock that is held while a batch is read: a second thread fails instead of waiting for it.

    Raises:
        InvalidArgumentError: Another thread holds it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InvalidArgumentError(
                "another thread is reading a batch from this loader",
                hint="create a loader for each thread, with `rank` and `world` to share the samples"
                ", or read in one thread",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[ReadLock], tuple[()]]:
        # What is pickled is read by nobody yet.
        return ReadLock, ()
