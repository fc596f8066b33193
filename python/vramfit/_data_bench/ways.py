"""The ways to read shuffled batches."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from vramfit._data_bench import grain_ways
from vramfit._data_bench.request import Request
from vramfit._data_bench.way import Steps, Way


def ours(request: Request) -> Steps:
    """Our loader, as a program uses it."""
    from vramfit.data import Loader

    with Loader(
        request.file,
        request.datasets,
        batch_size=request.batch_size,
        memory=request.memory,
        threads=request.threads,
        drop_last=True,
        # Everybody else reads numbers as the file has them.
        x64=True,
    ) as loader:
        while True:
            for batch in loader:
                yield len(next(iter(batch.values())))


def fancy(request: Request) -> Steps:
    """What is written first: random rows by a list of indices, sorted as h5py wants them."""
    import numpy as np

    random = np.random.default_rng(0)
    with _h5py().File(request.file) as file:
        datasets = [file[path] for path in request.datasets]
        while True:
            rows = _random_rows(random, request)
            batch = [dataset[rows] for dataset in datasets]
            yield len(batch[0])


def blocks(request: Request) -> Steps:
    """What a careful person writes: blocks of whole chunks in random order, mixed in memory."""
    with _h5py().File(request.file) as file:
        datasets = [file[path] for path in request.datasets]
        yield from _mixed(request, datasets, lambda dataset, rows: dataset[rows])


def torch(request: Request) -> Steps:
    """PyTorch's DataLoader over h5py, with lists of sorted indices, in the process itself."""
    import numpy as np

    data: Any = importlib.import_module("torch.utils.data")
    with _h5py().File(request.file) as file:
        datasets = [file[path] for path in request.datasets]

        class Rows(data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return request.rows

            def __getitem__(self, rows: list[int]) -> list[Any]:
                chosen = np.sort(np.asarray(rows))
                return [dataset[chosen] for dataset in datasets]

        rows = Rows()
        sampler = data.BatchSampler(
            data.RandomSampler(rows), batch_size=request.batch_size, drop_last=True
        )
        loader = data.DataLoader(rows, sampler=sampler, batch_size=None)
        while True:
            for batch in loader:
                yield len(batch[0])


def hidefix(request: Request) -> Steps:
    """hidefix, which reads stretches of rows: blocks in random order, mixed in memory."""
    import numpy as np

    module: Any = importlib.import_module("hidefix")
    index = module.Index(request.file)
    datasets = [index.dataset(path.lstrip("/")) for path in request.datasets]
    yield from _mixed(request, datasets, lambda dataset, rows: np.asarray(dataset[(rows,)]))


WAYS = (
    Way("vramfit", "vramfit.data.Loader", ("vramfit",), ours, mixes=True),
    Way("h5py_blocks", "h5py, blocks mixed in memory", ("h5py",), blocks, mixes=True),
    Way("h5py_rows", "h5py, lists of random rows", ("h5py",), fancy),
    Way("torch", "PyTorch DataLoader over h5py", ("torch", "h5py"), torch),
    *grain_ways.WAYS,
    Way("hidefix", "hidefix, blocks mixed in memory", ("hidefix",), hidefix, mixes=True),
)


def _h5py() -> Any:
    """Return h5py with all the filters that are installed."""
    h5py = importlib.import_module("h5py")
    if importlib.util.find_spec("hdf5plugin") is not None:
        importlib.import_module("hdf5plugin")
    return h5py


def _random_rows(random: Any, request: Request) -> Any:
    import numpy as np

    chosen = random.choice(request.rows, request.batch_size, replace=False, shuffle=False)
    return np.sort(chosen)


def _mixed(request: Request, datasets: list[Any], read: Callable[[Any, slice], Any]) -> Steps:
    """Hand out batches of blocks that are read in random order and mixed in memory."""
    import numpy as np

    random = np.random.default_rng(0)
    size = request.block_rows
    # While a pool is filled the one before is still there, and its rows are copied into batches.
    held = max(1, request.memory // 3 // (size * request.row_bytes))
    while True:
        order = random.permutation(-(-request.rows // size)).tolist()
        for first in range(0, len(order), held):
            blocks = [
                slice(at * size, min((at + 1) * size, request.rows))
                for at in order[first : first + held]
            ]
            pools = [
                np.concatenate([read(dataset, block) for block in blocks]) for dataset in datasets
            ]
            rows = random.permutation(len(pools[0]))
            for start in range(0, len(rows) - request.batch_size + 1, request.batch_size):
                mixed = rows[start : start + request.batch_size]
                batch = [pool[mixed] for pool in pools]
                yield len(batch[0])
