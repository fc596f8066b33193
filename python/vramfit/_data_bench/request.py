"""What is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The file, and how it is read by all ways alike.

    Attributes:
        file: The path.
        datasets: Paths of datasets with equally many rows.
        rows: Rows of each.
        row_bytes: Bytes of a row of all of them, as the file has it.
        band_rows: Rows that are decoded together, where the file is in chunks.
        batch_size: Rows of a batch.
        memory: Bytes that may be used to mix rows.
        seconds: How long a run is.
        runs: How often each way is run.
        threads: Threads of our loader; as many as it takes by itself if None.
        scratch: A folder for what has to be prepared; it is removed afterwards.
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
        """Where a copy of the rows is, for those that read no HDF5."""
        return os.path.join(self.scratch, "rows.array_record")

    @property
    def pool_rows(self) -> int:
        """Rows that are in memory at once while they are mixed, at most."""
        return min(self.rows, self.memory // self.row_bytes)

    @property
    def block_rows(self) -> int:
        """Rows that a careful reader takes at once: whole chunks, of half a mebibyte or more."""
        usual = max(1, (512 << 10) // self.row_bytes)
        band = self.band_rows or 1
        return min(self.rows, -(-usual // band) * band)
