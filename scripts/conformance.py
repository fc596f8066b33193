"""Runs JAX's own tests on the virtual GPU and compares the outcome with what is expected.

JAX's tests are taken from a source tree that is given, and never kept here. A test that fails is
either in the list of expected failures, with its reason, or it fails the run. A test that kills
its process, or never ends, always fails the run.

    python scripts/conformance.py --jax-source ~/src/jax
    python scripts/conformance.py --jax-source ~/src/jax --test JaxArrayTest pjit_test array_test
"""

import argparse
import collections
import dataclasses
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "conformance"
BUILD = ROOT / "build" / "conformance"
DEVICES = 8
GPU = "h100-80g"

REASONS = {
    "arithmetic": "compares numbers that a dry run does not compute",
    "version": "wants a package or a release that is not the one tested",
    "needs-hardware": "asks the driver, a kernel's run time or a CUDA library for something",
    "not-yet": "could work and does not",
}

# A process that died takes the rest of its file with it; a new one takes up after the test that
# did it. A file that kills more than this many is broken as a whole.
MOST_DEATHS = 40


@dataclasses.dataclass
class Outcome:
    """What became of one test."""

    outcome: str  # passed, failed, skipped, crashed, hung
    seconds: float = 0.0
    message: str = ""


def main():
    arguments = parse()
    release = importlib.metadata.version("jax")
    source = find_source(arguments.jax_source, release)
    listed = read_files(release)
    chosen = arguments.files or list(listed)
    failures = 0
    totals = collections.Counter()
    print(f"JAX {release} on {DEVICES} x {GPU}, tests from {source}")
    for name in chosen:
        name = name.removesuffix(".py")
        start = time.monotonic()
        outcomes, complaint = run_file(source, name, arguments, listed.get(name, []))
        if arguments.propose:
            propose(release, name, outcomes)
        verdict = compare(outcomes, read_expected(release, name), whole=not arguments.test)
        totals.update(verdict.counts)
        failures += len(verdict.unexpected) + (complaint is not None)
        print_verdict(name, verdict, complaint, time.monotonic() - start)
    print_summary(totals)
    sys.exit(1 if failures else 0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="test files of JAX's, such as array_test")
    parser.add_argument(
        "--jax-source",
        type=pathlib.Path,
        default=os.environ.get("JAX_SOURCE"),
        help="a source tree of the installed release of JAX (also: $JAX_SOURCE)",
    )
    parser.add_argument("--test", default="", help="only tests whose name matches, as pytest -k")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one test")
    parser.add_argument(
        "--propose",
        action="store_true",
        help="write what failed to build/conformance, in the form of a list, to be looked at",
    )
    return parser.parse_args()


def find_source(given, release):
    """Return the folder that holds JAX's test files."""
    for place in [given, BUILD / f"jax-{release}"]:
        if place is not None and (pathlib.Path(place) / "tests" / "api_test.py").is_file():
            return pathlib.Path(place).resolve()
    sys.exit(
        f"conformance: there is no source tree of JAX {release}"
        + (f" at {given}" if given else "")
        + "; the packages on PyPI hold no tests. Get one and name it:\n"
        f"  git clone --depth 1 --branch jax-v{release} https://github.com/jax-ml/jax\n"
        "  make conformance JAX_SOURCE=jax"
    )


def read_files(release):
    """Return the test files to run, and the tests of each that are left out, from `files.txt`."""
    files = {}
    for line in (HERE / "files.txt").read_text().splitlines():
        line = line.split("#")[0].split()
        if line:
            files[line[0]] = line[1:]
    return files


def expected_list(release, name):
    return HERE / "expected_failures" / release / f"{name}.txt"


def read_expected(release, name):
    """Return the expected failures of a file: patterns and their reasons."""
    path = expected_list(release, name)
    expected = {}
    if not path.is_file():
        return expected
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        line = line.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(" ")
        word = reason.strip().partition(":")[0]
        if word not in REASONS:
            sys.exit(f"{path}:{number}: `{word}` is none of {', '.join(REASONS)}")
        expected[pattern] = word
    return expected


def run_file(source, name, arguments, left_out):
    """Run one test file, in as many processes as it kills; return what became of each test."""
    folder = BUILD / "run"
    folder.mkdir(parents=True, exist_ok=True)
    record, done = folder / f"{name}.jsonl", folder / f"{name}.done"
    log = folder / f"{name}.log"
    for path in (record, log):
        path.unlink(missing_ok=True)
    # Without JAX's own tree around them the tests cannot import a JAX that is not installed.
    tests = BUILD / "tests"
    if not tests.is_symlink() or tests.resolve() != source / "tests":
        tests.unlink(missing_ok=True)
        tests.symlink_to(source / "tests", target_is_directory=True)
    outcomes = {}
    complaint = None
    for _ in range(MOST_DEATHS):
        done.write_text("\n".join(outcomes))
        status = run_process(tests, name, arguments, left_out, record, done, log)
        outcomes, running, complaint = read_record(record)
        if complaint is not None or running is None:
            break
        hung = "Timeout (" in log.read_text(errors="replace")[-200_000:] and status == 1
        message = log.read_text(errors="replace")[-4000:]
        outcomes[running] = Outcome("hung" if hung else "crashed", message=message)
        with record.open("a") as file:
            entry = {"test": running, "when": "call", "outcome": outcomes[running].outcome}
            file.write(json.dumps(entry | {"seconds": 0, "message": message}) + "\n")
    if complaint is None and not outcomes:
        complaint = log.read_text(errors="replace")[-2000:] or "no tests were found"
    return outcomes, complaint


