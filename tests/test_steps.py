"""`--steps N` ends a run whatever the program does about it, and what was printed is kept."""

import pytest
from cli_dryrun import dryrun_of

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
from vramfit._inprogram import _shutdown
_shutdown.EXIT_TIMEOUT_S = 1
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
from vramfit._inprogram import _shutdown
_shutdown.EXIT_TIMEOUT_S = 1
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
    run = dryrun_of(tmp_path, MODEL + script, "--steps", "3", gpu="t4", timeout=120)
    assert (run.code, run.out) == (0, said), run.err
    assert "Traceback" not in run.err
    assert "Exception ignored" not in run.err
    summary = run.summary
    assert summary["complete"] is True
    assert summary["process_exit"] == {"code": 0, "signal": None}
    (step,) = [row for row in summary["programs"] if row["name"] == "jit_train_step"]
    assert step["calls"] >= 3


# --- which program is the step ---

# The evaluation of a large batch comes before any training, as in nanoGPT; training needs more.
VALIDATES_FIRST = """
import jax, jax.numpy as jnp

def loss(w, x):
    for layer in w:
        x = jnp.tanh(x @ layer)
    return (x ** 2).mean()

@jax.jit
def evaluate(w, x):
    return loss(w, x)

@jax.jit
def train_step(w, x):
    return [a - 0.1 * b for a, b in zip(w, jax.grad(loss)(w, x))]

w = [jnp.ones((1024, 1024)) for _ in range(8)]
x = jnp.ones((4096, 1024))
for _ in range(20):
    evaluate(w, x)
for step in range(12):
    w = train_step(w, x)
print("trained")
"""

# A rollout brings its state back many times before the first update, which needs far more.
ROLLS_OUT_FIRST = """
import jax, jax.numpy as jnp

def policy(w, state):
    return jnp.tanh(state @ w)

@jax.jit
def rollout(w, state):
    return state + policy(w, state), state.mean()

def loss(w, states):
    h = jnp.tanh(states @ w)
    return (jnp.tanh(h @ w) ** 2).mean()

@jax.jit
def update(w, states):
    return w - 0.1 * jax.grad(loss)(w, states)

w, state = jnp.ones((512, 512)), jnp.ones((2048, 512))
for iteration in range(4):
    collected = []
    for _ in range(30):
        state, reward = rollout(w, state)
        collected.append(state)
    states = jnp.concatenate(collected)
    for _ in range(2):
        w = update(w, states)
    del states
print("trained")
"""

# Gradients and their use are two programs, the use one of many small ones.
SPLIT = """
import jax, jax.numpy as jnp
gradients = jax.jit(jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).mean()))
w, x = jnp.ones((1024, 1024)), jnp.ones((256, 1024))
for _ in range(50):
    w = w - 0.1 * gradients(w, x)
print("trained")
"""

# Nothing ever comes back.
MAPS = """
import jax, jax.numpy as jnp
encode = jax.jit(lambda w, x: jnp.tanh(x @ w))
w = jnp.ones((1024, 1024))
for _ in range(40):
    encode(w, jnp.ones((256, 1024)))
print("trained")
"""


@pytest.fixture
def dry_run(tmp_path):
    """Return a function that dry-runs a script: its exit code, summary, output and text."""

    def run(script, *options):
        said = dryrun_of(tmp_path, script, *options, gpu="t4")
        return said.code, said.summary, said.out, said.err

    return run


def calls(summary, name):
    (row,) = [row for row in summary["programs"] if row["name"] == name]
    return row["calls"]


def condition(summary, kind):
    (found,) = [one for one in summary["verdict"]["conditions"] if one["kind"] == kind]
    return found


