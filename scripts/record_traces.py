"""Record `fixtures/traces/`: dry runs of an example, from a place that is the same on any machine.

A trace holds the lines of the program and its command, so the example runs from `/tmp/demo`, by a
Python that is found there, too.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path("/tmp/demo")
SCRIPT = "train_gpt.py"
# One card that is too small, one that is not.
CARDS = ("t4", "h100-80g")


def main():
    """Run the example on each card."""
    python = PLACE / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / SCRIPT, PLACE)
    # The environment that runs this script, under another name.
    python.symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", PLACE / "env")
    (PLACE / "env" / "lib").symlink_to(Path(sys.prefix) / "lib")
    for card in CARDS:
        trace = ROOT / "fixtures" / "traces" / f"train_gpt-{card}.trace"
        trace.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", card, "--steps", "3"]
        command += ["--trace", str(trace), "--force", "--", str(python), str(PLACE / SCRIPT)]
        code = subprocess.run(command, check=False).returncode
        if code not in (0, 1):
            raise SystemExit(f"{card}: exit code {code}")
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
