"""Record `fixtures/traces/`: dry runs of an example, from a place that is the same on any machine.

A trace holds the lines of the program and its command, so the example runs from `/tmp/demo`, by a
Python that is found there, too. `python scripts/record/traces.py NAME...` records some of them.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path("/tmp/demo")
SCRIPT = "train_gpt.py"
SMALL = "--layers 2 --width 128 --heads 4 --vocab 1024 --sequence 128 --no-remat --batch"
# GPU and arguments: a GPU that is too small, one that is not; a small model with two batch sizes.
RUNS = {
    "train_gpt-t4": ("t4", ""),
    "train_gpt-h100-80g": ("h100-80g", ""),
    "small_gpt-batch-8": ("h100-80g", f"{SMALL} 8"),
    "small_gpt-batch-16": ("h100-80g", f"{SMALL} 16"),
}


def main():
    """Run the example in each way that was asked for, or in all."""
    names = sys.argv[1:] or list(RUNS)
    python = PLACE / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / SCRIPT, PLACE)
    # The environment that runs this script, under another name.
    python.symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", PLACE / "env")
    (PLACE / "env" / "lib").symlink_to(Path(sys.prefix) / "lib")
    for name in names:
        gpu, arguments = RUNS[name]
        # Its path is in it, too.
        trace = PLACE / f"{name}.trace"
        command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", gpu, "--steps", "3"]
        command += ["--trace", str(trace), "--force", "--", str(python), str(PLACE / SCRIPT)]
        code = subprocess.run(command + arguments.split(), check=False).returncode
        if code not in (0, 1):
            raise SystemExit(f"{name}: exit code {code}")
        shutil.move(trace, ROOT / "fixtures" / "traces" / trace.name)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
