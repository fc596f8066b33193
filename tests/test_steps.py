"""`--steps N` ends a run whatever the program does about it, and what was printed is kept."""

import json
import subprocess
import sys

import pytest
from conftest import clean_environment

MODEL = """
import atexit, queue, sys, threading, time
import jax, jax.numpy as jnp

@jax.jit
def train_step(w, x):
    return w - jnp.tanh(x @ w).mean(), x

def train(steps=10**9):
    w, x = jnp.ones((1024, 1024)), jnp.ones((1024, 1024))
    for _ in range(steps):
        w, x = train_step(w, x)

atexit.register(print, "exit handler")
# No line feed and no flush: what is in the buffer is written by a clean end only.
print("begun", end=" ")
"""

# Trains in a thread while the main thread waits for it.
JOINS = """
thread = threading.Thread(target=train)
thread.start()
try:
    thread.join()
finally:
    print("cleaned up", end=" ")
"""

# The same, and the main thread waits for a message that never comes.
WAITS = """
threading.Thread(target=train, daemon=True).start()
try:
    queue.Queue().get()
finally:
    print("cleaned up", end=" ")
"""

# The main thread has ended long before the steps are done.
LEAVES = """
threading.Thread(target=train).start()
"""

# The loop goes on whatever happens.
CATCHES = """
while True:
    try:
        train()
    except BaseException as error:
        print("caught", type(error).__name__, end=" ")
"""

# Catches it, too, and then waits for a thread that waits for the main thread.
HANGS = """
from vramfit import _ending
_ending.PATIENCE_S = 1
messages = queue.Queue()
thread = threading.Thread(target=messages.get)
thread.start()
try:
    train()
except BaseException as error:
    print("caught", type(error).__name__, end=" ")
thread.join()
"""

# Its exit handlers never come to an end.
LINGERS = """
from vramfit import _ending
_ending.PATIENCE_S = 1
atexit.register(threading.Event().wait)
sys.stdout.flush()
train()
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (JOINS, "begun cleaned up exit handler\n"),
        (WAITS, "begun cleaned up exit handler\n"),
        (LEAVES, "begun exit handler\n"),
        (CATCHES, "begun caught SystemExit exit handler\n"),
        (HANGS, "begun caught SystemExit exit handler\n"),
        (LINGERS, "begun "),
    ],
    ids=["joins", "waits", "leaves", "catches", "hangs", "lingers"],
)
def test_the_run_ends_after_its_steps(tmp_path, script, said):
    program, answer = tmp_path / "program.py", tmp_path / "answer.json"
    program.write_text(MODEL + script)
    command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", "t4", "--steps", "3"]
    done = subprocess.run(
        [*command, "--json", str(answer), str(program)],
        env=clean_environment(),
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    told = json.loads(answer.read_text())
    assert told["complete"] is True
    assert told["program_exit"] == {"code": 0, "signal": None}
    (step,) = [row for row in told["programs"] if row["name"] == "jit_train_step"]
    assert step["calls"] >= 3
