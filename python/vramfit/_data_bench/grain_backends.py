"""Backends with Grain: over h5py, over vramfit's sources, and over ArrayRecord."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from vramfit._data_bench.backend import Backend, BatchSizes
from vramfit._data_bench.options import BenchOptions

MAX_COPIED_BYTES = 1 << 30
"""Larger data is not copied to ArrayRecord."""


def over_h5py(options: BenchOptions) -> BatchSizes:
    """Grain over h5py: single rows, shuffled over the whole file."""
    with importlib.import_module("h5py").File(options.file) as file:
        datasets = [file[path] for path in options.datasets]

        class Rows:
            def __len__(self) -> int:
                return options.rows

            def __getitem__(self, row: int) -> list[Any]:
                return [dataset[row] for dataset in datasets]

        yield from _shuffled_rows(Rows(), options)


def over_source(options: BenchOptions) -> BatchSizes:
    """Grain over vramfit's source: single rows."""
    yield from _shuffled_rows(_source(options), options)


def over_row_numbers(options: BenchOptions) -> BatchSizes:
    """Grain shuffles row numbers, and vramfit's source reads those of a batch at once."""
    numbers = _grain().MapDataset.range(options.rows).seed(0).shuffle().repeat()
    batches = numbers.batch(options.batch_size, drop_remainder=True).map(_source(options).read_rows)
    yield from _count(batches, options)


def over_loader(options: BenchOptions) -> BatchSizes:
    """Use vramfit's loader as a Grain dataset."""
    from vramfit.data import HDF5IterDataset

    batches = HDF5IterDataset(
        options.file,
        options.datasets,
        batch_size=options.batch_size,
        epochs=None,
        memory=options.memory,
        threads=options.threads,
        drop_last=True,
        x64=True,
    )
    yield from _count(batches, options)


def over_array_record(options: BenchOptions) -> BatchSizes:
    """Grain over a copy of the rows as ArrayRecord, each parsed to NumPy arrays."""
    records = _grain().sources.ArrayRecordDataSource(options.copy)
    yield from _shuffled_rows(records, options, _make_parser(options))


def array_record(options: BenchOptions) -> BatchSizes:
    """ArrayRecord alone: lists of random rows, read at once and parsed."""
    import numpy as np

    module: Any = importlib.import_module("array_record.python.array_record_data_source")
    random = np.random.default_rng(0)
    parse = _make_parser(options)
    with module.ArrayRecordDataSource(options.copy) as records:
        while True:
            rows = random.choice(options.rows, options.batch_size, replace=False, shuffle=False)
            found = [parse(record) for record in records.__getitems__(rows.tolist())]
            batch = [np.stack(columns) for columns in zip(*found, strict=True)]
            yield len(batch[0])


def copy_to_array_record(options: BenchOptions) -> str | None:
    """Write the rows as ArrayRecord, as its documentation recommends for random access."""
    if options.rows * options.row_bytes > MAX_COPIED_BYTES:
        return "skipped: data of more than 1 GiB is not copied"
    if os.path.exists(options.copy):
        return None
    module: Any = importlib.import_module("array_record.python.array_record_module")
    source = _source(options)
    writer = module.ArrayRecordWriter(options.copy, "group_size:1")
    for first in range(0, options.rows, options.block_rows):
        rows = range(first, min(first + options.block_rows, options.rows))
        columns = source.read_rows(rows).values()
        for values in zip(*columns, strict=True):
            writer.write(b"".join(value.tobytes() for value in values))
    writer.close()
    return None


def _make_parser(options: BenchOptions) -> Callable[[bytes], list[Any]]:
    """Return a function that parses a record to arrays."""
    import numpy as np

    places, start = [], 0
    for value in _source(options)[0].values():
        places.append((value.shape, value.dtype, start))
        start += value.nbytes
    return lambda record: [np.ndarray(shape, dtype, record, at) for shape, dtype, at in places]


def _source(options: BenchOptions) -> Any:
    from vramfit.data import HDF5Source

    return HDF5Source(options.file, options.datasets, cache=options.memory)


def _grain() -> Any:
    return importlib.import_module("grain")


def _shuffled_rows(
    source: Any, options: BenchOptions, parse: Callable[[Any], Any] | None = None
) -> BatchSizes:
    rows = _grain().MapDataset.source(source).seed(0).shuffle().repeat()
    if parse is not None:
        rows = rows.map(parse)
    yield from _count(rows.batch(options.batch_size, drop_remainder=True), options)


def _count(batches: Any, options: BenchOptions) -> BatchSizes:
    """Hand out batches, prefetched by one thread per processor."""
    grain = _grain()
    if isinstance(batches, grain.MapDataset):
        # Grain's 16 threads, each with its own batch, would only delay the first one here.
        threads = len(os.sched_getaffinity(0))
        read_options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        batches = batches.to_iter_dataset(read_options)
    iterator = iter(batches)
    try:
        for _ in iterator:
            yield options.batch_size
    finally:
        iterator.close()


BACKENDS = (
    Backend("grain_loader", "Grain, HDF5IterDataset", ("grain",), over_loader, mixes=True),
    Backend("grain_row_numbers", "Grain, HDF5Source.read_rows", ("grain",), over_row_numbers),
    Backend("grain_source", "Grain over HDF5Source", ("grain",), over_source),
    Backend("grain", "Grain over h5py", ("grain", "h5py"), over_h5py),
    Backend(
        "grain_array_record",
        "Grain over ArrayRecord",
        ("grain", "array_record"),
        over_array_record,
        prepare=copy_to_array_record,
    ),
    Backend(
        "array_record",
        "ArrayRecord, lists of random rows",
        ("array_record",),
        array_record,
        prepare=copy_to_array_record,
    ),
)
