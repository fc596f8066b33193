"""Verifies plans of twenty programs, each for several budgets: ``python scripts/verify_plans.py``.

- The peak that `vramfit plan` measured is that of a dry run with the plan applied, to the byte.
- A lower budget never gets a plan with a higher peak.

Programs: those of `tests/plan/programs.py`, whose numbers are compared with and without plans in
`tests/test_plan.py`, and the examples. Prints a line for each program; the exit code is 1 if one of
the two is violated.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_PROGRAM = ROOT / "tests" / "plan" / "run_program.py"
GPT = [
    "--layers",
    "3",
    "--width",
    "64",
    "--heads",
    "4",
    "--vocab",
    "256",
    "--sequence",
    "128",
    "--batch",
    "8",
]
EXAMPLES = {
    "train_gpt": GPT,
    "train_vit": [],
    "train_resnet": [],
    "train_rnn": [],
    "train_moe": [],
}


def commands():
    """Yield the name, GPUs and command of each program."""
    listed = subprocess.run(
        [sys.executable, RUN_PROGRAM],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split():
        gpus = "l4x8" if name == "sharded" else "l4"
        yield name, gpus, [sys.executable, RUN_PROGRAM, name]
    for name, arguments in EXAMPLES.items():
        yield name, "l4", [sys.executable, ROOT / "examples" / f"{name}.py", *arguments]


def run(*arguments):
    """Run vramfit, and return the JSON that it prints."""
    command = [sys.executable, "-m", "vramfit", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode == 2 or not done.stdout:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def dryrun_peak(gpus, plan, command):
    """Return the peak of a dry run with a plan, in as many steps as `vramfit plan` measures."""
    options = ["--steps", 3, "--plan", plan, "--json", "-"]
    answer = run("dryrun", "--gpu", gpus, *options, "--", *command)
    return max(device["peak_bytes"] for device in answer["devices"])


def verify(name, gpus, command, budgets, trials):
    """Verify one program.

    Returns:
        How many plans differ from their dry run, how many are inverted, and how many there are.
    """
    options = ["--try", "remat,offload,compiler", "--max-trials", trials, "--json", "-"]
    search = ["plan", "--gpu", gpus, *options]
    found = run(*search, "--budget", 1, "--", *command)
    low = min(row["peak_bytes"] for row in found["rows"])
    high = found["baseline"]["peak_bytes"]
    peaks = []
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for index in range(budgets):
            budget = low + (high - low) * index // max(1, budgets - 1)
            plan = Path(folder) / f"{index}.toml"
            found = run(*search, "--budget", budget, "--out", plan, "--", *command)
            peak = found["recommended"]["peak_bytes"]
            if peak > budget or not found["meets_budget"]:
                raise SystemExit(f"{name}: {peak} bytes for {budget}, which another search met")
            peaks.append(peak)
            differing += dryrun_peak(gpus, plan, command) != peak
    inverted = sum(lower > higher for lower, higher in itertools.pairwise(peaks))
    print(
        f"{name:24} {len(set(peaks))} plans for {budgets} budgets of {low:,} to {high:,} bytes: "
        f"{differing} differ, {inverted} inverted",
        flush=True,
    )
    return differing, inverted, len(peaks)


def main():
    """Verify all programs, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", help="names of programs; all by default")
    parser.add_argument("--budgets", type=int, default=5, help="budgets for each program (5)")
    parser.add_argument("--max-trials", type=int, default=12, help="dry runs of each search (12)")
    arguments = parser.parse_args()
    total = (0, 0, 0)
    for name, gpus, command in commands():
        if not arguments.programs or name in arguments.programs:
            counts = verify(name, gpus, command, arguments.budgets, arguments.max_trials)
            total = tuple(map(sum, zip(total, counts, strict=True)))
    print(f"{total[2]} plans: {total[0]} differ from their dry run, {total[1]} inverted")
    return int(total[0] > 0 or total[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