def run_process(tests, name, arguments, left_out, record, done, log):
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_"))
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python" / "vramfit" / "_standin"), str(HERE)]),
        "VRAMFIT_GPU": GPU,
        "VRAMFIT_GPU_COUNT": str(DEVICES),
        "JAX_PLATFORMS": "cuda,cpu",
        # The stand-in would switch this on itself, and tests complain of changed settings.
        "JAX_SEND_TRACEBACK_TO_RUNTIME": "full",
        "CONFORMANCE_RECORD": str(record),
        "CONFORMANCE_DONE": str(done),
        "CONFORMANCE_LIMIT_S": str(arguments.limit),
        # Some tests ask where they lie.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "recorder"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests)]
    command += ["--import-mode=importlib", "--tb=short", str(tests / f"{name}.py")]
    wanted = [f"({arguments.test})"] if arguments.test else []
    wanted += [f"not {test}" for test in left_out]
    if wanted:
        command += ["-k", " and ".join(wanted)]
    with log.open("ab") as output:
        return subprocess.run(
            command, env=environment, cwd=tests, stdout=output, stderr=subprocess.STDOUT
        ).returncode


def read_record(record):
    """Return the outcomes so far, the test that was running at the end, and a complaint."""
    outcomes, running, complaint = {}, None, None
    lines = record.read_text().splitlines() if record.exists() else []
    for entry in map(json.loads, lines):
        if "collection" in entry:
            complaint = entry["collection"]
        elif "start" in entry:
            running = entry["start"]
        else:
            test = entry["test"]
            before = outcomes.get(test)
            if before is None or before.outcome in ("passed", "skipped"):
                outcomes[test] = Outcome(entry["outcome"], entry["seconds"], entry["message"])
            if running == test:
                running = None
    return outcomes, running, complaint


@dataclasses.dataclass
class Verdict:
    """The outcomes of a file, against its list."""

    counts: collections.Counter
    unexpected: dict
    surprises: list


def compare(outcomes, expected, *, whole):
    counts, unexpected, used, surprises = collections.Counter(), {}, set(), []
    for test, outcome in outcomes.items():
        pattern = next((p for p in expected if p == test or fnmatch.fnmatchcase(test, p)), None)
        if outcome.outcome in ("passed", "skipped"):
            counts[outcome.outcome] += 1
            if pattern == test and outcome.outcome == "passed":
                surprises.append(test)
            continue
        # A death is never expected: it would take the user's program with it.
        if pattern is None or outcome.outcome in ("crashed", "hung"):
            counts[outcome.outcome] += 1
            unexpected[test] = outcome
        else:
            used.add(pattern)
            counts[expected[pattern]] += 1
    if whole:
        surprises += [p for p in expected if p not in used and p not in surprises]
    return Verdict(counts, unexpected, surprises)


def print_verdict(name, verdict, complaint, seconds):
    counts = ", ".join(f"{count} {word}" for word, count in sorted(verdict.counts.items()))
    print(f"{name}: {counts or 'nothing'} ({seconds:.0f} s)", flush=True)
    if complaint is not None:
        print(f"  could not be run: {complaint.strip().splitlines()[-1]}")
    for test, outcome in verdict.unexpected.items():
        lines = [line for line in outcome.message.splitlines() if line.startswith("E  ")]
        why = lines[0][2:].strip() if lines else ""
        print(f"  {outcome.outcome}: {test}: {why[:140]}")
    for test in verdict.surprises:
        print(f"  passes now, or is gone: {test}")


def print_summary(totals):
    """Print what the project promises: how much of what needs no arithmetic passes."""
    print()
    for word, count in sorted(totals.items(), key=lambda item: -item[1]):
        print(f"{count:>7} {word}" + (f": {REASONS[word]}" if word in REASONS else ""))
    apart = ("arithmetic", "skipped", "version", "needs-hardware")
    asked = sum(count for word, count in totals.items() if word not in apart)
    if asked:
        share = 100 * totals["passed"] / asked
        print(f"{share:.1f} % of the {asked} tests that need no arithmetic and no hardware pass")


NUMBERS = (
    "Arrays are not equal",
    "Not equal to tolerance",
    "Arrays are not almost equal",
    "Mismatched elements",
)


def propose(release, name, outcomes):
    """Write a list of what failed, with a guess at the reason, for someone to look through."""
    path = BUILD / "proposed" / release / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for test, outcome in outcomes.items():
        if outcome.outcome != "failed":
            continue
        errors = [line[2:].strip() for line in outcome.message.splitlines() if line[:2] == "E "]
        numbers = any(text in outcome.message for text in NUMBERS)
        why = "arithmetic" if numbers else f"not-yet: {' '.join(errors)[:160]}"
        lines.append(f"{test} {why}\n")
    if lines:
        path.write_text("".join(lines))
    elif path.exists():
        path.unlink()


if __name__ == "__main__":
    main()
