"""What `vramfit top` takes of one core, with 8 GPUs and 50 processes, looking once a second.

The driver is the tests' fake one, so NVML's own cost is not in it; the load is printed. First:
`cargo build --release -p vramfit -p fake-driver`.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from measuring import print_load

TARGET = Path(__file__).resolve().parents[2] / "target" / "release"
SECONDS = 20
GIB = 1 << 30


def host():
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    pids = (pids * 50)[:50]
    gpus = []
    for index in range(8):
        held = [{"pid": pid, "used_bytes": GIB, "kind": "compute"} for pid in pids[index::8]]
        memory = {"total_bytes": 80 * GIB, "used_bytes": 9 * GIB, "free_bytes": 71 * GIB}
        gpus.append(
            {
                "index": index,
                "uuid": f"GPU-{index:08}-0000-0000-0000-000000000000",
                "name": "NVIDIA H100 80GB HBM3",
                "memory": memory,
                "utilization_percent": 90,
                "temperature_c": 60,
                "processes": held,
            }
        )
    return {"driver": "580.82.07", "gpus": gpus}


def main():
    fake_driver = next(TARGET.glob("**/libfake_driver.so"), None)
    if fake_driver is None or not (TARGET / "vramfit").exists():
        raise SystemExit("build first: cargo build --release -p vramfit -p fake-driver")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libdriver.so"
        shutil.copy(fake_driver, library)
        library.with_suffix(".so.json").write_text(json.dumps(host()))
        environment = os.environ | {"VRAMFIT_NVML": str(library)}
        command = [TARGET / "vramfit", "top", "--json", "-"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        time.sleep(2)
        before, began = used(process.pid), time.monotonic()
        time.sleep(SECONDS)
        share = (used(process.pid) - before) / (time.monotonic() - began)
        process.terminate()
        process.wait()
    print_load("after")
    print(f"vramfit top, 8 GPUs, 50 processes, once a second: {share:.2%} of a core")


def used(pid):
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
