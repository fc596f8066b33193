"""The loader: dictionaries of arrays from an HDF5 file larger than memory."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vramfit._native import BatchLoader
from vramfit.data.arguments import (
    LoaderOptions,
    as_integer,
    check_counts,
    check_sharding,
    describe_split,
    describe_types,
    find_dtype,
    find_shard,
    name_columns,
)
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

    from vramfit.data.device import DeviceBatches

    Batch = dict[str, np.ndarray[Any, Any]]

MASK = "mask"
"""The column that is false for padding, with ``mask=True``."""


@dataclass(frozen=True)
class Stats:
    """Where the time of a loader went. Seconds of reader threads are summed over threads.

    They include what the program's own thread read while it waited.

    Attributes:
        batches: Batches (or stacks of them) handed out.
        rows: Real rows handed out.
        bytes: Bytes handed out, padding included.
        reading_s: Reader threads: waiting for the disk, and decoding.
        filling_s: Reader threads: copying rows from windows into batches.
        idle_s: Reader threads: with nothing to do, because all buffers were full.
        waiting_s: The program: waiting for a batch. If this is high, reading is the bottleneck.
        held_bytes: Bytes of batches that the program holds at the moment.
        buffer_bytes: Bytes of all batch buffers, which are recycled.
    """

    batches: int
    rows: int
    bytes: int
    reading_s: float
    filling_s: float
    idle_s: float
    waiting_s: float
    held_bytes: int
    buffer_bytes: int


class Loader:
    """Batches of rows from the datasets of an HDF5 file, in an order that can be resumed.

    A ``for`` loop over it is one epoch, or the rest of one: it continues after the last batch
    that was handed out, and the next loop is the next epoch. Batches are dictionaries of NumPy
    arrays. Their memory is recycled when the array, and every JAX array that shares it, is
    released.

    Args:
        path: The file.
        datasets: Paths of datasets with the same number of rows, or a dictionary from column names
            to paths. ``"points[x]"`` is a field of records, and ``"points[position.x]"`` a field of
            nested records. If elements or fields are arrays, their axes follow those of the
            dataset.
        batch_size: Rows of a batch, all processes together.
        seed: Seed of the shuffle; the order is the same on every machine.
        memory: Memory budget, such as ``"256MiB"``, or a number of bytes. It covers windows,
            decoding, the chunk index and batches, including those that the program holds.
        shuffle: Whether rows come in random order, a different one in each epoch.
        drop_last: Whether rows that do not fill a batch are dropped. Otherwise the last batch is
            padded by repeating its last row, so that all have the same shape.
        mask: Whether batches have a column ``mask`` that is false for padding.
        transform: A function of a batch, applied before it is handed out.
        split: ``("train", 0.1)`` or ``("validation", 0.1)``: which set to read when a tenth of the
            rows is used for validation. A third item chooses the validation rows: ``"spread"`` over
            the file (default), or its ``"tail"``.
        split_seed: Seed of that choice, independent of `seed`.
        stacked_batches: Number of batches to stack along a new first axis, for ``jax.lax.scan``.
        dtype: Type conversion: one type for all floats, such as ``"bfloat16"`` or
            ``numpy.float32``, or a dictionary from columns to types.
        x64: Whether 64-bit types are kept. The default is JAX's setting if the program has
            imported JAX; otherwise they become 32-bit types, as JAX would make them.
        threads: Reader threads; by default half of the processors, plus the program's own thread
            while it waits for a batch.
        sharding: Sharding of each batch: one sharding, or a dictionary with one for each column,
            for :meth:`to_device`. With it, `rank` and `world` default to those of
            ``jax.distributed``.
        rank: The number of this process, from 0.
        world: The number of processes that read together.

    Raises:
        InvalidArgumentError: An argument is invalid; the hint says what to change.
        IoError: The file cannot be read.
        InvalidFileError: The file is damaged, or not HDF5.
        UnsupportedFeatureError: A dataset uses a storage feature that is not supported.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        datasets: str | Sequence[str] | Mapping[str, str],
        *,
        batch_size: int,
        seed: int = 0,
        memory: str | int = "256MiB",
        shuffle: bool = True,
        drop_last: bool = False,
        mask: bool = False,
        transform: Callable[[Batch], Any] | None = None,
        split: tuple[str, float] | tuple[str, float, str] | None = None,
        split_seed: int = 0,
        stacked_batches: int | None = None,
        dtype: Any = None,
        x64: bool | None = None,
        threads: int | None = None,
        sharding: Any = None,
        rank: int | None = None,
        world: int | None = None,
        _poison: bool = False,
    ) -> None:
        names = name_columns(datasets)
        if mask and MASK in names:
            raise InvalidArgumentError(
                f"a dataset is named `{MASK}`, like the column that `mask=True` adds",
                hint="rename the column: `{'weights': 'mask'}`",
            )
        check_counts(batch_size=batch_size, stacked_batches=stacked_batches, threads=threads)
        for name, number in (("seed", seed), ("split_seed", split_seed)):
            if not 0 <= as_integer(name, number) < 1 << 64:
                raise InvalidArgumentError(
                    f"`{name}` is {number}, but must be between 0 and 2^64 - 1"
                )
        kinds, floats = describe_types(dtype, names)
        columns = [*names, MASK] if mask else list(names)
        check_sharding(sharding, columns, is_transformed=transform is not None)
        self._names = list(names)
        self._datasets = names
        self._mask = mask
        self._transform = transform
        self._sharding = sharding
        self._options = LoaderOptions(
            path=path,
            columns=[(dataset, kinds.get(name)) for name, dataset in names.items()],
            batch_size=batch_size,
            memory=f"{memory}B" if isinstance(memory, int) else memory,
            seed=seed,
            shuffle=shuffle,
            drop_last=drop_last,
            stacked_batches=stacked_batches,
            split=describe_split(split, split_seed),
            shard=find_shard(rank, world, sharding),
            threads=threads,
            floats=floats,
            narrow=not (_jax_has_x64() if x64 is None else x64),
            poison=_poison,
        )
        self._native = BatchLoader(self._options)
        self._generation = 0
        self._restore_note: str | None = None
        rows = batch_size // self.world
        lead = (rows,) if stacked_batches is None else (stacked_batches, rows)
        shapes = [(kind, shape) for _, kind, shape in self._native.columns]
        self._columns = list(zip(self._names, shapes, strict=True))
        self._arrays = [
            (name, find_dtype(kind), (*lead, *shape)) for name, (kind, shape) in self._columns
        ]

    @property
    def batch_size(self) -> int:
        """Rows of a batch, all processes together."""
        return self._options.batch_size

    @property
    def stacked_batches(self) -> int | None:
        """Batches that are stacked into one, or None where batches come one by one."""
        return self._options.stacked_batches

    @property
    def drop_last(self) -> bool:
        """Whether the rows that do not fill the last batch of an epoch are dropped."""
        return self._options.drop_last

    @property
    def sharding(self) -> Any:
        """The sharding of batches, a dictionary of one per column, or None."""
        return self._sharding

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._options.shard[0]

    @property
    def world(self) -> int:
        """The number of processes that read together."""
        return self._options.shard[1]

    @property
    def datasets(self) -> dict[str, str]:
        """The path of the dataset of each column."""
        return dict(self._datasets)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch (or a stack of them) in this process."""
        return sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in self._arrays)

    @property
    def buffer_count(self) -> int:
        """Batches (or stacks of them) that have memory at a time, unless the program keeps more."""
        return self._native.buffer_count

    @property
    def generation(self) -> int:
        """A number that changes when an iterator over the loader is invalidated by another."""
        return self._generation

    def __len__(self) -> int:
        """Return how many batches (or stacks of them) a whole epoch has."""
        return self._native.batches

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, after the last batch that was handed out."""
        return self._batches(self._start(*self._native.position))

    def epoch(self, number: int) -> Iterator[Any]:
        """Iterate over an epoch, counted from 0, from its first batch."""
        return self._batches(self._start(number, 0))

    def batches_from(self, epoch: int, position: int) -> Iterator[Any]:
        """Iterate over the rest of an epoch from a row of it, counted in the order of the epoch."""
        return self._batches(self._start(epoch, position))

    def file_rows(self, epoch: int, start: int, end: int) -> list[int]:
        """Return the row numbers in the file of rows `start` to `end` of an epoch."""
        return self._native.file_rows(epoch, start, end)

    def _start(self, epoch: int, position: int) -> int:
        """Start the reader threads, and return the generation of this iterator."""
        self._generation += 1
        self._native.start(epoch, position)
        return self._generation

    def _batches(self, generation: int) -> Iterator[Any]:
        while (found := self._next(generation)) is not None:
            batch, _ = found
            del found
            yield batch
            # Otherwise this frame keeps the batch alive while the next one is made.
            del batch

    def _next(self, generation: int) -> tuple[Any, tuple[int, int]] | None:
        """Return the next batch and the position after it, or None at the end of the epoch."""
        if generation != self._generation:
            raise InvalidArgumentError(
                "this iterator is no longer valid: a later one was started on the same loader",
                hint="create a second loader to iterate twice at the same time",
            )
        found = self._native.next()
        if found is None:
            return None
        memory, valid, position = found
        return self._batch(memory, valid), position

    def _batch(self, memory: Sequence[Any], valid: Sequence[int]) -> Any:
        import numpy as np

        batch: Batch = {
            name: np.ndarray(shape, dtype, part)
            for (name, dtype, shape), part in zip(self._arrays, memory, strict=True)
        }
        if self._mask:
            is_stack = self.stacked_batches is not None
            rows = next(iter(batch.values())).shape[int(is_stack)]
            real = np.arange(rows)[None, :] < np.asarray(valid)[:, None]
            batch[MASK] = real if is_stack else real[0]
        return batch if self._transform is None else self._transform(batch)

    def to_device(self, depth: int = 2) -> DeviceBatches:
        """Return this loader with its batches on the device, `depth` of them ahead of the program.

        Transfers overlap with computation. If the loader has a sharding, each device gets
        its rows. The state counts what the program has received, not what is being transferred.
        """
        from vramfit.data.device import DeviceBatches

        return DeviceBatches(self, depth)

    def state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch: less than 1 KB as JSON."""
        return self._state()

    def _state(self, position: tuple[int, int] | None = None) -> dict[str, Any]:
        """Return the state behind the last batch, or at another position."""
        state: dict[str, Any] = json.loads(self._native.state(position))
        return state

    def restore(self, state: Mapping[str, Any] | str, *, force: bool = False) -> Self:
        """Resume from a state: the next iterator starts after the last batch handed out then.

        Batch size, stacks, memory and number of processes may differ from those of the state. The
        file may have been moved, copied or touched: if its modification time differs, contents are
        compared (all of a file of up to 16 MiB, otherwise 256 blocks of 64 KiB spread over it).
        :attr:`restore_note` then says how far they were compared.

        Args:
            state: What :meth:`state` returned, or its JSON.
            force: Accept a file with other contents; :attr:`restore_note` says what differs.

        Raises:
            FileChangedError: The contents of the file differ from those of the state.
            InvalidArgumentError: The loader has a different seed, split or shuffle.
        """
        text = state if isinstance(state, str) else json.dumps(dict(state))
        self._restore_note = self._native.restore(text, force)
        self._generation += 1
        return self

    @property
    def restore_note(self) -> str | None:
        """What the last :meth:`restore` noticed about the file, or None."""
        return self._restore_note

    @property
    def stats(self) -> Stats:
        """Where the time went since the loader was made."""
        batches, rows, count, seconds, held, made = self._native.stats()
        reading, filling, idle, waiting = seconds
        return Stats(batches, rows, count, reading, filling, idle, waiting, held, made)

    @property
    def plan(self) -> str:
        """How the file is read and why, the type conversions, and the use of memory."""
        return self._native.plan

    @property
    def rows(self) -> int:
        """Rows of an epoch, all processes together."""
        return self._native.rows

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, and the rows of it that were handed out, all processes together."""
        return self._native.position

    def close(self) -> None:
        """Stop reading. Batches that were handed out stay as they are."""
        self._generation += 1
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {kind}{shape}" for name, (kind, shape) in self._columns)
        return f"<vramfit.data.Loader of {self.rows} rows, {len(self)} batches: {shapes}>"


def _jax_has_x64() -> bool:
    """Return whether JAX keeps 64-bit types, without importing it for that."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)
