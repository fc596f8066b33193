"""What a part of a program does to the memory of JAX's devices: before, after, peak, arrays."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from math import prod
from types import TracebackType
from typing import Any, NamedTuple

from vramfit._functions import _devices
from vramfit._functions._locale import for_terminal
from vramfit._inprogram import _frames, _import_site
from vramfit._native import show_bytes


class WatchedDevice(NamedTuple):
    """One device, before and after the watched block."""

    device: str
    """The device, as JAX names it."""
    before: int
    """Bytes in use when the block began."""
    after: int
    """Bytes in use when it had ended."""
    peak: int | None
    """The most that was in use inside the block; None where it is not known exactly."""
    peak_at_most: int | None
    """What the peak cannot have exceeded; None where the device counts no peak."""
    limit: int | None
    """Bytes that JAX's pool may take; None where there is none or it is not told."""
    counted: bool
    """Whether the allocator has counted; else the bytes are those of the live arrays."""

    @property
    def peak_at_least(self) -> int:
        """What was in use inside the block at some time, for sure."""
        return max(self.before, self.after) if self.peak is None else self.peak

    def __str__(self) -> str:
        change = self.after - self.before
        sign = "+" if change >= 0 else "−"
        text = f"{self.device}: in use {show_bytes(self.before)} → {show_bytes(self.after)} "
        text += f"({sign}{show_bytes(abs(change))})"
        if self.peak is not None:
            text += f", peak {show_bytes(self.peak)}"
        elif self.peak_at_most is not None:
            text += (
                f", peak at least {show_bytes(self.peak_at_least)} and at most the "
                f"{show_bytes(self.peak_at_most)} that were reached before"
            )
        if self.limit is not None:
            text += f"; limit {show_bytes(self.limit)}"
        if not self.counted:
            text += "; arrays only: this device counts neither temporaries nor a peak"
        return for_terminal(text)


class LiveArrays(NamedTuple):
    """Arrays of one shape and type, made by the same line, that live on one device."""

    device: str
    """The device, as JAX names it."""
    shape: tuple[int, ...]
    """Shape of the part that lies on this device."""
    dtype: str
    """Type of the elements."""
    line: str
    """The user's line that made them, as ``file:line (function)``; empty if JAX does not tell."""
    arrays: int
    """How many."""
    bytes: int
    """Bytes of all of them together, without the allocator's rounding."""
    new: int
    """How many of them were made inside the block."""

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        times = f"{self.arrays} × " if self.arrays > 1 else ""
        new = "" if not self.new else ", new" if self.new == self.arrays else f", {self.new} new"
        line = f"  {self.line}" if self.line else ""
        what = f"{times}{self.dtype}[{shape}] on {self.device}"
        return for_terminal(f"{show_bytes(self.bytes):>10}  {what}{new}{line}")


