"""Runs a test file of JAX's on the virtual GPU, in as many processes as it kills."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from expected import Outcome, worse_of

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from run_configs import VARIABLE, write_run_config  # noqa: E402

ROOT = HERE.parent.parent
SHIM = ROOT / "python" / "vramfit" / "_inprogram" / "_jax_shim"
BUILD = ROOT / "build" / "conformance"
DEVICES = 8
GPU = "h100-80g"

# What JAX's own build gives the tests in this folder: so many processes, with so many GPUs each.
OF_SEVERAL_HOSTS = "multiprocess/"
HOSTS = 4
DEVICES_OF_HOST = 2

# A process that died takes the rest of its file with it; a new one takes up after the test that
# did it. A file that kills more than this many is broken as a whole.
MAX_RESTARTS = 40

# What is kept of a run: the outcomes, the tests to leave out, the output.
KINDS = ("jsonl", "done", "log")


def run_file(source, name, *, matching, limit_s):
    """Run one test file; return what became of each test, and why it could not be run, or None.

    Args:
        source: A source tree of JAX.
        name: The file's name in its `tests`, without `.py`.
        matching: Only tests whose name matches, as `pytest -k`; empty for all.
        limit_s: Seconds after which a test hangs.
    """
    folder = BUILD / "run"
    folder.mkdir(parents=True, exist_ok=True)
    tests = _tests_alone(source)
    stem = name.replace("/", "-")
    if not name.startswith(OF_SEVERAL_HOSTS):
        settings = {VARIABLE: write_run_config(GPU, DEVICES)}
        outcomes, complaint = _run_to_end(tests, name, folder / stem, settings, matching, limit_s)
        return _by_full_name(name, outcomes), complaint
    exchange = folder / f"{stem}-hosts"
    shutil.rmtree(exchange, ignore_errors=True)
    exchange.mkdir()
    outcomes = {}
    # In the second round each knows what the others have published, as after `vramfit dryrun`.
    for number in range(2 * HOSTS):
        host = number % HOSTS
        if host == 0:
            outcomes.clear()
        among = {"index": host, "count": HOSTS, "folder": str(exchange)}
        settings = {VARIABLE: write_run_config(GPU, DEVICES_OF_HOST, host=among)}
        files = folder / f"{stem}-{host}"
        found, complaint = _run_to_end(tests, name, files, settings, matching, limit_s)
        if complaint is not None:
            break
        for test, outcome in found.items():
            outcomes[test] = worse_of(outcomes.get(test, outcome), outcome)
    return _by_full_name(name, outcomes), complaint


def _by_full_name(name, outcomes):
    return {f"{name}::{test}": outcome for test, outcome in outcomes.items()}


def _run_to_end(tests, name, files, settings, matching, limit_s):
    """Run one test file on one host; return what became of each test, and a complaint or None.

    Args:
        tests: The folder of JAX's tests.
        name: As in `run_file`.
        files: Path of what is kept of the run, without an ending.
        settings: Environment variables for the virtual GPU.
        matching: As in `run_file`.
        limit_s: As in `run_file`.
    """
    record, done, log = (files.with_name(f"{files.name}.{kind}") for kind in KINDS)
    for path in (record, log):
        path.unlink(missing_ok=True)
    outcomes, complaint = {}, None
    for _ in range(MAX_RESTARTS):
        done.write_text("\n".join(outcomes))
        status = _run_process(
            _command(tests, name, matching),
            _environment(record, done, limit_s) | settings,
            tests,
            log,
        )
        outcomes, running, complaint = _read_record(record)
        if complaint is not None or running is None:
            break
        message = log.read_text(errors="replace")[-200_000:]
        hung = "Timeout (" in message and status == 1
        entry = {"test": running, "when": "call", "outcome": "hung" if hung else "crashed"}
        entry |= {"message": message[-4000:], "made_up": 0}
        with record.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        outcomes[running] = _outcome(entry)
    if complaint is None and not outcomes and not matching:
        complaint = log.read_text(errors="replace")[-2000:] or "no tests were found"
    return outcomes, complaint


def _tests_alone(source):
    """Return JAX's folder of tests without its tree around it.

    Inside the tree the tests would import the JAX beside them, not the installed one.
    """
    tests = BUILD / "tests"
    if not tests.is_symlink() or tests.resolve() != source / "tests":
        tests.unlink(missing_ok=True)
        tests.symlink_to(source / "tests", target_is_directory=True)
    return tests


def _environment(record, done, limit_s):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(SHIM), str(HERE)]),
        "JAX_PLATFORMS": "cuda,cpu",
        # The stand-in would switch this on itself, and tests complain of changed settings.
        "JAX_SEND_TRACEBACK_TO_RUNTIME": "full",
        "CONFORMANCE_RECORD": str(record),
        "CONFORMANCE_DONE": str(done),
        "CONFORMANCE_LIMIT_S": str(limit_s),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _command(tests, name, matching):
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "recorder"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests)]
    command += ["--import-mode=importlib", "--tb=short", str(tests / f"{name}.py")]
    return command + (["-k", matching] if matching else [])


def _run_process(command, environment, tests, log):
    with log.open("ab") as output:
        return subprocess.run(
            command, env=environment, cwd=tests, stdout=output, stderr=subprocess.STDOUT
        ).returncode


def _read_record(record):
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
            # What fails after it, while things are put away, makes a test that passed a failure.
            if before is None or before.outcome in ("passed", "skipped"):
                outcomes[test] = _outcome(entry)
            if running == test:
                running = None
    return outcomes, running, complaint


def _outcome(entry):
    return Outcome(entry["outcome"], entry["message"], entry["made_up"])
