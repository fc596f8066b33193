"""How fast is a log of 100 MB read, and in how much memory?

Beside it `grep -c` reads the same file for one text. Two logs: what a training prints before it
runs out of memory, and dumps of the allocator one after another. Goals: at most one second and
64 MiB. First: `cargo build --release -p vramfit`.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import print_load

ROOT = Path(__file__).resolve().parents[2]
VRAMFIT = ROOT / "target" / "release" / "vramfit"
sys.path.insert(0, str(ROOT / "tests"))

import oom_logs  # noqa: E402

LOG_BYTES = 100_000_000
ROUNDS = 5


def main():
    """Print times and memory."""
    if not VRAMFIT.exists():
        raise SystemExit("build first: cargo build --release -p vramfit")
    print_load("before")
    failure = next(log.text for log in oom_logs.scenarios() if "bfc-dump" in log.name)
    steps = b"".join(
        b"I1125 09:%02d:%02d.123456 4242 train.py:88] step %d loss %.4f  %.1f examples/s\n"
        % (step // 60 % 60, step % 60, step, 9 / (1 + step % 997), 812.5)
        for step in range(100_000)
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, filler in (("steps, then a failure", steps), ("dumps", failure)):
            log = Path(folder) / "train.log"
            count = (LOG_BYTES - len(failure)) // len(filler) + 1
            log.write_bytes((filler * count)[: LOG_BYTES - len(failure)] + failure)
            ours = [
                measure([VRAMFIT, "--quiet", "explain", "--json", "-", log]) for _ in range(ROUNDS)
            ]
            rival = [measure(["grep", "-c", "RESOURCE_EXHAUSTED", log]) for _ in range(ROUNDS)]
            print(f"{name} ({log.stat().st_size / 1e6:.0f} MB)")
            show("vramfit explain", ours)
            show("grep -c", rival)


# A process that is started inherits the peak of the one that starts it, so that one is small. What
# the command prints goes into a pipe: `grep` stops early where it goes into /dev/null.
MEASURE = """
import os, sys, time
began = time.monotonic()
actions = [(os.POSIX_SPAWN_DUP2, 2, 1)]
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
usage = os.wait4(process, 0)[2]
print(time.monotonic() - began, usage.ru_maxrss * 1024)
"""


def measure(command):
    """Return the seconds and the peak bytes of a command."""
    launcher = [sys.executable, "-S", "-E", "-c", MEASURE, *command]
    done = subprocess.run(launcher, check=True, capture_output=True, text=True)
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


def show(name, measured):
    seconds, peaks = zip(*measured, strict=True)
    print(
        f"  {name:<16} {statistics.median(seconds):.2f} s (median of {ROUNDS},"
        f" {min(seconds):.2f} to {max(seconds):.2f}), {max(peaks) / 2**20:.0f} MiB"
    )


if __name__ == "__main__":
    main()
