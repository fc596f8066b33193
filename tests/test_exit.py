"""Programs that end in unusual ways: what they did before is in the answer all the same."""

import json

import pytest
from commands import run_vramfit

import vramfit

ONES = 4096 * 4096 * 4

# Two arrays of 64 MiB are in use at the end; the last line says how the program ends.
STEP = """
import os, signal, sys
import jax, jax.numpy as jnp
x = jnp.ones((4096, 4096))
y = jnp.tanh(x)
"""


@pytest.fixture
def dry_run(tmp_path):
    """Return a function that dry-runs a script and returns its exit code and its summary."""

    def run(script):
        path = tmp_path / "program.py"
        path.write_text(script)
        done = run_vramfit("dryrun", "--full", "--gpu", "t4", "--json", "-", path)
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    ("ending", "code", "complete"),
    [
        ("os._exit(0)", 0, True),
        ("os._exit(7)", 7, True),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, False),
    ],
)
def test_what_was_done_before_an_abrupt_end_is_in_the_answer(dry_run, ending, code, complete):
    returned, summary = dry_run(STEP + ending)
    # What it would have done after that is not known; its own code is in the answer.
    assert (returned, summary["complete"]) == (2 if code else 0, complete)
    assert summary["fits"] is (None if code else True)
    assert summary["peak_bytes"] == 2 * ONES
    exited = {"code": None, "signal": 9} if code == 137 else {"code": code, "signal": None}
    assert summary["process_exit"] == exited


def test_an_own_failure_and_a_lack_of_memory_are_distinguished(dry_run):
    # A program that was refused memory does not fit, whatever its exit code is.
    fails = dry_run(STEP + "sys.exit(1)")
    too_large = dry_run("import jax.numpy as jnp\nx = jnp.ones((1 << 16, 1 << 16))")
    goes_on = dry_run(
        """
import sys
import jax.numpy as jnp
try:
    jnp.ones((1 << 16, 1 << 16))
except Exception:
    sys.exit(7)
"""
    )
    assert [code for code, _ in (fails, too_large, goes_on)] == [2, 1, 1]
    assert [summary["fits"] for _, summary in (fails, too_large, goes_on)] == [None, False, False]
    codes = [summary["process_exit"] for _, summary in (fails, too_large, goes_on)]
    assert codes == [{"code": code, "signal": None} for code in (1, 1, 7)]


def test_a_crash_is_no_fit_in_any_form(tmp_path, write_script):
    # The issue's own program: it crashes before a step has been compiled.
    program = write_script("import jax.numpy as j\nx=j.ones(9)\nraise ValueError('no data')\n")
    trace, page = tmp_path / "run.trace", tmp_path / "run.html"
    options = ["--gpu", "t4", "--json", "-", "--trace", str(trace), "--report", str(page)]
    done = run_vramfit("dryrun", "--full", *options, program)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, summary["fits"], summary["verdict"]["fits"]) == (2, None, None)
    (condition,) = summary["verdict"]["conditions"]
    assert (condition["kind"], condition["inconclusive"]) == ("process_failed", True)
    assert condition["exit"] == {"code": 1, "signal": None}
    error = {"name": "ValueError", "message": "no data", "site": f"{program}:3 (<module>)"}
    assert condition["error"] == error
    last = condition["after"]["program"]
    why = f"the program failed with an error of its own after call 1 of `{last}`"
    assert condition["text"] == f"{why} (ValueError at {program.name}:3 (<module>): no data)"
    html = page.read_text()
    assert '<h1 class="headline unknown">cannot tell: ' in html
    assert "to spare" not in html

    # The trace holds it, too: whoever reads it gets the same answer.
    report = vramfit.dryrun_report(trace)
    assert report.fits is None
    assert report.headline.startswith(f"unknown: {why}")
    for command in (["report", "--full"], ["replay", "--gpu", "t4"]):
        again = run_vramfit(command[0], trace, *command[1:], code=2)
        assert "unknown: the program failed with an error of its own" in again.stdout + again.stderr


def test_a_forked_copy_leaves_the_trace_alone(dry_run):
    # The copy runs the exit handlers, JAX's among them; joining JAX's threads would never end.
    returned, summary = dry_run(
        STEP
        + """
import atexit
copy = os.fork()
if copy == 0:
    del x, y
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(copy, 0)
z = jnp.tanh(y)
"""
    )
    assert (returned, summary["complete"]) == (0, True)
    assert summary["peak_bytes"] == 3 * ONES


def test_a_worker_that_is_forked_before_jax_is_imported_gives_an_answer(dry_run):
    returned, summary = dry_run(
        """
import multiprocessing

def work():
    import jax.numpy as jnp
    x = jnp.ones((4096, 4096))
    y = jnp.tanh(x)

worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""
    )
    assert (returned, summary["complete"]) == (0, True)
    assert summary["peak_bytes"] == 2 * ONES
