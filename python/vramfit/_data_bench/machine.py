"""What a measurement depends on beside the code: whether the file is in the page cache."""

from __future__ import annotations

import errno
import os

PLACES = 64
"""So many places of a file are looked at, evenly spread."""


def warm(path: str) -> bool:
    """Read a file once, so that all find it in the page cache; not if it takes half the memory."""
    size = os.path.getsize(path)
    if size > _available_memory() // 2:
        return False
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return True


def cached_share(path: str) -> float | None:
    """Return the share of places that need no disk; None where the system does not say."""
    size = os.path.getsize(path)
    if size == 0 or not hasattr(os, "RWF_NOWAIT"):
        return None
    cached = 0
    with open(path, "rb", buffering=0) as file:
        for place in range(PLACES):
            at = size * place // PLACES
            try:
                cached += os.preadv(file.fileno(), [bytearray(1)], at, os.RWF_NOWAIT) > 0
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    return None
    return cached / PLACES


def _available_memory() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
