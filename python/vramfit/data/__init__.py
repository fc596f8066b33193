"""HDF5 to JAX in bounded memory.

Importing this loads neither numpy nor JAX nor Grain; a loader loads numpy when the first batch is
made, and JAX only for what has to do with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramfit.data.loader import Loader
from vramfit.data.mixture import Mixture
from vramfit.data.samples import Groups, Ragged, Rows, Windows
from vramfit.data.selection import KFold
from vramfit.data.source import HDF5Source
from vramfit.data.statistics import ColumnStatistics, compute_statistics
from vramfit.data.stats import Stats

if TYPE_CHECKING:
    from vramfit.data.grain import HDF5IterDataset

__all__ = [
    "ColumnStatistics",
    "Groups",
    "HDF5IterDataset",
    "HDF5Source",
    "KFold",
    "Loader",
    "Mixture",
    "Ragged",
    "Rows",
    "Stats",
    "Windows",
    "compute_statistics",
]


def __getattr__(name: str) -> Any:
    # It is a class of Grain's kind, and Grain takes a second to import.
    if name == "HDF5IterDataset":
        from vramfit.data.grain import HDF5IterDataset

        return HDF5IterDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
