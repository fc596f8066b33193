"""Signals to commands that make dry runs end what they have started, and blame nobody."""

import os
import select
import signal
import sys
import textwrap

import pytest
from checking import Project
from commands import VRAMFIT, start_command
from planning import LAYERS

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]

# Has a child that ignores SIGTERM; both have the pipe open until they end.
WAIT = """
import os, signal, subprocess, sys

def wait(pipe):
    pipe = os.open(pipe, os.O_WRONLY)
    lines = f"import os, signal; signal.signal(15, signal.SIG_IGN); os.write({pipe}, b'.'); " \\
        "[signal.pause() for _ in iter(int, 1)]"
    subprocess.run([sys.executable, "-c", lines], pass_fds=[pipe])
"""
USE_GPU = """
import jax, jax.numpy as jnp

jax.jit(lambda x: x + 1)(jnp.ones(8)).block_until_ready()
"""


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def interrupt(command, pipe, number, *, programs=1, **options):
    """Send a signal once so many programs wait; return what the command said when all are gone."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    writer = os.open(pipe, os.O_WRONLY)  # until then, no reader would mean the end
    with start_command(*command, **options) as child:
        try:
            for _ in range(programs):
                assert os.read(reader, 1) == b"."
            os.close(writer)
            child.send_signal(number)
            out, err = child.communicate(timeout=100)
        except BaseException:
            child.kill()
            raise
        left, _, _ = select.select([reader], [], [], 10)
        assert left, "a process is left"
        assert os.read(reader, 1) == b""
    os.close(reader)
    return child.returncode, out, err


def blames_nobody(err):
    words = ("was killed", "failed in the dry run", "the program ended", "Traceback")
    return not any(word in err for word in words)


@pytest.fixture
def project(tmp_path, pipe):
    project = Project(tmp_path, tmp_path / "cache")
    project.write("train.py", WAIT + USE_GPU + f"\nwait({str(pipe)!r})\n")
    project.write("vramfit.toml", project.entry())
    project.write("oom.log", "RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.\n")
    return project


COMMANDS = {
    # The program as it is, and once more to find its functions.
    "plan": (["plan", "--gpu", "t4", "--no-cache", "--", "train.py"], 2),
    "largest": (["plan", "--gpu", "t4", "--vary", "n=1..8", "--", "train.py", "{n}"], 1),
    "fit": (["run", "--fit", "--gpu", "t4", "--", sys.executable, "train.py"], 2),
    "preflight": (["run", "--preflight", "t4", "--", sys.executable, "train.py"], 1),
    "check": (["check", "--no-lock"], 1),
    "update": (["check", "--update"], 1),
    "hosts": (["dryrun", "--gpu", "t4", "--hosts", 2, "--", "train.py"], 1),
    "explain": (["explain", "oom.log", "--gpu", "t4", "--", sys.executable, "train.py"], 1),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_with_its_dry_runs(project, pipe, name):
    words, programs = COMMANDS[name]
    number = SIGNALS[list(COMMANDS).index(name) % len(SIGNALS)]
    code, _, err = interrupt(
        [*VRAMFIT, *words],
        pipe,
        number,
        programs=programs,
        cwd=project.folder,
        env=project.environment,
    )
    assert code == 128 + number, err
    assert f"error[interrupted]: interrupted by {number.name}" in err
    assert blames_nobody(err), err
    assert not (project.folder / "vramfit.lock").exists()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_search_says_what_it_has_found_when_it_is_interrupted(write_script, pipe, number):
    # With a plan applied the program waits.
    plan = 'json.load(open(os.environ["VRAMFIT_RUN_CONFIG"]))["plan"]'
    waits = f"\nimport json\nif {plan}:\n    wait({str(pipe)!r})\n"
    program = write_script(WAIT + waits + LAYERS)
    command = ["plan", "--gpu", "t4", "--limit", "100MiB", "--no-cache", "--jobs", 1]
    code, out, err = interrupt([*VRAMFIT, *command, "--", program, 4096], pipe, number)
    assert code == 2, err
    assert "interrupted; what was found so far:" in err
    assert "no plan that was tried fits: the lowest peak found is" in " ".join(out.split())
    assert blames_nobody(out + err), out + err
    assert "could not be measured" not in out


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGKILL], ids=lambda number: number.name)
def test_a_session_that_ends_leaves_no_dry_run_of_an_estimate(tmp_path, pipe, number):
    session = f"""
        import jax, vramfit

        def step(x):
            wait({str(pipe)!r})
            return x

        vramfit.estimate(step, jax.ShapeDtypeStruct((8,), "float32"), gpu="t4")
    """
    code = WAIT + textwrap.dedent(session)
    returned, _, _ = interrupt([sys.executable, "-c", code], pipe, number, cwd=tmp_path)
    assert returned == -number


def test_a_program_that_the_shell_has_left_is_not_ended(project, pipe, tmp_path):
    # The shell becomes vramfit, whose child the job then is.
    other = tmp_path / "other"
    os.mkfifo(other)
    # It does not keep our pipes open.
    job = f"{sys.executable} -c 'import sys; sys.stdin.read()' < {other} > {os.devnull} 2>&1 &"
    command = " ".join(map(str, [*VRAMFIT, "check", "--no-lock"]))
    holder = os.open(other, os.O_RDWR)
    code, _, err = interrupt(
        ["sh", "-c", f"{job} echo $! > job; exec {command}"],
        pipe,
        signal.SIGTERM,
        cwd=project.folder,
        env=project.environment,
    )
    assert code == 128 + signal.SIGTERM, err
    job = int((project.folder / "job").read_text())
    os.kill(job, 0)
    os.kill(job, signal.SIGKILL)
    os.close(holder)
