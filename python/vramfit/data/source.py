"""Rows of an HDF5 file by their numbers: a random-access source of Grain."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramfit._native import RowReader
from vramfit.data.arguments import describe_types, find_dtype, name_columns

if TYPE_CHECKING:
    import numpy as np

    Row = dict[str, np.ndarray[Any, Any]]


class HDF5Source:
    """Rows of an HDF5 file, for ``grain.MapDataset.source`` and ``grain.DataLoader``.

    It is what Grain calls a ``RandomAccessDataSource``, and needs no Grain itself. A row is a
    dictionary of arrays of numpy that are the caller's to change. Threads may share a source, and
    pickled for another process it opens the file anew there.

    Rows that are stored as they are, are read from where they lie. Where chunks have to be decoded
    they are kept in a cache, because the next row may be in the same chunk. Every process has a
    cache of its own.

    Args:
        path: The file.
        datasets: Paths of datasets whose rows belong together, or a dictionary from the names that
            the rows shall have to paths, as for :class:`vramfit.data.Loader`.
        dtype: The type that all floats become, or a dictionary with one for some datasets. Without
            it numbers stay what they are in the file.
        cache: Memory for decoded chunks, such as ``"256MiB"``.

    Raises:
        InvalidArgumentError: Something cannot be met; the hint says what could.
        IoError: The file cannot be read.
        InvalidFileError: It is damaged, or no HDF5.
        UnsupportedFeatureError: A dataset is stored in a way that is not read here.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        datasets: str | Sequence[str] | Mapping[str, str],
        *,
        dtype: Any = None,
        cache: str | int = "256MiB",
    ) -> None:
        names = name_columns(datasets)
        kinds, floats = describe_types(dtype, names)
        # Another process may have another working directory.
        self._path = os.path.abspath(path)
        self._arguments = {"datasets": names, "dtype": dtype, "cache": cache}
        columns = [(dataset, kinds.get(name)) for name, dataset in names.items()]
        self._reader = RowReader(self._path, columns, cache=str(cache), floats=floats)
        self._length = self._reader.rows
        self._columns = [
            (name, find_dtype(kind), tuple(shape))
            for name, (_, kind, shape) in zip(names, self._reader.columns, strict=True)
        ]

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._length

    def __getitem__(self, index: int) -> Row:
        """Read a row.

        Raises:
            IndexError: There is no row of that number; they are counted from 0.
            FileChangedError: The file is not the one that was opened.
        """
        return self._read([index], ())

    def read_rows(self, rows: Sequence[int]) -> Row:
        """Read several rows at once, in the order of `rows`: a dictionary with an array of each.

        Raises:
            IndexError: There is no row of one of the numbers; they are counted from 0.
            FileChangedError: The file is not the one that was opened.
        """
        return self._read(rows, (len(rows),))

    def _read(self, rows: Sequence[int], leading: tuple[int, ...]) -> Row:
        """Read rows into arrays of the shape of a row with the axes `leading` before it."""
        import numpy as np

        parts = self._reader.read([self._as_row(row) for row in rows])
        return {
            name: np.ndarray((*leading, *shape), dtype, part)
            for (name, dtype, shape), part in zip(self._columns, parts, strict=True)
        }

    def _getitems(self, indices: Sequence[int]) -> list[Row]:
        """Read several rows at once: what Grain calls where it reads in batches."""
        arrays = self.read_rows(indices)
        # The ellipsis keeps a single number an array.
        return [
            {name: array[place, ...] for name, array in arrays.items()}
            for place in range(len(indices))
        ]

    def _as_row(self, index: int) -> int:
        row = operator.index(index)
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}, counted from 0")
        return row

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._path, **self._arguments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        # Grain compares it with that of a checkpoint, so it is the same in every process.
        columns = ", ".join(f"{name}: {dtype}{shape}" for name, dtype, shape in self._columns)
        return f"<vramfit.data.HDF5Source {self._path} of {self._length} rows: {columns}>"
