"""Cards without a card: the stand-in for NVIDIA's driver, for tests in Python.

`crates/driver-standin` says what a machine is made of.
"""

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build():
    """Build the library and return its path."""
    command = ["cargo", "build", "--quiet", "--package", "driver-standin"]
    done = subprocess.run(
        [*command, "--message-format", "json"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    files = [file for message in messages for file in message.get("filenames", [])]
    return next(file for file in files if file.endswith("libdriver_standin.so"))


class Standin:
    """A copy of the library with a machine of its own.

    Attributes:
        environment: The variables that lead vramfit to it.
    """

    def __init__(self, library, folder, machine):
        self._library = folder / "libdriver.so"
        shutil.copy(library, self._library)
        self.environment = {
            "VRAMFIT_NVML": str(self._library),
            "VRAMFIT_CUDA": str(self._library),
        }
        self.describe(machine)

    def describe(self, machine):
        """Change the machine, also for those who have it open."""
        Path(f"{self._library}.json").write_text(json.dumps(machine))

    def book(self):
        """Return every change of what is held: process, position of the card, bytes."""
        book = Path(f"{self._library}.held")
        lines = book.read_text().splitlines() if book.exists() else []
        return [tuple(map(int, line.split())) for line in lines]


def card(index=0, *, gib=16, **more):
    """Return a card with nobody on it."""
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
