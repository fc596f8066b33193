"""Kills `vramfit predict` at random moments, and compares what is resumed with a whole file.

python scripts/verify/kill_predictions.py --kills 20
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

VRAMFIT = [sys.executable, "-m", "vramfit"]
ROWS = 200_000
CONFIG = """
[data]
path = "train.h5"
inputs = "features"
targets = "labels"
normalize = "inputs"
[model]
kind = "mlp"
[training]
epochs = 1
device = "cpu"
directory = "run"
"""


def main() -> int:
    """Kill, resume and compare; return 1 if a file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_files(folder)
        subprocess.run(
            [*VRAMFIT, "train", "train.toml", "--progress", "none"], cwd=folder, check=True
        )
        predict(folder, "whole.h5", None)
        seconds = predict_seconds(folder)
        whole = (folder / "whole.h5").read_bytes()
        killed = resumed = 0
        while killed < options.kills:
            output = folder / "killed.h5"
            while not output.exists():
                limit = chance.uniform(0, 1.1 * seconds)
                is_killed = predict(folder, output.name, limit)
                killed += is_killed
                resumed += is_killed and (folder / ".killed.h5.part").exists()
            if output.read_bytes() != whole:
                print("the file differs from the one that was written at once")
                return 1
            output.unlink()
    print(f"{killed} kills, {resumed} of them with a part to resume: every file is equal")
    return 0


def write_files(folder: Path) -> None:
    """Write training data, data to predict, and a configuration."""
    numbers = np.random.default_rng(0)
    for name, rows in (("train.h5", 2000), ("many.h5", ROWS)):
        with h5py.File(folder / name, "w") as file:
            file["features"] = numbers.normal(size=(rows, 6))
            file["labels"] = numbers.integers(0, 3, rows)
            file["kept"] = numbers.normal(size=(rows, 100))
    (folder / "train.toml").write_text(CONFIG)


def predict_seconds(folder: Path) -> float:
    """Return how long a file is being written."""
    running = start(folder, "measured.h5")
    wait_for_file(folder / ".measured.h5.part", running)
    started = time.monotonic()
    running.wait()
    return time.monotonic() - started


def predict(folder: Path, output: str, limit: float | None) -> bool:
    """Predict; return whether it was killed so many seconds after it had begun to write."""
    running = start(folder, output)
    wait_for_file(folder / f".{output}.part", running)
    try:
        running.wait(limit)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        running.wait()
        # The process with the model ends with the command.
        while subprocess.run(["pgrep", "-f", "vramfit.train.cli"], capture_output=True).stdout:
            time.sleep(0.01)
        return True
    if running.returncode != 0:
        raise SystemExit(f"`vramfit predict` ended with exit code {running.returncode}")
    return False


def start(folder: Path, output: str) -> subprocess.Popen[bytes]:
    """Start to predict."""
    command = [*VRAMFIT, "predict", "run", "many.h5", output, "--keep", "kept"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def wait_for_file(path: Path, running: subprocess.Popen[bytes]) -> None:
    """Wait until a file exists, or a process has ended."""
    while running.poll() is None and not path.exists():
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main())
