"""The loader: dictionaries of arrays from an HDF5 file larger than memory."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from vramfit.data.arguments import (
    LoaderOptions,
    as_memory,
    check_seeds,
    choose_last_batch,
    complete_sharding,
    describe_types,
    find_shard,
    name_columns,
    open_native,
)
from vramfit.data.checks import (
    ReadLock,
    as_array,
    as_integer,
    check_booleans,
    check_counts,
    check_file,
    check_optional_counts,
    check_positions,
    list_paths,
)
from vramfit.data.columns import BatchColumns
from vramfit.data.dataset import DatasetFiles
from vramfit.data.decode import Decoder
from vramfit.data.samples import Rows, Samples, plan_columns
from vramfit.data.selection import describe_split, read_groups, read_rows
from vramfit.data.statistics import find_normalization
from vramfit.data.stats import Stats
from vramfit.data.transform import Transform, TransformPipeline, TransformTask
from vramfit.data.weights import read_weights
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

    from vramfit.data.device import DeviceBatches
    from vramfit.data.mixture import Mixture

    Batch = dict[str, np.ndarray[Any, Any]]


class Loader:
    """Batches of samples from HDF5 datasets, in an order that can be resumed.

    A ``for`` loop over it is one epoch, or the rest of one: it continues after the last batch
    that was handed out, and the next loop is the next epoch. Batches are dictionaries of NumPy
    arrays. Their memory is recycled when the array, and every JAX array that shares it, is
    released.

    Args:
        path: The file, or several: a list, a directory, or a pattern such as ``"shards/*.h5"``.
            Their rows follow each other, in the order of the list, or of the names with numbers
            compared by value.
        datasets: Paths of datasets with the same number of rows, or a dictionary from column names
            to paths. ``"data/*/obs"`` is the dataset ``obs`` of every group in ``data``.
            ``"points[x]"`` is a field of records, and ``"points[position.x]"`` a field of
            nested records. If elements or fields are arrays, their axes follow those of the
            dataset.
        batch_size: Samples of a batch, all processes together.
        samples: What a sample is: :class:`Rows` (default), :class:`Windows`, :class:`Groups` or
            :class:`Ragged`.
        shift: Further columns that are others some rows later: ``{"next_obs": ("obs", 1)}``; or
            the rows that a column itself is shifted by: ``{"obs": -3}``.
        seed: Seed of the shuffle; the order is the same on every machine.
        memory: Memory budget, such as ``"256MiB"``, or a number of bytes. It covers windows,
            decoding, the chunk index and batches, including those that the program holds.
        shuffle: Whether samples come in random order, a different one in each epoch.
        last_batch: What happens to the samples that do not fill a batch. ``"partial"``: the last
            batch is smaller. ``"pad"``: its last sample is repeated, so that all batches have the
            same shape. ``"drop"``: they are left out. The default is ``"partial"``, and ``"pad"``
            with `mask`, `stacked_batches`, `sharding` or several processes.
        drop_last: Short for ``last_batch="drop"``.
        mask: Whether batches have a column ``mask`` that is false for padding: one value for each
            sample, or one for each of its rows where samples themselves are padded. With several
            columns of different lengths it is ``<column>_mask``. By default it is there if
            anything is padded.
        decode: Functions of the bytes of one element, for columns of text or bytes such as encoded
            images: ``{"image": decode_jpeg}``; None leaves them as `bytes`. They are applied before
            the transform.
        transform: A function of a batch, applied before it is handed out. If it has a parameter
            ``rng``, that is a NumPy generator made from the seed, the epoch and the position, so
            that a resumed run draws the same numbers. Other random numbers are not resumed.
        transform_threads: Number of threads that decode and transform the batches to come, while
            the program computes. Batches come in the same order, and the state counts those that
            the program has.
        rows: Which samples to read: numbers in any order, a mask, a range, a slice, or the path of
            a dataset with numbers or a mask. Samples are numbered in the order of files and groups,
            in which they come without `shuffle`.
        groups: Which groups to read: names of those that the last wildcard stands for, or the path
            of a dataset with names, such as ``"mask/train"``.
        split: ``("train", 0.1)`` or ``("validation", 0.1)``: which set to read when a tenth of the
            samples is used for validation; or ``("train", 0.8, 0.1, 0.1)`` with fractions for
            training, validation and ``"test"``. A last item chooses the others: ``"spread"`` over
            the file (default), or its ``"tail"``. Groups stay whole unless samples are rows; a
            single series is split in time, and no window crosses the border. ``("train",
            KFold(5, 0))`` holds out the first of five folds instead, which is spread over the file
            or with ``"blocks"`` a block of it; see :class:`KFold`.
        split_by: ``"group"`` or ``"sample"``: whether groups stay whole.
        split_seed: Seed of that choice, independent of `seed`.
        weights: A weight for each sample (an array, or the path of a dataset with a number in each
            row): an epoch then draws as many samples as it has, with replacement, each as often as
            its weight says. They take 8 bytes of memory for each sample, beside `memory`.
        stacked_batches: Number of batches to stack along a new first axis, for ``jax.lax.scan``.
        dtype: Type conversion: one type for all floats, such as ``"bfloat16"`` or
            ``numpy.float32``, or a dictionary from columns to types.
        normalize: What to normalize with: the file that ``vramfit data stats --output`` wrote, or a
            dictionary from columns to ``(mean, std)`` or to what :func:`compute_statistics`
            returned. Each feature (element of the last axis of a row) loses its mean and is divided
            by its standard deviation, where that is not 0. Padding stays zero. A file normalizes
            the columns of floats that it has.
        x64: Whether 64-bit types are kept. The default is JAX's setting if the program has
            imported JAX; otherwise they become 32-bit types, as JAX would make them.
        threads: Reader threads; by default half of the processors, plus the program's own thread
            while it waits for a batch.
        sharding: Sharding of each batch: one sharding, or a dictionary with one for each column,
            for :meth:`to_device`. With it, `rank` and `world` default to those of
            ``jax.distributed``.
        rank: The number of this process, from 0.
        world: The number of processes that read together.
        unpack: Whether values packed by the conventions of netCDF (CF) are unpacked, to floats:
            ``value * scale_factor + add_offset``, and NaN for ``_FillValue`` and ``missing_value``,
            of unsigned integers with ``_Unsigned``. ``valid_range`` is not applied. Attributes may
            differ from file to file.
        allow_unclosed: Whether to read files whose writer did not close them, with a warning: what
            it did not flush reads as zeros. Files in formats before HDF5 1.10 are read without it.
        index: A file that keeps, from one run to the next, what is known of each file: those that
            have not changed since (size, times and inode) are not opened before their rows are
            read, and are compared with it then. It is made and renewed as needed, and several
            loaders may share it. Not with :class:`Ragged`.

    Raises:
        InvalidArgumentError: An argument is invalid; the hint says what to change.
        IoError: A file cannot be read.
        InvalidFileError: A file is damaged, or not HDF5.
        UnsupportedFeatureError: A dataset uses a storage feature that is not supported.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        datasets: str | Sequence[str] | Mapping[str, str],
        *,
        batch_size: int,
        samples: Samples | None = None,
        shift: Mapping[str, tuple[str, int] | int] | None = None,
        seed: int = 0,
        memory: str | int = "256MiB",
        shuffle: bool = True,
        last_batch: Literal["partial", "pad", "drop"] | None = None,
        drop_last: bool = False,
        mask: bool | None = None,
        decode: Mapping[str, Callable[[bytes], Any] | None] | None = None,
        transform: Callable[..., Any] | None = None,
        transform_threads: int = 0,
        rows: Any = None,
        groups: Sequence[str] | None = None,
        split: tuple[Any, ...] | None = None,
        split_by: Literal["group", "sample"] | None = None,
        split_seed: int = 0,
        weights: Any = None,
        stacked_batches: int | None = None,
        dtype: Any = None,
        normalize: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        x64: bool | None = None,
        threads: int | None = None,
        sharding: Any = None,
        rank: int | None = None,
        world: int | None = None,
        unpack: bool = False,
        allow_unclosed: bool = False,
        index: str | os.PathLike[str] | None = None,
        _poison: bool = False,
    ) -> None:
        rows, groups, weights = as_array(rows), as_array(groups), as_array(weights)
        arguments = dict(locals())
        self._arguments = {
            name: value for name, value in arguments.items() if name not in ("self", "__class__")
        }
        names = name_columns(datasets)
        samples = Rows() if samples is None else samples
        columns = plan_columns(names, samples, shift)
        check_counts(batch_size=batch_size)
        check_optional_counts(stacked_batches=stacked_batches, threads=threads)
        check_seeds(seed=seed, split_seed=split_seed)
        check_booleans(shuffle=shuffle, drop_last=drop_last, mask=mask, x64=x64)
        check_booleans(unpack=unpack, allow_unclosed=allow_unclosed)
        kinds, floats = describe_types(dtype, [column.name for column in columns])
        scales = find_normalization(normalize, columns, kinds, unpack=bool(unpack))
        shard = find_shard(rank, world, sharding)
        self._last_batch = choose_last_batch(
            last_batch,
            drop_last=drop_last,
            is_masked=bool(mask),
            is_stacked=stacked_batches is not None,
            is_divided=shard[1] > 1 or sharding is not None,
        )
        decoder = Decoder(decode, [column.name for column in columns])
        self._undecoded = decoder.undecoded
        self._transform = Transform.of(transform, decoder, seed, shard[0])
        self._pipeline = TransformPipeline(self._transform, transform_threads)
        files = DatasetFiles(
            list_paths(path), as_memory(memory), bool(unpack), bool(allow_unclosed)
        )
        self._options = LoaderOptions(
            files=files.paths,
            columns=[
                c.to_native(
                    kinds.get(c.name), scales.get(c.name), is_bytes=c.name in decoder.columns
                )
                for c in columns
            ],
            samples=samples._to_json(),
            trim=bool(samples.trim),
            mask=mask is not False,
            batch_size=as_integer("batch_size", batch_size),
            memory=files.memory,
            seed=as_integer("seed", seed),
            shuffle=bool(shuffle),
            drop_last=self._last_batch == "drop",
            is_partial=self._last_batch == "partial",
            stacked_batches=stacked_batches,
            selected_samples=read_rows(rows, files),
            selected_groups=read_groups(groups, rows, files),
            split=describe_split(split, split_by, split_seed),
            shard=shard,
            threads=threads,
            floats=floats,
            narrow=not (_jax_has_x64() if x64 is None else x64),
            weights=read_weights(weights, files),
            unpack=files.unpack,
            allow_unclosed=files.allow_unclosed,
            index=None if index is None else check_file("index", index),
            poison=_poison,
        )
        self._native = open_native(self._options)
        # The native loader has them summed up.
        self._options = replace(self._options, weights=None)
        for text in self._native.unclosed_files:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self._datasets = {column.name: column.dataset for column in columns}
        self._pipeline.check_batches(self.max_batches)
        self._lock = ReadLock()
        # After the last batch that the program has; the native loader has read further.
        self._position: tuple[int, int] | None = None
        self._generation = 0
        self._restore_note: str | None = None
        size = self._native.batch_size // self.world
        self._columns = BatchColumns(
            columns,
            [(kind, shape) for _, kind, shape in self._native.columns],
            self._native.derived_columns,
            lead=(size,) if stacked_batches is None else (stacked_batches, size),
            is_masked=bool(mask) or (mask is None and self._last_batch == "pad"),
            buckets=getattr(samples, "buckets", ()),
        )
        self._columns.buckets.check(is_divided=shard[1] > 1, is_stacked=stacked_batches is not None)
        self._sharding = complete_sharding(
            sharding,
            self._columns.names,
            is_asked_for=mask is True,
            is_stacked=stacked_batches is not None,
            is_transformed=transform is not None,
        )

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
        """Whether the samples that do not fill the last batch of an epoch are dropped."""
        return self._options.drop_last

    @property
    def last_batch(self) -> str:
        """What happens to the samples that do not fill a batch: partial, pad or drop."""
        return self._last_batch

    @property
    def transform_threads(self) -> int:
        """The number of threads that transform batches."""
        return self._pipeline.threads

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
        return self._columns.batch_bytes

    @property
    def buffer_count(self) -> int:
        """Batches (or stacks of them) that have memory at a time, unless the program keeps more."""
        return self._native.buffer_count

    @property
    def max_batches(self) -> int:
        """Batches (or stacks of them) that may be in use at a time."""
        return self._native.max_batches

    @property
    def samples_per_batch(self) -> int:
        """Samples of a batch (or a stack of them), all processes together."""
        return self.batch_size * (self.stacked_batches or 1)

    @property
    def seed(self) -> int:
        """Seed of the shuffle."""
        return self._options.seed

    @property
    def has_transform(self) -> bool:
        """Whether batches are decoded or transformed."""
        return self._transform is not None

    @property
    def generation(self) -> int:
        """A number that changes when an iterator over the loader is invalidated by another."""
        return self._generation

    def __len__(self) -> int:
        """Return how many batches (or stacks of them) a whole epoch has."""
        return self._native.batches

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, after the last batch that was handed out."""
        return Batches(self, self._start(*self.position))

    def epoch(self, number: int) -> Iterator[Any]:
        """Iterate over an epoch, counted from 0, from its first batch."""
        check_positions(epoch=number)
        return Batches(self, self._start(number, 0))

    def batches_from(self, epoch: int, position: int) -> Iterator[Any]:
        """Iterate over the rest of an epoch from a row of it, counted in the order of the epoch."""
        check_positions(epoch=epoch, position=position)
        return Batches(self, self._start(epoch, position))

    def file_rows(self, epoch: int, start: int, end: int) -> list[int]:
        """Return the numbers of samples `start` to `end` of an epoch.

        Samples are numbered in the order of files and groups; in one file of rows, these are rows.
        """
        check_positions(epoch=epoch, start=start, end=end)
        return self._native.file_rows(epoch, start, end)

    def _start(self, epoch: int, position: int) -> int:
        """Start the reader threads, and return the generation of this iterator."""
        self._generation += 1
        self._pipeline.clear()
        self._native.start(epoch, position)
        # A batch whose transform fails is not one that the program has.
        self._position = None if self._transform is None else (epoch, position)
        return self._generation

    def _next(
        self, generation: int, *, same_shape: bool = False
    ) -> tuple[Any, tuple[int, int]] | None:
        """Return the next batch and the position after it, or None at the end of the epoch.

        With `same_shape`, the last batch is padded instead of being smaller.
        """
        with self._lock:
            if generation != self._generation:
                raise ended_iterator_error()
            is_partial = self._last_batch == "partial" and not same_shape
            if self._transform is None:
                found = self._native.next()
                if found is None:
                    return None
                memory, valid, end = found
                return self._columns.make_batch(memory, valid, is_partial=is_partial), end
            transformed = self._pipeline.next(lambda: self._read(is_partial=is_partial))
            if transformed is not None:
                self._position = transformed[1]
            return transformed

    def _read(self, *, is_partial: bool) -> TransformTask | None:
        """Return the next batch before its transform, and where it begins and ends."""
        start = self._native.position
        found = self._native.next()
        if found is None:
            return None
        memory, valid, end = found
        batch = self._columns.make_batch(memory, valid, is_partial=is_partial)
        return batch, start, end

    def to_device(
        self, depth: int = 2, *, map_on_device: Callable[..., Any] | None = None
    ) -> DeviceBatches:
        """Return this loader with its batches on the device, `depth` of them ahead of the program.

        Transfers overlap with computation. If the loader has a sharding, each device gets
        its rows. The state counts what the program has received, not what is being transferred.

        Args:
            depth: How many batches are transferred ahead.
            map_on_device: A function of a batch, applied on the device after the transfer; it is
                jitted. If it has a parameter ``key``, that is a key of `jax.random` made from the
                seed, the epoch and the position, so that a resumed run draws the same numbers.
        """
        from vramfit.data.device import DeviceBatches

        if self._undecoded and self._arguments["transform"] is None:
            raise InvalidArgumentError(
                f"`{self._undecoded[0]}` is bytes, which are not transferred to a device",
                hint=f'decode them: `decode={{"{self._undecoded[0]}": ...}}`, or use a `transform`',
            )
        return DeviceBatches(self, depth, map_on_device=map_on_device)

    def state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch: less than 1 KB as JSON."""
        return self._state(self._position)

    def _state(self, position: tuple[int, int] | None = None) -> dict[str, Any]:
        """Return the state behind the last batch, or at another position."""
        state: dict[str, Any] = json.loads(self._native.state(position))
        return state

    def restore(self, state: Mapping[str, Any] | str, *, force: bool = False) -> Self:
        """Resume from a state: the next iterator starts after the last batch handed out then.

        Batch size, stacks, memory and number of processes may differ from those of the state. The
        file may have been moved, copied or touched: contents are compared (all of a file of up to
        16 MiB, otherwise 256 blocks of 64 KiB spread over it; of several files that much together).
        If the modification time differs, :attr:`restore_note` says how far they were compared.

        Args:
            state: What :meth:`state` returned, or its JSON.
            force: Accept a file with other contents; :attr:`restore_note` says what differs.

        Raises:
            FileChangedError: The contents of the file differ from those of the state.
            InvalidArgumentError: The loader has a different seed, split or shuffle, or `state` is
                no state.
        """
        if not isinstance(state, str | Mapping):
            raise InvalidArgumentError(
                f"`state` is {state!r}, but must be what `state()` returned, or its JSON"
            )
        text = state if isinstance(state, str) else json.dumps(dict(state))
        self._pipeline.clear()
        self._restore_note = self._native.restore(text, force)
        self._position = None
        self._generation += 1
        return self

    @property
    def restore_note(self) -> str | None:
        """What the last :meth:`restore` noticed about the files, or None."""
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
        """Samples of an epoch, all processes together."""
        return self._native.rows

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, and the samples of it that were handed out, all processes together."""
        return self._position or self._native.position

    def close(self) -> None:
        """Stop reading. Batches that were handed out stay as they are."""
        self._generation += 1
        self._pipeline.close()
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may have another working directory, and no JAX.
        paths = [os.path.abspath(one) for one in self._options.files]
        arguments = {**self._arguments, "path": paths, "x64": not self._options.narrow}
        if self._options.index is not None:
            arguments["index"] = os.path.abspath(self._options.index)
        return _load_again, (arguments, self.state())

    def __repr__(self) -> str:
        what = "rows" if '"rows"' in self._options.samples else "samples"
        return (
            f"<vramfit.data.Loader of {self.rows} {what}, {len(self)} batches: {self._columns!r}>"
        )


def ended_iterator_error() -> InvalidArgumentError:
    """Return the error of an iterator that another one has ended."""
    return InvalidArgumentError(
        "this iterator is no longer valid: a later one was started on the same loader",
        hint="create a second loader to iterate twice at the same time",
    )


class Batches:
    """The rest of an epoch of a loader or a mixture."""

    def __init__(self, loader: Loader | Mixture, generation: int) -> None:
        self._loader = loader
        self._generation = generation
        self._is_over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        found = None if self._is_over else self._loader._next(self._generation)
        if found is None:
            self._is_over = True
            raise StopIteration
        return found[0]


def _load_again(arguments: dict[str, Any], state: dict[str, Any]) -> Loader:
    """Make a loader in another process, at the position of the one that was pickled."""
    return Loader(**arguments).restore(state)


def _jax_has_x64() -> bool:
    """Return whether JAX keeps 64-bit types, without importing it for that."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)
