"""Reads the statistics files of JAX processes, as `vramfit_model::published` describes them."""

import json
import struct
import time
from pathlib import Path

KEYS = [
    "in_use", "peak", "pool", "peak_pool", "largest_free", "limit", "allocations", "driver",
]  # fmt: skip
STATUSES = {0: "pending", 1: "available", 2: "unsupported", 3: "failed"}


def folder(runtime):
    """Return the directory of the files when `XDG_RUNTIME_DIR` is `runtime`."""
    return Path(runtime) / "vramfit"


def stats_files(runtime):
    """Return the paths of all files."""
    return sorted(folder(runtime).glob("*.stats")) if folder(runtime).exists() else []


def read(path):
    """Return the header of a file and a consistent copy of its live part."""
    while True:
        data = path.read_bytes()
        assert data[:8] == b"VRAMFIT\x01"
        header_bytes, live, words, devices = struct.unpack_from("<4I", data, 8)
        sequence, heartbeat, samples, spent = struct.unpack_from("<4Q", data, live)
        if sequence % 2 == 0 and data[live:] == path.read_bytes()[live:]:
            break
    header = json.loads(data[24 : 24 + header_bytes])
    assert len(data) == live + 8 * (4 + devices * words)
    found = []
    for device in range(devices):
        record = struct.unpack_from(f"<{words}Q", data, live + 8 * (4 + device * words))
        values = {key: record[2 + slot] for slot, key in enumerate(KEYS) if record[1] >> slot & 1}
        found.append({"status": STATUSES[record[0] & 0xFFFFFFFF], **values})
    changing = {"heartbeat": heartbeat, "samples": samples, "spent": spent, "devices": found}
    return header, changing


def await_stats_file(runtime, *, samples=1, seconds=60):
    """Return the path of the first file with so many samples."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path in stats_files(runtime):
            if read(path)[1]["samples"] >= samples:
                return path
        time.sleep(0.01)
    raise AssertionError("nothing was published")
