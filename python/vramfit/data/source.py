"""Rows of an HDF5 file by their numbers: a random-access source for Grain."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramfit._native import RowReader
from vramfit.data.arguments import describe_types, find_dtype, name_columns
from vramfit.data.checks import check_booleans, list_paths
from vramfit.data.samples import Rows, Samples, plan_columns

if TYPE_CHECKING:
    import numpy as np

    Row = dict[str, np.ndarray[Any, Any]]


class HDF5Source:
    """Rows of an HDF5 file, for ``grain.MapDataset.source`` and ``grain.DataLoader``.

    It implements Grain's ``RandomAccessDataSource`` without requiring Grain. A row is a
    dictionary of NumPy arrays, which belong to the caller. Threads may share a source. When it is
    unpickled in another process, it opens the file there.

    Uncompressed rows are read directly. Decoded chunks are kept in a cache, because the next row
    may be in the same chunk. Every process has its own cache.

    Args:
        path: The file, or several, as for :class:`vramfit.data.Loader`.
        datasets: Paths of datasets with the same number of rows, or a dictionary from column names
            to paths, as for :class:`vramfit.data.Loader`.
        samples: What a sample is, as for :class:`vramfit.data.Loader`.
        shift: Columns that are others some rows later, as for :class:`vramfit.data.Loader`.
        dtype: The type to convert all floats to, or a dictionary from columns to types. By default
            types are those of the file.
        cache: Memory for decoded chunks, such as ``"256MiB"``.
        allow_unclosed: Whether to read files whose writer did not close them, as for
            :class:`vramfit.data.Loader`.

    Raises:
        InvalidArgumentError: An argument is invalid; the hint says what to change.
        IoError: The file cannot be read.
        InvalidFileError: The file is damaged, or not HDF5.
        UnsupportedFeatureError: A dataset uses a storage feature that is not supported.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        datasets: str | Sequence[str] | Mapping[str, str],
        *,
        samples: Samples | None = None,
        shift: Mapping[str, tuple[str, int] | int] | None = None,
        dtype: Any = None,
        cache: str | int = "256MiB",
        allow_unclosed: bool = False,
    ) -> None:
        check_booleans(allow_unclosed=allow_unclosed)
        names = name_columns(datasets)
        samples = Rows() if samples is None else samples
        columns = plan_columns(names, samples, shift)
        kinds, floats = describe_types(dtype, [column.name for column in columns])
        # Another process may have another working directory.
        self._paths = [
            one if "://" in one and not os.path.exists(one) else os.path.abspath(one)
            for one in map(os.fspath, list_paths(path))
        ]
        self._arguments = {
            "datasets": names,
            "samples": samples,
            "shift": shift,
            "dtype": dtype,
            "cache": cache,
            "allow_unclosed": allow_unclosed,
        }
        self._reader = RowReader(
            self._paths,
            [column.to_native(kinds.get(column.name)) for column in columns],
            samples._to_json(),
            trim=bool(samples.trim),
            cache=str(cache),
            floats=floats,
            allow_unclosed=allow_unclosed,
        )
        for text in self._reader.unclosed_files:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self._length = self._reader.rows
        self._columns = [
            (column.name, find_dtype(kind), tuple(shape))
            for column, (_, kind, shape) in zip(columns, self._reader.columns, strict=True)
        ]

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._length

    def __getitem__(self, index: int) -> Row:
        """Read a row.

        Raises:
            IndexError: The row is out of range.
            FileChangedError: The file has changed since it was opened.
        """
        return self._read_columns([index], ())

    def read_rows(self, rows: Sequence[int]) -> Row:
        """Read several rows at once, in the order of `rows`: a dictionary with an array of each.

        Raises:
            IndexError: A row is out of range.
            FileChangedError: The file has changed since it was opened.
        """
        return self._read_columns(rows, (len(rows),))

    def _read_columns(self, rows: Sequence[int], leading: tuple[int, ...]) -> Row:
        """Read rows into arrays of the shape of a row with the axes `leading` before it."""
        import numpy as np

        parts = self._reader.read([self._as_row(row) for row in rows])
        return {
            name: np.ndarray((*leading, *shape), dtype, part)
            for (name, dtype, shape), part in zip(self._columns, parts, strict=True)
        }

    def _getitems(self, indices: Sequence[int]) -> list[Row]:
        """Read several rows at once; Grain calls this to read in batches."""
        arrays = self.read_rows(indices)
        # The ellipsis keeps a single number an array.
        return [
            {name: array[position, ...] for name, array in arrays.items()}
            for position in range(len(indices))
        ]

    def _as_row(self, index: int) -> int:
        row = operator.index(index)
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} is out of range for {self._length} rows")
        return row

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._paths, **self._arguments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        # Grain compares it with that of a checkpoint, so it is the same in every process.
        columns = ", ".join(f"{name}: {dtype}{shape}" for name, dtype, shape in self._columns)
        path = ", ".join(self._paths)
        return f"<vramfit.data.HDF5Source {path} of {self._length} rows: {columns}>"
