"""How long does a dry run of 32 hosts with 8 GPUs each take, and how much memory?

Beside it the same script on one host of 8, in the same run. Goals: at most 60 seconds and 8 GB on
two quiet cores, at most twice the time of one host. The three hosts that differ are run one after
the other; the memory is that of the largest process.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import print_load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "hosts" / "train_transformer.py"
STEPS = 3


def main():
    """Print times, memory and their ratio."""
    print_load("before")
    measured = {hosts: measure(hosts) for hosts in (1, 32)}
    for hosts, (seconds, peak, headline) in measured.items():
        name = f"{hosts} x 8 GPUs"
        print(f"{name:<12} {seconds:6.1f} s  {peak / 1e9:.2f} GB  {headline}")
    print(f"{'ratio':<12} {measured[32][0] / measured[1][0]:6.2f}")


def measure(hosts):
    """Return the seconds, the bytes of the largest process and the headline of a dry run."""
    command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", "h100-80gx8"]
    command += ["--hosts", str(hosts), "--steps", str(STEPS), "--", sys.executable, str(SCRIPT)]
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read().decode(errors="replace")
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(text)
    headline = re.search(r"^fits: .*$", text, re.MULTILINE)
    return seconds, usage.ru_maxrss * 1024, headline[0]


if __name__ == "__main__":
    main()
