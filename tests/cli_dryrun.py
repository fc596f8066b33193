"""Runs a few lines under `vramfit dryrun`, and keeps all that it says."""

import dataclasses
import json
import subprocess
import sys

from conftest import clean_environment


@dataclasses.dataclass(frozen=True)
class Said:
    """What a dry run said."""

    answer: dict
    text: str
    page: str
    out: str
    code: int

    def callbacks(self):
        """Return the rows of host callbacks, by the function whose line it is."""
        rows = self.answer["callbacks"]
        return {row["site"].split("(")[1].rstrip(")"): row for row in rows}


def dryrun_of(folder, lines, *options, gpu="h100-80g", env=None):
    """Run `lines` on a virtual GPU."""
    program, answer, page = folder / "program.py", folder / "answer.json", folder / "page.html"
    program.write_text(lines)
    command = [sys.executable, "-m", "vramfit", "dryrun", "--full", "--gpu", gpu, *options]
    command += ["--json", answer, "--report", page, "--force", program]
    done = subprocess.run(
        [str(word) for word in command],
        env=clean_environment(**(env or {})),
        capture_output=True,
        check=False,
        text=True,
    )
    assert answer.exists(), done.stderr[-4000:]
    return Said(
        json.loads(answer.read_text()),
        done.stderr,
        page.read_text(),
        done.stdout,
        done.returncode,
    )
