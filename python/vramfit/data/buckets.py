"""Batches that are no longer than they need to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramfit.errors import InvalidArgumentError


class Buckets:
    """Cuts the padding behind the longest sample of a batch, to one of a few lengths.

    Args:
        lengths: The lengths; none if batches are not cut.
        columns: For each mask the columns whose rows it is about.
    """

    def __init__(self, lengths: Sequence[int], columns: Mapping[str, Sequence[str]]) -> None:
        self._lengths = tuple(lengths)
        self._columns = columns

    def check(self, *, is_divided: bool, is_stacked: bool) -> None:
        """Check that batches may have several lengths."""
        if not self._lengths:
            return
        if is_divided or is_stacked:
            what = "stacked batches" if is_stacked else "batches of several processes"
            raise InvalidArgumentError(
                f"{what} have one shape, so they cannot be cut to `buckets`",
                hint="use `length` instead",
            )
        if not self._columns:
            raise InvalidArgumentError(
                "`buckets` needs the mask, which `mask=False` leaves out", hint="use `mask=True`"
            )

    def cut(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch with less padding."""
        if not self._lengths:
            return batch
        for mask, columns in self._columns.items():
            is_real = batch[mask].any(axis=0)
            longest = len(is_real) - int(is_real[::-1].argmax()) if is_real.any() else 0
            length = next((length for length in self._lengths if length >= longest), None)
            if length is not None and length < len(is_real):
                for name in (mask, *columns):
                    batch[name] = batch[name][:, :length]
        return batch
