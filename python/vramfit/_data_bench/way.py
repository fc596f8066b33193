"""What a way to read shuffled batches is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramfit._data_bench.request import Request

Steps = Iterator[int]
"""How many rows each batch had; it has no end."""


@dataclass(frozen=True)
class Way:
    """A way to read.

    What a way needs is imported when it begins.

    Attributes:
        id: A lasting name.
        title: What it is, for people.
        packages: What has to be installed for it, as it is imported and as pip calls it; the first
            is the one whose release is told.
        read: Begins to read.
        mixes: Whether it reads much before it hands out the first batch.
        prepare: What is done once, and not counted, before any run; it may refuse with the reason.
    """

    id: str
    title: str
    packages: tuple[str, ...]
    read: Callable[[Request], Steps]
    mixes: bool = False
    prepare: Callable[[Request], str | None] | None = None
