"""Signals to `vramfit train` and to programs that call `fit`: however many, the state is saved."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import pytest
from commands import VRAMFIT, run_command, run_python, start_command
from train_command import environment, events, until, write

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
SEVERAL = [(TERM, TERM), (INT, INT), (INT, TERM), (TERM, INT), (HUP, TERM), (TERM, HUP), (HUP,)]

# Gets signals within a step, one after the other, and has more steps to run.
FIT = """
import os, signal, sys
import jax.numpy as jnp, numpy as np
from vramfit.train import fit

class Batches:
    def __iter__(self):
        for number in range(300):
            if number == 3:
                BEFORE
            yield np.ones(4)

result = fit(lambda s, b: (s + 1, b.mean()), jnp.zeros(()), Batches(), directory="run",
             progress="none")
print(result.stop_reason, result.signal, result.steps, int(result.state))
"""


def run_fit(folder, before, start="", **options):
    code = start + FIT.replace("BEFORE", before)
    return run_python("-c", code, cwd=folder, env={"JAX_PLATFORMS": "cpu"}, timeout=200, **options)


@pytest.mark.parametrize("numbers", SEVERAL, ids=lambda them: "-".join(it.name for it in them))
def test_signals_at_once_are_one_request(tmp_path, numbers):
    sent = "; ".join(f"os.kill(os.getpid(), {int(number)})" for number in numbers)
    stopped, received, steps, state = run_fit(tmp_path, sent, code=0).stdout.split()
    assert stopped == "signal"
    # The system delivers those that are pending in the order of their numbers.
    assert int(received) in map(int, numbers)
    assert steps == state
    assert 0 < int(steps) < 300
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("[0-9]*")] == [steps]


@pytest.mark.parametrize("number", [HUP, INT, TERM], ids=lambda number: number.name)
def test_a_signal_that_is_ignored_from_the_start_remains_ignored(tmp_path, number):
    ignored = f"import signal; signal.signal({int(number)}, signal.SIG_IGN)\n"
    done = run_fit(tmp_path, f"os.kill(os.getpid(), {int(number)})", ignored, code=0)
    assert done.stdout.split() == ["finished", "None", "300", "300"]


def test_a_process_that_the_program_has_forked_can_be_terminated(tmp_path):
    # Not before the child is ready: Python forgets a signal that comes while it still forks.
    before = """
                ready, is_ready = os.pipe()
                child = os.fork()
                if child == 0:
                    os.write(is_ready, b"1")
                while child == 0:
                    pass  # until the signal, which could come just before a call that waits
                os.read(ready, 1)
                os.kill(child, signal.SIGTERM)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    said = run_fit(tmp_path, before.strip(), code=0).stdout.split()
    assert said == ["-15", "finished", "None", "300", "300"]


@pytest.mark.parametrize("number", [TERM, INT], ids=lambda number: number.name)
def test_another_signal_ends_the_program_once_it_was_told_so(tmp_path, number):
    # Data that never comes: the step cannot be finished. A signal between Python's last look for
    # one and a wait for a lock would not end that wait; from a pipe it is read.
    code = """
        import os, signal, sys
        import jax.numpy as jnp, numpy as np
        from vramfit.train import fit
        from vramfit.train.loop import signals

        signals.FORCE_AFTER_S = 0
        received, sent = os.pipe()
        os.set_blocking(sent, False)
        signal.set_wakeup_fd(sent)

        class Batches:
            def __iter__(self):
                yield np.ones(4)
                print("ready", flush=True)
                while True:
                    os.read(received, 1)

        fit(lambda s, b: (s, b.mean()), jnp.zeros(()), Batches(), progress="none")
    """
    words = ["-c", textwrap.dedent(code)]
    with start_command(sys.executable, *words, env={"JAX_PLATFORMS": "cpu"}) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        while "another Ctrl-C or SIGTERM from now on ends the program" not in (
            line := child.stderr.readline()
        ):
            assert line
        child.send_signal(number)
        said = child.stderr.read()
    if number == INT:
        assert said.rstrip().endswith("KeyboardInterrupt")
    else:
        assert child.returncode == -TERM


@pytest.mark.parametrize("numbers", SEVERAL, ids=lambda them: "-".join(it.name for it in them))
def test_a_process_group_gets_signals_and_the_run_saves(sequences, numbers):
    write(sequences, training={"epochs": 100_000})

    def send(running):
        for number in numbers:
            # To the command and its child, and the command passes its own on.
            os.killpg(running.pid, number)

    said, code = until(sequences, "Epoch 2/", send, start_new_session=True)
    assert code in [128 + number for number in numbers], "".join(said)
    assert said[-1] == "stopped; run `vramfit train train.toml` to resume\n"
    [end] = events(sequences, "end")
    assert end["stop_reason"] == "signal"
    assert (sequences / f"run/checkpoints/{end['step']}").is_dir()
    assert (sequences / "run/report.html").is_file()


