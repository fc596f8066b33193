"""Backends that read shuffled batches."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from vramfit._data_bench import grain_backends
from vramfit._data_bench.backend import Backend, BatchSizes
from vramfit._data_bench.options import BenchOptions


def vramfit_loader(options: BenchOptions) -> BatchSizes:
    """Use vramfit's loader as a program does."""
    from vramfit.data import Loader

    with Loader(
        options.file,
        options.datasets,
        batch_size=options.batch_size,
        memory=options.memory,
        threads=options.threads,
        drop_last=True,
        # The others read types as in the file.
        x64=True,
    ) as loader:
        while True:
            for batch in loader:
                yield len(next(iter(batch.values())))


def fancy_indexing(options: BenchOptions) -> BatchSizes:
    """The obvious way: random rows by a list of indices, sorted as h5py requires."""
    import numpy as np

    random = np.random.default_rng(0)
    with _import_h5py().File(options.file) as file:
        datasets = [file[path] for path in options.datasets]
        while True:
            rows = _random_rows(random, options)
            batch = [dataset[rows] for dataset in datasets]
            yield len(batch[0])


def block_reads(options: BenchOptions) -> BatchSizes:
    """A careful way: blocks of whole chunks in random order, shuffled in memory."""
    with _import_h5py().File(options.file) as file:
        datasets = [file[path] for path in options.datasets]
        yield from _shuffled_blocks(options, datasets, lambda dataset, rows: dataset[rows])


def torch(options: BenchOptions) -> BatchSizes:
    """PyTorch's DataLoader over h5py, with lists of sorted indices, in the same process."""
    import numpy as np

    data: Any = importlib.import_module("torch.utils.data")
    with _import_h5py().File(options.file) as file:
        datasets = [file[path] for path in options.datasets]

        class Rows(data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return options.rows

            def __getitem__(self, rows: list[int]) -> list[Any]:
                chosen = np.sort(np.asarray(rows))
                return [dataset[chosen] for dataset in datasets]

        rows = Rows()
        sampler = data.BatchSampler(
            data.RandomSampler(rows), batch_size=options.batch_size, drop_last=True
        )
        loader = data.DataLoader(rows, sampler=sampler, batch_size=None)
        while True:
            for batch in loader:
                yield len(batch[0])


def hidefix(options: BenchOptions) -> BatchSizes:
    """hidefix, which reads ranges of rows: blocks in random order, shuffled in memory."""
    import numpy as np

    module: Any = importlib.import_module("hidefix")
    index = module.Index(options.file)
    datasets = [index.dataset(path.lstrip("/")) for path in options.datasets]
    yield from _shuffled_blocks(
        options, datasets, lambda dataset, rows: np.asarray(dataset[(rows,)])
    )


BACKENDS = (
    Backend("vramfit", "vramfit.data.Loader", ("vramfit",), vramfit_loader, mixes=True),
    Backend("h5py_blocks", "h5py, blocks shuffled in memory", ("h5py",), block_reads, mixes=True),
    Backend("h5py_rows", "h5py, lists of random rows", ("h5py",), fancy_indexing),
    Backend("torch", "PyTorch DataLoader over h5py", ("torch", "h5py"), torch),
    *grain_backends.BACKENDS,
    Backend("hidefix", "hidefix, blocks shuffled in memory", ("hidefix",), hidefix, mixes=True),
)


def _import_h5py() -> Any:
    """Return h5py with all installed filters."""
    h5py = importlib.import_module("h5py")
    if importlib.util.find_spec("hdf5plugin") is not None:
        importlib.import_module("hdf5plugin")
    return h5py


def _random_rows(random: Any, options: BenchOptions) -> Any:
    import numpy as np

    chosen = random.choice(options.rows, options.batch_size, replace=False, shuffle=False)
    return np.sort(chosen)


def _shuffled_blocks(
    options: BenchOptions, datasets: list[Any], read: Callable[[Any, slice], Any]
) -> BatchSizes:
    """Hand out batches of blocks that are read in random order and shuffled in memory."""
    import numpy as np

    random = np.random.default_rng(0)
    size = options.block_rows
    # While a buffer is filled, the previous one and copies of its rows are still alive.
    held = max(1, options.memory // 3 // (size * options.row_bytes))
    while True:
        order = random.permutation(-(-options.rows // size)).tolist()
        for first in range(0, len(order), held):
            blocks = [
                slice(at * size, min((at + 1) * size, options.rows))
                for at in order[first : first + held]
            ]
            buffers = [
                np.concatenate([read(dataset, block) for block in blocks]) for dataset in datasets
            ]
            rows = random.permutation(len(buffers[0]))
            for start in range(0, len(rows) - options.batch_size + 1, options.batch_size):
                mixed = rows[start : start + options.batch_size]
                batch = [buffer[mixed] for buffer in buffers]
                yield len(batch[0])
