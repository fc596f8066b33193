"""Options of a benchmark."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class BenchOptions:
    """The file, and how all backends read it.

    Attributes:
        file: The path.
        datasets: Paths of datasets with the same number of rows.
        rows: Rows of each.
        row_bytes: Bytes of a row of all of them, as in the file.
        band_rows: Rows that are decoded together, if the file is chunked.
        batch_size: Batch size.
        memory: Size of the shuffle buffer in bytes.
        seconds: Minimum duration of a run.
        runs: Number of runs of each backend.
        threads: Threads of vramfit's loader; None for its default.
        scratch: A directory for prepared files; it is removed afterwards.
    """

    file: str
    datasets: list[str]
    rows: int
    row_bytes: int
    band_rows: int | None
    batch_size: int
    memory: int
    seconds: float
    runs: int
    threads: int | None
    scratch: str = ""

    @property
    def copy(self) -> str:
        """The path of a copy of the rows, for backends that do not read HDF5."""
        return os.path.join(self.scratch, "rows.array_record")

    @property
    def buffer_rows(self) -> int:
        """Rows that fit in the shuffle buffer."""
        return min(self.rows, self.memory // self.row_bytes)

    @property
    def block_rows(self) -> int:
        """Rows of a block read: whole chunks, of half a mebibyte or more."""
        default = max(1, (512 << 10) // self.row_bytes)
        band = self.band_rows or 1
        return min(self.rows, -(-default // band) * band)
