"""Datasets that are arguments of a loader, such as weights: they are read as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramfit._native import RowReader
from vramfit.data.checks import check_path
from vramfit.data.samples import Rows, plan_columns
from vramfit.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a loader, and how it reads them.

    Attributes:
        paths: The files, directories and patterns.
        memory: Memory for decoded chunks.
        unpack: Whether values packed by the conventions of netCDF are unpacked.
        allow_unclosed: Whether files that were not closed are read.
    """

    paths: Sequence[str]
    memory: str
    unpack: bool = False
    allow_unclosed: bool = False


class DatasetArgument:
    """A dataset that an argument names, in all groups and files one after the other.

    Args:
        name: The name of the argument.
        path: The path of the dataset.
        files: The files of the loader.
        kind: The type to convert its numbers to, if any.
        is_text: Whether its elements are text.

    Raises:
        InvalidArgumentError: There is no such dataset.
    """

    def __init__(
        self,
        name: str,
        path: str,
        files: DatasetFiles,
        *,
        kind: str | None = None,
        is_text: bool = False,
    ) -> None:
        check_path(name, path)
        self._name = name
        self._path = path
        (column,) = plan_columns({name: path}, Rows(), None)
        # Not a loader: that would need a budget of its own, and all numbers are in memory.
        try:
            self._reader = RowReader(
                files.paths,
                [column.to_native(kind, is_bytes=is_text)],
                Rows()._to_json(),
                trim=False,
                cache=files.memory,
                floats=None,
                # Numbers of rows, and masks, are what they are.
                unpack=files.unpack and kind is not None,
                allow_unclosed=files.allow_unclosed,
            )
        except (InvalidArgumentError, UnsupportedFeatureError) as error:
            if "decode" not in (error.hint or ""):
                raise
            what = "text" if is_text else "numbers"
            raise InvalidArgumentError(
                error.message, hint=f"`{name}` needs a dataset of {what}"
            ) from None

    def read_numbers(self) -> Array:
        """Return the numbers of a dataset of shape (n,), (n, 1) or, in one file, (1, n)."""
        import numpy as np

        ((_, kind, shape),) = self._reader.columns
        # MATLAB has no arrays of one axis.
        is_vector = math.prod(shape) == 1 or (
            self._reader.rows == 1 and math.prod(shape) == max(shape)
        )
        if not is_vector:
            raise InvalidArgumentError(
                f"`{self._name}` is the dataset `{self._path}`, with rows of shape {tuple(shape)}",
                hint="use a dataset with one number in each row",
            )
        return np.concatenate([np.frombuffer(part, kind) for part in self._read_in_parts()])

    def read_texts(self) -> list[bytes]:
        """Return the texts of a dataset, without padding."""
        ((_, _, shape),) = self._reader.columns
        texts: list[bytes] = []
        for part in self._read_in_parts():
            if isinstance(part, list):
                texts += part
            else:
                size = shape[-1]
                pieces = (bytes(part[at : at + size]) for at in range(0, len(part), size))
                texts += (piece.partition(b"\0")[0] for piece in pieces)
        return texts

    def check_is_one(self, what: str) -> None:
        """Check that it is one dataset of one file.

        Args:
            what: What its elements are.
        """
        if self._reader.segments > 1:
            raise InvalidArgumentError(
                f"`{self._name}` is `{self._path}`, of which there are {self._reader.segments} in "
                f"the files, and {what} of each are about its own",
                hint="read them with h5py, and pass a list that is about all files",
            )

    def _read_in_parts(self) -> Iterator[Any]:
        for start in range(0, self._reader.rows, _ROWS_AT_A_TIME):
            end = min(start + _ROWS_AT_A_TIME, self._reader.rows)
            yield self._reader.read(range(start, end))[0]
