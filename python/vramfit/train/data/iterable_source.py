"""Batches from any iterable of the user's."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.data.batch_source import Note, named_columns

_MAX_BATCHES_READ_AGAIN = 1000
"""Batches that are iterated over again to find one of them."""


class IterableSource:
    """Anything that can be iterated over repeatedly, with the same batches each time.

    Args:
        batches: The batches.
        depth: Number of batches that are transferred ahead.
        send: Puts a batch on the device.
    """

    def __init__(self, batches: Iterable[Any], depth: int, send: Callable[[Any], Any]) -> None:
        if iter(batches) is batches:
            raise InvalidArgumentError(
                "the batches are an iterator, which can be consumed only once",
                hint="pass a list, a `Loader`, or an object whose `__iter__` starts over",
            )
        self._batches = batches
        self._depth = depth
        self._send = send

    def start(self, epoch: int) -> Iterator[Any]:
        """Iterate over all batches."""
        return self._transfer_batches(iter(self._batches))

    def read_ahead(self, epoch: int) -> None:
        """Do nothing: the user's iterable may not be thread-safe."""

    def stop(self) -> None:
        """Do nothing."""

    def resume(
        self, position: dict[str, Any], epoch: int, *, force: bool, note: Note
    ) -> Iterator[Any]:
        """Skip the batches before the position."""
        batches = iter(self._batches)
        for _ in range(position["batches"]):
            next(batches, None)
        return self._transfer_batches(batches)

    def position(self, batches: int) -> dict[str, Any]:
        """Return the number of batches."""
        return {"batches": batches}

    def batches_per_epoch(self) -> int | None:
        """Return the length of the iterable, if it has one."""
        try:
            return len(self._batches)  # type: ignore[arg-type]
        except TypeError:
            return None

    def rows_left(self) -> int | None:
        """Return None: nothing is padded."""
        return None

    def max_held(self) -> int | None:
        """Return None: each batch has memory of its own."""
        return None

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Iterate again up to that batch, unless it is far."""
        if batch >= _MAX_BATCHES_READ_AGAIN:
            return None
        found = next(itertools.islice(iter(self._batches), batch, None), None)
        return None if found is None else (named_columns(found), 0)

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return None: the origin of the batches is not known."""
        return None

    def dataset(self, column: str) -> str | None:
        """Return None."""
        return None

    def _transfer_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        in_flight: deque[Any] = deque()
        for batch in batches:
            in_flight.append(self._send(batch))
            del batch
            if len(in_flight) > self._depth:
                yield in_flight.popleft()
        while in_flight:
            yield in_flight.popleft()
