"""HDF5 to JAX in bounded memory.

Importing this loads neither numpy nor JAX; a loader loads numpy when the first batch is made, and
JAX only for what has to do with it.
"""

from __future__ import annotations

from vramfit.data.loader import Loader, Stats

__all__ = ["Loader", "Stats"]
