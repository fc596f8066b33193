"""Dry runs of programs on several hosts."""

import dataclasses
import json
import sys
from pathlib import Path

from commands import run_command

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "hosts"


@dataclasses.dataclass(frozen=True)
class HostsRun:
    """What a dry run of several hosts left behind."""

    code: int
    out: str
    err: str
    summary: dict

    def host(self, number):
        """Return what the summary says of a host that was run."""
        return next(run for run in self.summary["hosts"]["runs"] if run["host"] == number)

    def printed(self):
        """Return what the first host printed, as JSON."""
        return json.loads(self.out.splitlines()[-1])


def run_hosts(folder, program, *options, hosts=2, gpu="h100-80gx2", arguments=(), **variables):
    """Run a program, or an example, as one of several hosts."""
    if isinstance(program, str):
        path = folder / "program.py"
        path.write_text(program)
    else:
        path = program
    summary_file = folder / "summary.json"
    command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", gpu, "--hosts", hosts, *options]
    command += ["--full", "--force", "--json", summary_file, "--", sys.executable, path, *arguments]
    summary_file.unlink(missing_ok=True)
    done = run_command(*command, env=variables)
    found = json.loads(summary_file.read_text()) if summary_file.exists() else None
    return HostsRun(done.returncode, done.stdout, done.stderr, found)