class watch(ContextDecorator):
    """Watch what a block does to the memory of JAX's devices.

    Example:
        >>> with vramfit.watch() as seen:  # doctest: +SKIP
        ...     state = step(state, batch)
        >>> print(seen)  # doctest: +SKIP
        cuda:0: in use 1.1 GiB → 1.3 GiB (+165.0 MiB), peak 2.0 GiB; limit 13.3 GiB
        live arrays, the largest first (new: made inside the block):
          512.0 MiB  8 × float32[4096,4096] on cuda:0  train.py:31 (init)

    The peak of JAX's allocator never goes down while a process lives. So it is exact where the
    block reaches a new one; where it does not, it lies between what was in use at both ends and the
    peak from before, and both are told. As a decorator, give `report`: there is no name to look at
    the outcome.

    Args:
        report: Called with this object when the block has ended, such as ``print``.
        top: How many kinds of arrays are shown.
    """

    def __init__(self, report: Callable[[watch], object] | None = None, *, top: int = 10) -> None:
        self._report = report
        self._top = top
        self._before: dict[Any, dict[str, int]] = {}
        self._old: dict[int, weakref.ref[Any]] = {}
        self.devices: tuple[WatchedDevice, ...] = ()
        """Each device of this process that JAX has started."""
        self.arrays: tuple[LiveArrays, ...] = ()
        """The arrays that live when the block has ended, the most bytes first."""

    def _recreate_cm(self) -> watch:
        # Each call of a decorated function is watched by an object of its own.
        return watch(self._report, top=self._top)

    def __enter__(self) -> watch:
        jax = _import_site.import_jax()
        # A GPU counts what runs only when it has run, and what was freed before is not ours.
        arrays = [array for array in jax.live_arrays() if not array.is_deleted()]
        jax.block_until_ready(arrays)
        self._old = {id(array): weakref.ref(array) for array in arrays}
        self._before = {device: _count(device, arrays) for device in jax.local_devices()}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import jax

        arrays = [array for array in jax.live_arrays() if not array.is_deleted()]
        if kind is None:
            jax.block_until_ready(arrays)
        self.devices = tuple(
            _compare(device, before, _count(device, arrays))
            for device, before in self._before.items()
        )
        self.arrays = _grouped(arrays, self._old)
        self._old = {}
        if self._report is not None:
            self._report(self)

    def __str__(self) -> str:
        if not self.devices:
            return "the watched block has not ended"
        lines = [str(device) for device in self.devices]
        if self.arrays:
            lines.append("live arrays, the largest first (new: made inside the block):")
            lines += [f"  {row}" for row in self.arrays[: self._top]]
        rest = self.arrays[self._top :]
        if rest:
            count, size = sum(row.arrays for row in rest), sum(row.bytes for row in rest)
            lines.append(f"  {show_bytes(size):>10}  {count} more")
        return "\n".join(lines)

    __repr__ = __str__


def _count(device: Any, arrays: list[Any]) -> dict[str, int]:
    counted = _devices.statistics(device)
    if "bytes_in_use" in counted:
        return counted
    size = 0
    for array in arrays:
        for place, shape in _parts(array):
            size += prod(shape) * array.dtype.itemsize if place == device else 0
    return {"arrays": size}


def _parts(array: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the devices of an array and the shape on each; `addressable_shards` makes arrays."""
    shape = tuple(array.sharding.shard_shape(array.shape))
    return [(device, shape) for device in array.sharding.addressable_devices]


def _compare(device: Any, before: dict[str, int], after: dict[str, int]) -> WatchedDevice:
    if "arrays" in before or "arrays" in after:
        return WatchedDevice(
            str(device), before.get("arrays", 0), after.get("arrays", 0), None, None, None, False
        )
    highest = after.get("peak_bytes_in_use")
    is_new = highest is not None and highest > before.get("peak_bytes_in_use", 0)
    # Where the block began or ended at the peak from before, it is known all the same.
    is_end = highest in (before["bytes_in_use"], after["bytes_in_use"])
    return WatchedDevice(
        str(device),
        before["bytes_in_use"],
        after["bytes_in_use"],
        highest if is_new or is_end else None,
        highest,
        after.get("bytes_limit") or None,
        True,
    )


def _grouped(arrays: list[Any], old: dict[int, weakref.ref[Any]]) -> tuple[LiveArrays, ...]:
    rows: dict[tuple[str, tuple[int, ...], str, str], list[int]] = {}
    for array in arrays:
        known = old.get(id(array))
        is_new = known is None or known() is not array
        line = _creation_site(array)
        for device, shape in _parts(array):
            key = (str(device), shape, str(array.dtype), line)
            row = rows.setdefault(key, [0, 0, 0])
            row[0] += 1
            row[1] += prod(shape) * array.dtype.itemsize
            row[2] += is_new
    largest = sorted(rows.items(), key=lambda row: -row[1][1])
    return tuple(LiveArrays(*key, count, size, new) for key, (count, size, new) in largest)


def _creation_site(array: Any) -> str:
    """Return the user's line that made an array, innermost; empty where JAX does not tell."""
    trace = getattr(array, "traceback", None)
    for frame in getattr(trace, "frames", None) or ():
        if not _frames.is_library(frame.file_name):
            return f"{_name(frame.file_name)}:{frame.line_num} ({frame.function_name})"
    return ""


def _name(file: str) -> str:
    """Return what a person calls a file: a cell by its number, what lies here without the path."""
    name = _frames.file_name(file)
    if name != file:
        return name
    here = os.path.relpath(file)
    return file if here.startswith("..") else here
