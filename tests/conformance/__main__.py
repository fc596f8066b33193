"""Runs JAX's own tests on the virtual GPU and compares the outcome with what is expected.

JAX's tests are taken from a source tree that is given, and never kept here. The run fails (exit
code 1) when a test fails that is not on the list of expected failures, `expected.txt`, or not for
the reason given there, and when a line of the list excuses nothing any more.

    python tests/conformance --jax-source ~/src/jax
    python tests/conformance --jax-source ~/src/jax --test JaxArrayTest array_test pjit_test
"""

import argparse
import collections
import importlib.metadata
import os
import pathlib
import sys
import time

import expected
from processes import BUILD, DEVICES, GPU, HERE, run_file


def main():
    arguments = parse()
    release = importlib.metadata.version("jax")
    source = find_source(arguments.jax_source, release)
    listed_for, lines = read_list()
    names = [name.removesuffix(".py") for name in arguments.files or read_files()]
    print(f"JAX {release} on {DEVICES} x {GPU}, tests from {source}")
    if release != listed_for:
        print(f"The list of expected failures is for JAX {listed_for}: expect differences.")
    totals, agrees = collections.Counter(), True
    for name in names:
        start = time.monotonic()
        outcomes, complaint = run_file(
            source, name, matching=arguments.test, limit_s=arguments.limit
        )
        verdict = expected.compare(outcomes, lines, whole=not arguments.test)
        print_verdict(name, verdict, complaint, time.monotonic() - start)
        totals.update(verdict.counts)
        agrees &= verdict.agrees and complaint is None
    print_summary(totals)
    sys.exit(0 if agrees else 1)


def parse():
    parser = argparse.ArgumentParser(
        prog="conformance", description="Run JAX's own tests on the virtual GPU."
    )
    parser.add_argument(
        "files", nargs="*", help="test files of JAX's (default: those in files.txt)"
    )
    parser.add_argument(
        "--jax-source",
        type=pathlib.Path,
        default=os.environ.get("JAX_SOURCE") or None,
        help="a source tree of the installed release of JAX (also: $JAX_SOURCE)",
    )
    parser.add_argument("--test", default="", help="only tests whose name matches, as pytest -k")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one test")
    return parser.parse_args()


def find_source(given, release):
    """Return the source tree of JAX, or end with what is needed."""
    get_one = (
        "The packages on PyPI hold no tests. Get the source and name it:\n"
        f"  git clone --depth 1 --branch jax-v{release} https://github.com/jax-ml/jax build/jax\n"
        "  make conformance JAX_SOURCE=build/jax"
    )
    if given is None:
        stop(f"which source tree of JAX {release} are the tests to be taken from?\n{get_one}")
    version = given / "jax" / "version.py"
    if not (given / "tests").is_dir() or not version.is_file():
        stop(f"{given} is no source tree of JAX.\n{get_one}")
    if f'_version = "{release}"' not in version.read_text():
        stop(f"{given} is another release of JAX than {release}, which is installed.\n{get_one}")
    return given.resolve()


def stop(message):
    print(f"conformance: {message}", file=sys.stderr)
    sys.exit(2)


def read_files():
    lines = (HERE / "files.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_list():
    path = HERE / "expected.txt"
    try:
        return expected.parse(path.read_text())
    except expected.BadList as error:
        stop(f"{path}: {error}")


def print_verdict(name, verdict, complaint, seconds):
    counts = verdict.counts
    foreseen = sum(counts[reason] for reason in expected.REASONS)
    print(
        f"{name}: {counts['passed'] + counts['made-up']} passed, {foreseen} failed as expected, "
        f"{counts['unexpected']} unexpected, {counts['skipped']} skipped ({seconds:.0f} s)",
        flush=True,
    )
    if complaint is not None:
        print(f"  could not be run: {complaint.strip().splitlines()[-1]}")
    for test, (why, outcome) in verdict.unexpected.items():
        print(f"  {why}: {test}\n    {gist(outcome.message)}")
    for pattern in verdict.to_take_off:
        print(f"  passes, can be taken off the list: {pattern}")


def gist(message):
    """Return the line of a report that says what went wrong."""
    errors = [line[2:].strip() for line in message.splitlines() if line.startswith("E  ")]
    # Where numbers are compared, the first line says only that it was asserted.
    return " ".join(errors[:2])[:160] if errors else f"see {BUILD / 'run'}"


def print_summary(totals):
    """Print what the project promises: how much of what needs no arithmetic passes."""
    print()
    rows = {
        "passed": "",
        "made-up": "passed, but on values that a dry run makes up",
        **{reason: f"failed as expected: {why}" for reason, why in expected.REASONS.items()},
        "unexpected": "failed, and not as expected",
        "skipped": "by the tests themselves",
    }
    for word, meaning in rows.items():
        print(f"{totals[word]:>6}  {word:<12} {meaning}".rstrip())
    asked, passed = expected.share(totals)
    if asked:
        print(f"\n{passed} of the {asked} tests that need no arithmetic pass: ", end="")
        print(f"{100 * passed / asked:.1f} %")


if __name__ == "__main__":
    main()
