"""Runs a few lines under `vramfit dryrun`, and keeps all that it says."""

import dataclasses
import json

from commands import run_vramfit


@dataclasses.dataclass(frozen=True)
class Said:
    """What a dry run said; one that was refused has no answer and no page."""

    answer: dict | None
    text: str
    page: str | None
    out: str
    code: int

    def callbacks(self):
        """Return the rows of host callbacks, by the function whose line it is."""
        rows = self.answer["callbacks"]
        return {row["site"].split("(")[1].rstrip(")"): row for row in rows}


def dryrun_of(folder, lines, *options, gpu="h100-80g", arguments=(), **running):
    """Run `lines` on a virtual GPU, with arguments of its own; for the rest see `run_command`."""
    program, answer, page = folder / "program.py", folder / "answer.json", folder / "page.html"
    program.write_text(lines)
    for file in (answer, page):
        file.unlink(missing_ok=True)
    command = ["dryrun", "--full", "--gpu", gpu, *options, "--json", answer, "--report", page]
    done = run_vramfit(*command, "--force", program, *arguments, **running)
    if done.returncode == 2 and not answer.exists():
        return Said(None, done.stderr, None, done.stdout, done.returncode)
    assert answer.exists(), done.stderr[-4000:]
    found = json.loads(answer.read_text())
    return Said(found, done.stderr, page.read_text(), done.stdout, done.returncode)
