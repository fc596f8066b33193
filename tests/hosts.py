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
    answer: dict

    def host(self, number):
        """Return what the answer says of a host that was run."""
        return next(run for run in self.answer["hosts"]["runs"] if run["host"] == number)

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
    answer = folder / "answer.json"
    command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", gpu, "--hosts", hosts, *options]
    command += ["--full", "--force", "--json", answer, "--", sys.executable, path, *arguments]
    answer.unlink(missing_ok=True)
    done = run_command(*command, env=variables)
    found = json.loads(answer.read_text()) if answer.exists() else None
    return HostsRun(done.returncode, done.stdout, done.stderr, found)
