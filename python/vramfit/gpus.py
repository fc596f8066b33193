"""The catalog of GPUs, with the memory that drivers really report.

The same catalog as ``vramfit gpus``; the figures live in Rust.

Example:
    >>> import vramfit.gpus
    >>> vramfit.gpus.find("h100").total_memory_bytes
    84929347584
"""

from __future__ import annotations

from vramfit._native import Gpu, all_gpus, find_gpu

__all__ = ["Gpu", "all", "find"]


def all() -> list[Gpu]:
    """Return every GPU of the catalog, in its order."""
    return all_gpus()


def find(name: str) -> Gpu:
    """Return the GPU of that name.

    Args:
        name: A name or alias from the catalog, the GPU's name in the driver, or the path of a
            ``.toml`` file that describes one.

    Raises:
        UnknownGpuError: If there is no such GPU; the hint has similar names.
        IoError: If the file cannot be read.
        InvalidFileError: If the file does not describe a GPU.
    """
    return find_gpu(name)
