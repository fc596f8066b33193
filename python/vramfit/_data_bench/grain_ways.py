"""Ways with Grain, over h5py, over our sources, and over ArrayRecord."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from vramfit._data_bench.request import Request
from vramfit._data_bench.way import Steps, Way

MAX_COPIED_BYTES = 1 << 30
"""A file of more bytes of numbers is not copied for ArrayRecord."""


def over_h5py(request: Request) -> Steps:
    """Grain over h5py: rows one by one, which is how it reads, shuffled over the whole file."""
    with importlib.import_module("h5py").File(request.file) as file:
        datasets = [file[path] for path in request.datasets]

        class Rows:
            def __len__(self) -> int:
                return request.rows

            def __getitem__(self, row: int) -> list[Any]:
                return [dataset[row] for dataset in datasets]

        yield from _shuffled_rows(Rows(), request)


def over_source(request: Request) -> Steps:
    """Grain over our source: rows one by one, too."""
    yield from _shuffled_rows(_source(request), request)


def over_row_numbers(request: Request) -> Steps:
    """Grain shuffles the numbers of rows, and our source reads those of a batch at once."""
    numbers = _grain().MapDataset.range(request.rows).seed(0).shuffle().repeat()
    batches = numbers.batch(request.batch_size, drop_remainder=True).map(_source(request).read_rows)
    yield from _count(batches, request)


def over_loader(request: Request) -> Steps:
    """Our loader as a data set of Grain."""
    from vramfit.data import HDF5IterDataset

    batches = HDF5IterDataset(
        request.file,
        request.datasets,
        batch_size=request.batch_size,
        epochs=None,
        memory=request.memory,
        threads=request.threads,
        drop_last=True,
        x64=True,
    )
    yield from _count(batches, request)


def over_array_record(request: Request) -> Steps:
    """Grain over a copy of the rows as ArrayRecord, each parsed to arrays of numpy."""
    records = _grain().sources.ArrayRecordDataSource(request.copy)
    yield from _shuffled_rows(records, request, _parser(request))


def array_record(request: Request) -> Steps:
    """ArrayRecord by itself: lists of random rows, read at once and parsed."""
    import numpy as np

    module: Any = importlib.import_module("array_record.python.array_record_data_source")
    random = np.random.default_rng(0)
    parse = _parser(request)
    with module.ArrayRecordDataSource(request.copy) as records:
        while True:
            rows = random.choice(request.rows, request.batch_size, replace=False, shuffle=False)
            found = [parse(record) for record in records.__getitems__(rows.tolist())]
            batch = [np.stack(columns) for columns in zip(*found, strict=True)]
            yield len(batch[0])


def copy_to_array_record(request: Request) -> str | None:
    """Write the rows as ArrayRecord, as its documentation advises for reading in random order."""
    if request.rows * request.row_bytes > MAX_COPIED_BYTES:
        return "left out: for more than 1 GiB of numbers no copy is made"
    if os.path.exists(request.copy):
        return None
    module: Any = importlib.import_module("array_record.python.array_record_module")
    source = _source(request)
    writer = module.ArrayRecordWriter(request.copy, "group_size:1")
    for first in range(0, request.rows, request.block_rows):
        rows = range(first, min(first + request.block_rows, request.rows))
        columns = source.read_rows(rows).values()
        for values in zip(*columns, strict=True):
            writer.write(b"".join(value.tobytes() for value in values))
    writer.close()
    return None


def _parser(request: Request) -> Callable[[bytes], list[Any]]:
    """Return what makes arrays of a record."""
    import numpy as np

    places, start = [], 0
    for value in _source(request)[0].values():
        places.append((value.shape, value.dtype, start))
        start += value.nbytes
    return lambda record: [np.ndarray(shape, dtype, record, at) for shape, dtype, at in places]


def _source(request: Request) -> Any:
    from vramfit.data import HDF5Source

    return HDF5Source(request.file, request.datasets, cache=request.memory)


def _grain() -> Any:
    return importlib.import_module("grain")


def _shuffled_rows(
    source: Any, request: Request, parse: Callable[[Any], Any] | None = None
) -> Steps:
    rows = _grain().MapDataset.source(source).seed(0).shuffle().repeat()
    if parse is not None:
        rows = rows.map(parse)
    yield from _count(rows.batch(request.batch_size, drop_remainder=True), request)


def _count(batches: Any, request: Request) -> Steps:
    """Hand out batches, read ahead by a thread for each processor."""
    grain = _grain()
    if isinstance(batches, grain.MapDataset):
        # Grain's 16 threads, each at a batch of its own, would only put off the first one here.
        threads = len(os.sched_getaffinity(0))
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        batches = batches.to_iter_dataset(options)
    iterator = iter(batches)
    try:
        for _ in iterator:
            yield request.batch_size
    finally:
        iterator.close()


WAYS = (
    Way("grain_loader", "Grain, HDF5IterDataset", ("grain",), over_loader, mixes=True),
    Way("grain_row_numbers", "Grain, HDF5Source.read_rows", ("grain",), over_row_numbers),
    Way("grain_source", "Grain over HDF5Source", ("grain",), over_source),
    Way("grain", "Grain over h5py", ("grain", "h5py"), over_h5py),
    Way(
        "grain_array_record",
        "Grain over ArrayRecord",
        ("grain", "array_record"),
        over_array_record,
        prepare=copy_to_array_record,
    ),
    Way(
        "array_record",
        "ArrayRecord, lists of random rows",
        ("array_record",),
        array_record,
        prepare=copy_to_array_record,
    ),
)
