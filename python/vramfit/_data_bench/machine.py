"""The page cache, on which a measurement depends."""

from __future__ import annotations

import errno
import os

PROBES = 64
"""Number of evenly spread offsets of a file to probe."""


def warm(path: str) -> bool:
    """Read a file into the page cache, unless it takes half the memory; return whether it was."""
    size = os.path.getsize(path)
    if size > _available_memory() // 2:
        return False
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return True


def cached_fraction(path: str) -> float | None:
    """Return the fraction of probes in the page cache; None if the system does not tell."""
    size = os.path.getsize(path)
    if size == 0 or not hasattr(os, "RWF_NOWAIT"):
        return None
    cached = 0
    with open(path, "rb", buffering=0) as file:
        for place in range(PROBES):
            at = size * place // PROBES
            try:
                cached += os.preadv(file.fileno(), [bytearray(1)], at, os.RWF_NOWAIT) > 0
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    return None
    return cached / PROBES


def _available_memory() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