def test_only_the_command_gets_ctrl_c_and_the_run_saves(sequences):
    write(sequences, training={"epochs": 100_000})
    said, code = until(sequences, "Epoch 2/", lambda running: running.send_signal(INT))
    assert code == 128 + INT, "".join(said)
    assert events(sequences, "end")[0]["stop_reason"] == "signal"


def test_a_run_under_nohup_goes_on_when_the_terminal_is_closed(sequences):
    write(sequences, training={"epochs": 3})
    said, code = until(
        sequences,
        "Epoch 1/",
        lambda running: os.killpg(running.pid, HUP),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(HUP, signal.SIG_IGN),
    )
    assert code == 0, "".join(said)
    assert events(sequences, "end")[0]["stop_reason"] == "finished"


def test_a_terminal_that_is_closed_saves_the_run(sequences):
    write(sequences, training={"epochs": 100_000})
    ours, theirs = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [*VRAMFIT, "train", "train.toml"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    running = subprocess.Popen(
        command, cwd=sequences, env=environment(), preexec_fn=take_terminal, **streams
    )
    os.close(theirs)
    said = b""
    while b"Epoch 2/" not in said:
        said += os.read(ours, 4096)
    # The system sends SIGHUP to all of the session, and nothing can be written any more.
    os.close(ours)
    assert running.wait(timeout=200) == 128 + HUP
    [end] = events(sequences, "end")
    assert end["stop_reason"] == "signal"
    assert (sequences / f"run/checkpoints/{end['step']}").is_dir()


def test_a_signal_while_a_checkpoint_is_written_does_not_harm_it(sequences, stop_before):
    write(sequences, training={"epochs": 100_000}, checkpoint={"every_steps": 84})
    env = environment(**stop_before("fsync", 1, TERM))
    with start_command(*VRAMFIT, "train", "train.toml", cwd=sequences, env=env) as running:
        said = running.stderr.read()
    assert running.returncode == 128 + TERM, said
    [end] = events(sequences, "end")
    assert (sequences / f"run/checkpoints/{end['step']}").is_dir()


def test_a_signal_before_the_first_step_says_that_nothing_is_lost(sequences):
    write(sequences)
    said, code = until(
        sequences,
        "parameters ",
        lambda running: os.killpg(running.pid, TERM),
        start_new_session=True,
    )
    assert code == 128 + TERM
    assert said[-1] == (
        "stopped before the first step; run `vramfit train train.toml` to begin again\n"
    )


AWKWARD = ["--set", 'training.directory="it\'s my run"', "--set", "model.hidden_sizes=[16, 8]"]


@pytest.mark.parametrize(
    "options",
    [
        [*AWKWARD],
        ["--set=optimizer.learning_rate=3e-3", "--epochs=100000", "--progress", "plain"],
        ["--fresh", "--force-resume", "--device", "cpu", *AWKWARD],
        ["--verbose", "--python", sys.executable, "--resume"],
    ],
    ids=lambda options: options[0],
)
def test_the_command_that_is_printed_resumes(sequences, options):
    write(sequences, training={"epochs": 100_000})
    if "--resume" in options:
        run_command(
            *VRAMFIT, "train", "train.toml", "--epochs", 1, env=environment(), code=0, cwd=sequences
        )
    if "--fresh" in options:
        options = [option for option in options if option != "--force-resume"]
    command = [*VRAMFIT, "train", "train.toml", *options]
    for_start = "Epoch " if "--resume" in options else "compiling"

    def stop(words, beginning, **more):
        with start_command(*words, cwd=sequences, env=environment(**path()), **more) as running:
            said = []
            for line in running.stderr:
                said.append(line)
                if beginning in line:
                    running.send_signal(TERM)
        assert running.returncode == 128 + TERM, "".join(said)
        return said

    said = stop(command, for_start)
    found = re.findall(r"^stopped; run `(.*)` to resume$", "".join(said), re.MULTILINE)
    assert len(found) == 1, "".join(said)
    printed = found[0]
    # As a user would paste it: the shell splits it into words, and finds the command in the PATH.
    again = stop(["sh", "-c", f"exec {printed}"], "compiling")
    assert any("resuming from step" in line for line in again), "".join(again)


def path():
    return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
