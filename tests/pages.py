"""Reads the pages that JAX processes publish, as `vramfit_core::published` tells."""

import json
import struct
import time
from pathlib import Path

KEYS = [
    "in_use", "peak", "pool", "peak_pool", "largest_free", "limit", "allocations", "driver",
]  # fmt: skip
ANSWERS = {0: "pending", 1: "figures", 2: "no statistics", 3: "failed"}


def folder(runtime):
    """Return where pages lie when `XDG_RUNTIME_DIR` is `runtime`."""
    return Path(runtime) / "vramfit"


def pages(runtime):
    """Return the paths of all pages."""
    return sorted(folder(runtime).glob("*.page")) if folder(runtime).exists() else []


def read(path):
    """Return the header of a page and a consistent copy of what changes in it."""
    while True:
        page = path.read_bytes()
        assert page[:8] == b"VRAMFIT\x01"
        header_bytes, live, words, devices = struct.unpack_from("<4I", page, 8)
        sequence, heartbeat, samples, spent = struct.unpack_from("<4Q", page, live)
        if sequence % 2 == 0 and page[live:] == path.read_bytes()[live:]:
            break
    header = json.loads(page[24 : 24 + header_bytes])
    assert len(page) == live + 8 * (4 + devices * words)
    found = []
    for device in range(devices):
        record = struct.unpack_from(f"<{words}Q", page, live + 8 * (4 + device * words))
        values = {key: record[2 + slot] for slot, key in enumerate(KEYS) if record[1] >> slot & 1}
        found.append({"answer": ANSWERS[record[0] & 0xFFFFFFFF], **values})
    changing = {"heartbeat": heartbeat, "samples": samples, "spent": spent, "devices": found}
    return header, changing


def await_page(runtime, *, samples=1, seconds=60):
    """Return the path of the first page on which so many samples were written."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path in pages(runtime):
            if read(path)[1]["samples"] >= samples:
                return path
        time.sleep(0.01)
    raise AssertionError("nothing was published")
