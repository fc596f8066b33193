"""Verifies `vramfit check`: ``python scripts/verify/check.py [--runs N] [--injections N]``.

- Checks that are repeated never fail: three entries, measured again and again, some of them
  without the cache of compiled programs.
- 1 MiB more is found, wherever it is: a random place of an example is changed so that it keeps
  1 MiB more, and the check must fail and name the line. Half of the changes keep an array from a
  random statement on; the other half add 1 MiB to what a random expression saves for the backward
  pass. A change that leaves all figures as they were adds nothing to what the program needs, such
  as one whose memory is gone before the peak; it is counted apart.

Prints what it found; the exit code is 1 if a check failed without cause, an injection was not
found, or fewer than 95 of 100 lines were named.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "train_gpt": "--layers 3 --width 64 --heads 4 --vocab 256 --sequence 128 --batch 8",
    "train_vit": "--layers 3 --width 64 --heads 4 --image 64 --patch 16 --classes 10 --batch 8",
    "train_resnet": "--stages 1 1 --width 16 --image 64 --classes 10 --batch 8",
    "train_rnn": "--layers 2 --width 64 --length 64 --batch 16",
    "train_moe": "--experts 4 --width 64 --hidden 128 --tokens 512",
}
REPEATED = ("train_resnet", "train_rnn", "train_moe")
UNCACHED_RUNS = 30

HELD = (
    "with jax.ensure_compile_time_eval(): "
    'globals().setdefault("_held", []).append(jnp.zeros(1 << 18, jnp.float32))'
)
SAVED = (
    "(lambda v: v + 0 * jnp.sum(jnp.sin(jax.lax.optimization_barrier("
    "jnp.ravel(v)[0] * jnp.arange(1 << 18, dtype=jnp.float32)))).astype(v.dtype))("
)


def write_project(folder, names):
    """Write the programs and their entries, and accept what they need."""
    entries = ['[check]\ngpus = ["l4"]\n']
    for name in names:
        shutil.copy(ROOT / "examples" / f"{name}.py", folder)
        command = json.dumps([sys.executable, f"{name}.py", *PROGRAMS[name].split()])
        entries.append(f'[[check.entry]]\nname = "{name}"\ncommand = {command}\n')
    (folder / "vramfit.toml").write_text("\n".join(entries))
    done = check(folder, "--update")
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def check(folder, *options):
    """Run the check in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "vramfit", "check", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
    )


def repeat(runs):
    """Return how many of so many repeated checks did not say that nothing has changed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="vramfit-verify-") as temporary:
        folder = Path(temporary)
        write_project(folder, REPEATED)
        start = time.monotonic()
        for run in range(runs):
            options = ["--no-cache"] if run < UNCACHED_RUNS * runs // 1000 else []
            done = check(folder, "--json", "-", *options)
            report = json.loads(done.stdout.splitlines()[-1])
            same = all(row["outcome"] == "unchanged" for row in report["rows"])
            if done.returncode != 0 or not same:
                failed += 1
                print(f"run {run}: {done.stdout}{done.stderr}")
            if (run + 1) % 50 == 0:
                print(f"{run + 1} checks in {time.monotonic() - start:.0f} s", flush=True)
    print(f"{failed} of {runs} repeated checks of {len(REPEATED)} entries failed")
    return failed


def inject(text, rng):
    """Return a program with 1 MiB more at a random place, and the line of the place."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    functions = [node for node in functions if node.name != "arguments"]
    lines = text.splitlines()
    if rng.random() < 0.5:
        statements = [
            statement
            for function in functions
            for statement in ast.walk(function)
            if isinstance(statement, (ast.Assign, ast.Return))
            and lines[statement.lineno - 1].lstrip().startswith(("return", *names(statement)))
        ]
        place = rng.choice(statements)
        indentation = " " * place.col_offset
        lines.insert(place.lineno - 1, indentation + HELD)
        kind = "held"
    else:
        values = [
            node.value
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, (ast.Assign, ast.Return))
            and node.value is not None
            and not isinstance(node.value, (ast.Constant, ast.Tuple, ast.Lambda))
        ]
        place = rng.choice(values)
        end, start = place.end_lineno - 1, place.lineno - 1
        lines[end] = lines[end][: place.end_col_offset] + ")" + lines[end][place.end_col_offset :]
        lines[start] = lines[start][: place.col_offset] + SAVED + lines[start][place.col_offset :]
        kind = "saved"
    text = "\n".join(lines) + "\n"
    if "import jax.numpy as jnp" not in text:
        text = text.replace("import jax\n", "import jax\nimport jax.numpy as jnp\n", 1)
        return text, place.lineno + 1, kind
    return text, place.lineno, kind


def names(statement):
    """Return the names that a statement assigns."""
    targets = getattr(statement, "targets", [])
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def find_injection(project, number):
    """Inject once; return its kind, the outcome, whether the line was named, and a description."""
    rng = random.Random(number)
    name = rng.choice(sorted(PROGRAMS))
    text, line, kind = inject((ROOT / "examples" / f"{name}.py").read_text(), rng)
    with tempfile.TemporaryDirectory(prefix="vramfit-verify-") as temporary:
        folder = Path(temporary)
        for file in project.iterdir():
            shutil.copy(file, folder)
        (folder / f"{name}.py").write_text(text)
        done = check(folder, name, "--json", "-", "--jobs", "1")
    if not done.stdout:
        return kind, "error", False, f"{name}.py:{line}: {done.stderr}"
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    lines = (row["growth"] or {}).get("lines", [])
    named = any(f"{name}.py:{line} " in f"{each['site']} " for each in lines)
    return kind, row["outcome"], named, f"{name}.py:{line} ({kind}): {row['text']} {row['details']}"


def find_injections(wanted):
    """Return how many injections were not found, and how many of those found without their line."""
    counts = {"larger": 0, "named": 0, "unchanged": 0, "failed": 0}
    missed = []
    with (
        tempfile.TemporaryDirectory(prefix="vramfit-verify-") as temporary,
        ThreadPoolExecutor(2) as pool,
    ):
        project = Path(temporary)
        write_project(project, sorted(PROGRAMS))
        number = 0
        while counts["larger"] < wanted and number < 10 * wanted:
            batch = range(number, number + 2)
            number += 2
            for kind, outcome, named, text in pool.map(lambda n: find_injection(project, n), batch):
                if outcome in ("larger", "does_not_fit"):
                    counts["larger"] += 1
                    counts["named"] += named
                    if not named:
                        print(f"line not named: {text}", flush=True)
                elif outcome in ("unchanged", "smaller"):
                    counts["unchanged"] += 1
                    if kind == "held":
                        missed.append(text)
                else:
                    # The value is no array of floating point, or no array at all.
                    counts["failed"] += 1
    print(
        f"{counts['larger']} injections raised a figure and failed the check; the line of "
        f"{counts['named']} was named; {counts['unchanged']} changed no figure; "
        f"{counts['failed']} broke the program"
    )
    for text in missed:
        print(f"held, without an effect: {text}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="repeated checks (1000)")
    parser.add_argument("--injections", type=int, default=100, help="injections (100)")
    args = parser.parse_args()
    os.environ.pop("XLA_FLAGS", None)
    counts = find_injections(args.injections)
    is_wrong = counts["larger"] < args.injections or counts["named"] < 0.95 * counts["larger"]
    is_wrong |= repeat(args.runs) > 0
    raise SystemExit(is_wrong)


if __name__ == "__main__":
    main()
