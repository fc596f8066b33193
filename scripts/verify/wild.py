"""Runs programs that use other people's libraries on the virtual GPU, and compares what it says.

The programs are in `tests/wild/programs`, and what is expected of each is in
`tests/wild/manifest.toml`. They run in one environment of `requirements/wild.txt`, made under
`.cache/wild`; nothing of those libraries is in the repository.

    python scripts/verify/wild.py                  # all programs
    python scripts/verify/wild.py flax_cnn brax    # some, by the beginning of their names
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

from environments import make_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / ".cache" / "wild"
REQUIREMENTS = ROOT / "requirements" / "wild.txt"
PROGRAMS = ROOT / "tests" / "wild" / "programs"
MANIFEST = ROOT / "tests" / "wild" / "manifest.toml"
TIMEOUT_S = 900
# Losses, counters and keys that a program makes after it noted its plan.
SMALL_ARRAYS_BYTES = 64 << 10


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="NAME", help="beginnings of names")
    parser.add_argument("--python", help="run in this environment instead of making one")
    arguments = parser.parse_args()
    manifest = tomllib.loads(MANIFEST.read_text())
    wanted = [
        program
        for program in manifest["program"]
        if not arguments.programs or program["name"].startswith(tuple(arguments.programs))
    ]
    if not wanted:
        parser.error("no program is called so; tests/wild/manifest.toml lists them")
    if arguments.python:
        python = arguments.python
    else:
        command = make_environment(PLACE / "env", REQUIREMENTS, [sys.executable], "the libraries")
        python = command[-1]
    failed = 0
    print(f"{'program':20} {'library':16} {'GPU':10} {'peak':>10} {'fits':5} {'s':>4}  result")
    for program in wanted:
        result = run_program(program, python)
        failed += bool(result["differences"])
        print_row(program, result)
    if not arguments.programs:
        print("\ncannot be run here:")
        for entry in manifest["cannot"]:
            print(f"  {entry['project']}: {entry['reason']}")
    if failed:
        sys.exit(f"wild: {failed} of {len(wanted)} programs differ from what is expected")


def run_program(program, python):
    """Run one program under a dry run; return its summary and how that differs."""
    with tempfile.TemporaryDirectory() as scratch:
        summary_file, plan_file = pathlib.Path(scratch, "summary"), pathlib.Path(scratch, "plan")
        environment = {**os.environ, "WILD_PLAN": str(plan_file)}
        environment.pop("PYTHONPATH", None)
        line = ["vramfit", "dryrun", "--gpu", program["gpu"], "--json", str(summary_file)]
        line += ["--", python, f"{program['name']}.py"]
        begun = time.monotonic()
        try:
            done = subprocess.run(
                line,
                cwd=PROGRAMS,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return {"differences": [f"took longer than {TIMEOUT_S} s"]}
        summary = json.loads(summary_file.read_text()) if summary_file.is_file() else None
        plan = json.loads(plan_file.read_text()) if plan_file.is_file() else None
    result = {"seconds": time.monotonic() - begun, "summary": summary}
    if summary is None:
        result["differences"] = [f"no summary: {done.stderr.strip()[-1500:]}"]
    else:
        result["differences"] = list(differences(program, summary, plan, done))
    return result


def differences(program, summary, plan, done):
    """Say how a summary differs from what the manifest and the program's own plan expect."""
    if summary["fits"] != program["fits"]:
        yield f"fits is {summary['fits']}"
    if program["fits"] and done.returncode != 0:
        yield f"exit code {done.returncode}: {done.stderr.strip()[-1500:]}"
    # Without evidence the program that needs most stands in for the step.
    step = None if summary["step_evidence"] == "most_memory" else summary["step"]
    if step != program.get("step"):
        yield f"the step is {step}, not {program.get('step')}"
    owners = {owner["kind"]: owner["bytes"] for owner in summary["owners"]}
    for kind in program.get("owners", []):
        if not owners.get(kind):
            yield f"no {kind} among {owners}"
    for kind in program.get("no_owners", []):
        if owners.get(kind):
            yield f"{owners[kind]} bytes of {kind} that the program does not have"
    for kind, expected in program.get("bytes", {}).items():
        if owners.get(kind) != expected:
            yield f"{kind} has {owners.get(kind)} bytes, not {expected}"
    if sum(owners.values()) != summary["attribution"]["total_bytes"]:
        yield "the owners do not add up"
    if program.get("leaks", 0) != len(summary.get("leaks", [])):
        yield f"leaks: {summary['leaks']}"
    if plan is None:
        if program.get("planned", True):
            yield "the program has not written down what XLA plans"
        return
    # What the allocator adds, rounding and chunks given out whole, is no part of XLA's plan.
    asked_for = summary["peak_bytes"] - owners.get("rounding", 0)
    if asked_for < plan["least_bytes"]:
        yield f"the peak is {asked_for} bytes, and the step alone plans {plan['least_bytes']}"
    most = plan["most_bytes"] + SMALL_ARRAYS_BYTES
    # The peak of some programs is in their initialization.
    if summary["attribution"]["program"] == step and asked_for > most:
        yield f"the peak is {asked_for} bytes in the step, which plans no more than {most}"


def print_row(program, result):
    """Print the line of a program, and under it how it differs."""
    head = f"{program['name']:20} {program['project']:16} {program['gpu']:10}"
    summary = result.get("summary")
    peak = f"{summary['peak_bytes'] / 2**20:.1f} MiB" if summary else ""
    fits = str(summary["fits"]).lower() if summary else ""
    outcome = "differs" if result["differences"] else "as expected"
    seconds = result.get("seconds", TIMEOUT_S)
    print(f"{head} {peak:>10} {fits:5} {seconds:4.0f}  {outcome}", flush=True)
    for difference in result["differences"]:
        print(f"    {difference}", flush=True)


if __name__ == "__main__":
    main()
