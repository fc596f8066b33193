"""A fake NVIDIA driver for tests in Python.

See `crates/fake-driver` for the fields of a host.
"""

import json
import shutil
from pathlib import Path

from commands import build


def build_library():
    """Build the library and return its path."""
    return build("fake-driver") / "libfake_driver.so"


class FakeDriver:
    """A copy of the library with its own host.

    Attributes:
        environment: The variables that lead vramfit to it.
    """

    def __init__(self, library, folder, host):
        self._library = folder / "libdriver.so"
        shutil.copy(library, self._library)
        self.environment = {
            "VRAMFIT_NVML": str(self._library),
            "VRAMFIT_CUDA": str(self._library),
        }
        self.describe(host)

    def describe(self, host):
        """Change the host, also for processes that have it open."""
        Path(f"{self._library}.json").write_text(json.dumps(host))

    def allocations(self):
        """Return every change of allocated memory: process, index of the GPU, bytes."""
        file = Path(f"{self._library}.allocations")
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(map(int, line.split())) for line in lines]


def gpu(index=0, *, gib=16, **more):
    """Return an idle GPU."""
    total = gib << 30
    memory = {"total_bytes": total, "reserved_bytes": 0, "used_bytes": 0, "free_bytes": total}
    return {
        "index": index,
        "uuid": f"GPU-{index:08}-1111-2222-3333-444444444444",
        "name": "Tesla T4",
        "compute_capability": [7, 5],
        "memory": memory,
        **more,
    }
