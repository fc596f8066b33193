"""Verifies plans of many programs, each for several budgets: ``python scripts/verify/plans.py``.

- The peak that `vramfit plan` measured is that of a dry run with the plan applied, to the byte; for
  the plan that is recommended, to the end of the program.
- A lower budget never gets a plan with a higher peak, whatever the rows of a search are.
- A plan is as good as the checkpoints that a person would write, in bytes and in time: for at least
  nine of ten programs of `tests/plan/by_hand.py`.

Other programs: those of `tests/plan/programs.py` and `tests/plan/runs.py`, whose numbers are
compared with and without plans in `tests/test_plan.py` and `tests/test_plan_same_runs.py`, and the
examples.
Prints a line for each program; the exit code is 1 if one of the three is violated.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check import PROGRAMS as EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
RUN_PROGRAM = ROOT / "tests" / "plan" / "run_program.py"
BY_HAND = ROOT / "tests" / "plan" / "by_hand.py"
# Budgets for each program.
BUDGETS = 1000
# Times are estimates: what differs by less is equal.
EQUAL_TIMES = 0.01


def listed(script):
    """Yield the name, GPUs and command of each program of a script."""
    names = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in names.stdout.splitlines():
        name, gpus = line.split()
        yield name, f"l4x{gpus}", [sys.executable, script, name]


def commands():
    """Yield the name, GPUs and command of each program that is verified."""
    yield from listed(RUN_PROGRAM)
    for name, sizes in EXAMPLES.items():
        yield name, "l4", [sys.executable, ROOT / "examples" / f"{name}.py", *sizes.split()]


def run(*arguments):
    """Run vramfit, and return the JSON that it prints."""
    command = [sys.executable, "-m", "vramfit", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode == 2 or not done.stdout:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def dryrun_peak(gpus, steps, plan, command):
    """Return the peak of a dry run with a plan, in as many steps as `vramfit plan` measured."""
    options = ["--steps", steps, *plan, "--json", "-"]
    answer = run("dryrun", "--gpu", gpus, *options, "--", *command)
    return max(device["peak_bytes"] for device in answer["devices"])


def recommend(rows, budget):
    """Return the peak of the fastest plan that meets a budget, else the lowest."""
    meeting = [row for row in rows if row["peak_bytes"] <= budget]
    if not meeting:
        return min(row["peak_bytes"] for row in rows)
    cost = min(cost_of(row) for row in meeting)
    return min(row["peak_bytes"] for row in meeting if cost_of(row) == cost)


def cost_of(row):
    """Return what rows are compared by."""
    return row["time"]["model_us"] if row["time"] else row["recomputed_share"]


def verify(name, gpus, command, plans, trials):
    """Verify one program.

    Returns:
        How many plans differ from their dry run and how many there are; how many budgets get a
        higher peak than a larger one and how many there are.
    """
    options = ["--try", "remat,offload,compiler", "--max-trials", trials, "--json", "-"]
    found = run("plan", "--gpu", gpus, *options, "--budget", "1B", "--", *command)
    rows = found["rows"]
    if found["recommended"]["peak_bytes"] != min(row["peak_bytes"] for row in rows):
        raise SystemExit(f"{name}: a budget of one byte does not get the lowest peak")
    spread = [rows[index * len(rows) // plans] for index in range(min(plans, len(rows)))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:

        def measure(index, row):
            # Arrays in reference cycles live until Python's garbage collector runs. When that is
            # depends on what else was imported, so the program as it is runs without a plan.
            if not row["moves"]:
                return dryrun_peak(gpus, row["steps"], (), command)
            file = Path(folder) / f"{index}.toml"
            file.write_text(row["plan"])
            return dryrun_peak(gpus, row["steps"], ("--plan", file), command)

        peaks = list(pool.map(measure, range(len(spread)), spread))
    differing = sum(row["peak_bytes"] != peak for row, peak in zip(spread, peaks, strict=True))
    low = min(row["peak_bytes"] for row in rows)
    high = max(row["peak_bytes"] for row in rows)
    budgets = [low + (high - low) * index // (BUDGETS - 1) for index in range(BUDGETS)]
    recommended = [recommend(rows, budget) for budget in budgets]
    inverted = sum(lower > higher for lower, higher in itertools.pairwise(recommended))
    print(
        f"{name:24} {len(rows):2} rows of {low:,} to {high:,} bytes, {len(spread)} applied: "
        f"{differing} differ, {inverted} of {BUDGETS} budgets inverted",
        flush=True,
    )
    return differing, len(spread), inverted, BUDGETS


def compare_with_hand(name, gpus, command):
    """Compare a plan for the peak that a program has with its checkpoints by hand, and their times.

    Returns:
        Whether the plan needs at most as many bytes, and at most as much time.
    """
    by_hand = run("dryrun", "--gpu", gpus, "--json", "-", "--", *command, "by-hand")
    peak = max(device["peak_bytes"] for device in by_hand["devices"])
    options = ["--try", "remat", "--budget", f"{peak}B", "--json", "-"]
    found = run("plan", "--gpu", gpus, *options, "--", *command)
    plan = found["recommended"]
    times = [one["model_us"] for one in (plan["time"], by_hand["step_time"])]
    is_small, is_fast = plan["peak_bytes"] <= peak, times[0] <= times[1] * (1 + EQUAL_TIMES)
    print(
        f"{name:34} as it is {found['baseline']['peak_bytes']:,}, by hand {peak:,}, planned "
        f"{plan['peak_bytes']:,} bytes; {times[0] / times[1] - 1:+.1%} of the time by hand"
        f"{'' if is_small and is_fast else ': not as good'}",
        flush=True,
    )
    return is_small and is_fast


def main():
    """Verify all programs, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", help="names of programs; all by default")
    parser.add_argument("--plans", type=int, default=5, help="plans to apply for each program (5)")
    parser.add_argument("--max-trials", type=int, default=12, help="dry runs of each search (12)")
    arguments = parser.parse_args()
    total = (0, 0, 0, 0)
    for name, gpus, command in commands():
        if not arguments.programs or name in arguments.programs:
            counts = verify(name, gpus, command, arguments.plans, arguments.max_trials)
            total = tuple(map(sum, zip(total, counts, strict=True)))
    compared = [
        compare_with_hand(*one)
        for one in listed(BY_HAND)
        if not arguments.programs or one[0] in arguments.programs
    ]
    differing, plans, inverted, budgets = total
    print(
        f"{differing} of {plans} plans differ from their dry run; "
        f"{inverted} of {budgets} budgets get a higher peak than a larger one; "
        f"{sum(compared)} of {len(compared)} plans are as good as by hand"
    )
    return int(differing > 0 or inverted > 0 or sum(compared) < 0.9 * len(compared))


if __name__ == "__main__":
    sys.exit(main())
