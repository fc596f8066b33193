"""Runs programs under `vramfit dryrun`, and keeps what that leaves behind."""

import dataclasses
import json
from pathlib import Path

from commands import run_vramfit


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What `vramfit dryrun` left behind; a run that was refused has no summary and no page."""

    summary: dict | None
    page: str | None
    trace: Path | None
    code: int
    out: str
    err: str

    def programs(self, name):
        """Return the programs called `name`, smallest temporaries first."""
        found = [p for p in self.summary["programs"] if p["name"] == name]
        return sorted(found, key=lambda p: p["temp_bytes"])

    def callbacks(self):
        """Return the rows of host callbacks, by the function whose line it is."""
        rows = self.summary["callbacks"]
        return {row["site"].split("(")[1].rstrip(")"): row for row in rows}


def dryrun_of(folder, program, *options, gpu="h100-80g", arguments=(), trace=None, **running):
    """Run a program, or lines of one, on a virtual GPU; for the rest see `run_command`."""
    if isinstance(program, str):
        lines, program = program, folder / "program.py"
        program.write_text(lines)
    summary_file, page = folder / "summary.json", folder / "page.html"
    for file in (summary_file, page):
        file.unlink(missing_ok=True)
    command = ["dryrun", "--full", "--gpu", gpu, *options, "--json", summary_file, "--html", page]
    command += ["--trace", trace] if trace else []
    done = run_vramfit(*command, "--force", program, *arguments, **running)
    if done.returncode == 2 and not summary_file.exists():
        return DryRun(None, None, trace, done.returncode, done.stdout, done.stderr)
    assert summary_file.exists(), f"no summary, exit code {done.returncode}\n{done.stderr[-4000:]}"
    found = json.loads(summary_file.read_text())
    return DryRun(found, page.read_text(), trace, done.returncode, done.stdout, done.stderr)