@pytest.mark.parametrize(
    ("script", "step", "first"),
    [
        (VALIDATES_FIRST, "jit_train_step", ("jit_evaluate", 20)),
        (ROLLS_OUT_FIRST, "jit_update", ("jit_rollout", 60)),
    ],
    ids=["validation", "rollout"],
)
def test_what_comes_before_training_is_no_step(dry_run, script, step, first):
    code, whole, out, _ = dry_run(script)
    assert (code, out) == (0, "trained\n")
    code, summary, out, text = dry_run(script, "--steps", "3")
    assert (code, out, summary["fits"]) == (0, "", True)
    # It was cut in training, so that what training needs is in the answer, to the byte.
    assert (calls(summary, step), calls(summary, first[0])) == (3, first[1])
    assert summary["peak_bytes"] == whole["peak_bytes"]
    assert (summary["step"], summary["step_evidence"]) == (step, "state_returned")
    cut = condition(summary, "stopped_at_step")
    assert (cut["program"], cut["calls"], cut["steps"]) == (step, 3, 3)
    said = " ".join(text.split())
    assert f"`--steps 3` stopped the run after call 3 of `{step}`" in said


def test_a_run_that_does_not_fit_in_training_is_not_cut_before_it(dry_run):
    code, summary, _, text = dry_run(ROLLS_OUT_FIRST, "--steps", "3", "--limit", "400MiB")
    assert (code, summary["fits"]) == (1, False)
    assert "does not fit: short by" in text
    assert summary["oom"]["program"] in ("jit_update", "jit_concatenate")


def test_gradients_with_an_update_outside_of_them_are_a_step(dry_run):
    _, summary, out, _ = dry_run(SPLIT, "--steps", "3")
    assert (out, calls(summary, summary["step"])) == ("", 3)


def test_without_a_step_the_run_is_not_cut_and_says_so(dry_run):
    code, summary, out, text = dry_run(MAPS, "--steps", "3")
    assert (code, out, summary["fits"]) == (0, "trained\n", True)
    no_step = condition(summary, "no_step_found")
    assert (no_step["steps"], no_step["found"]) == (3, None)
    assert "no training step was detected" in " ".join(text.split())


def test_a_named_step_is_taken_as_it_is(dry_run):
    _, summary, out, _ = dry_run(ROLLS_OUT_FIRST, "--steps", "5", "--step", "rollout")
    assert (out, calls(summary, "jit_rollout")) == ("", 5)
    assert (summary["step"], summary["step_evidence"]) == ("jit_rollout", "named")
    code, summary, out, text = dry_run(MAPS, "--steps", "3", "--step", "no_such_step")
    assert (code, out) == (0, "trained\n")
    assert condition(summary, "no_step_found")["name"] == "no_such_step"
    assert "no program named `no_such_step` ran" in " ".join(text.split())


# A rollout keeps what it sees until the update, and start-up keeps arrays for good.
COLLECTS = """
import jax, jax.numpy as jnp
rollout = jax.jit(lambda w, state: jnp.tanh(state @ w))
update = jax.jit(lambda w, x: w - jax.grad(lambda w: (x @ w).mean())(w))
w, state = jnp.ones((512, 512)), jnp.ones((512, 512))
kept = [jnp.tanh(state * n) for n in range(30)]
collected = []
for _ in range(40):
    state = rollout(w, state)
    collected.append(state)
UPDATES
"""
UPDATES = """
for _ in range(6):
    w = update(w, collected[0])
"""
LEAKS = """
losses = []
for _ in range(6):
    w = update(w, collected[0])
    losses.append(jnp.tanh(w))
"""


def test_what_is_collected_before_a_step_is_no_leak(dry_run):
    for updates in ("", UPDATES):
        _, summary, _, _ = dry_run(COLLECTS.replace("UPDATES", updates))
        assert summary["leaks"] == [], updates
        # What was collected is there, and the run may go on so where no update has come.
        assert bool(summary["growth"]) == (not updates)
    _, summary, _, _ = dry_run(COLLECTS.replace("UPDATES", LEAKS))
    (leak,) = summary["leaks"]
    assert (leak["bytes_per_step"], leak["step"]) == (512 * 512 * 4, summary["step"])
    # Between steps there are what was kept, what was collected, the weights and the state.
    assert summary["step_evidence"] == "state_returned"
