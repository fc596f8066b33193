"""The interface of a backend that reads shuffled batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramfit._data_bench.options import BenchOptions

BatchSizes = Iterator[int]
"""The number of rows of each batch, endlessly."""


@dataclass(frozen=True)
class Backend:
    """A way to read shuffled batches.

    It imports what it needs when it starts.

    Attributes:
        id: A stable name.
        title: A title for the table.
        packages: Required packages, whose import names are those of pip; the version of the first
            is reported.
        read: Starts to read.
        mixes: Whether it fills a shuffle buffer before it hands out the first batch.
        prepare: Runs once, untimed, before any run; it may return a reason to skip the backend.
    """

    id: str
    title: str
    packages: tuple[str, ...]
    read: Callable[[BenchOptions], BatchSizes]
    mixes: bool = False
    prepare: Callable[[BenchOptions], str | None] | None = None
