"""Python functions that programs call: with made-up values where a program is not computed."""

import pytest
from cli_dryrun import dryrun_of
from commands import run_python

SETUP = """
import queue
import jax, jax.numpy as jnp
from jax.experimental import io_callback

large = jnp.ones((4000, 4000))  # 64 MB: nothing made of it is computed
"""


def dryrun(folder, lines, *options):
    """Run lines after those of `SETUP` on the virtual GPU."""
    return dryrun_of(folder, SETUP + lines, *options)


QUEUE = """
metrics = queue.Queue()

def send(x): io_callback(metrics.put, None, x.sum(), ordered=True)

@jax.jit
def step(x):
    send(x)
    return x * 2

for _ in range(3):
    large = step(large)
    print(float(metrics.get(timeout=100)))
"""


def test_a_script_that_waits_for_its_metrics_gets_them(tmp_path):
    run = dryrun(tmp_path, QUEUE)
    assert (run.out, run.code) == ("0.0\n" * 3, 0)
    row = run.callbacks()["send"]
    assert (row["calls"], row["errors"], row["skipped"]) == (3, 0, 0)
    assert "host callbacks with placeholder arguments" in run.err
    assert "host callbacks with placeholder arguments" in run.page


def test_callbacks_are_left_out_on_request(tmp_path):
    lines = QUEUE.replace("    print(float(metrics.get(timeout=100)))\n", "")
    run = dryrun(tmp_path, lines + "print(metrics.qsize())", "--callbacks", "skip")
    assert run.out == "0\n"
    row = run.callbacks()["send"]
    assert (row["calls"], row["skipped"], row["skip_reason"]) == (0, 3, "request")


KINDS = """
called = []

def note(name): return lambda *values: called.append(name)

def looped(x):
    def body(x, _):
        in_scan(x)
        in_scan_too(x)
        return x + 1, None
    return jax.lax.scan(body, x, length=7)[0]

def in_scan(x): jax.debug.callback(note("a"), x[0, 0])
def in_scan_too(x): io_callback(note("b"), None, x[0, 0])

def long(x):
    def body(x, _):
        in_long_scan(x)
        return x + 1, None
    return jax.lax.scan(body, x, length=5000)[0]

def in_long_scan(x): io_callback(note("c"), None, x[0, 0])

def unknown(x):
    def body(x):
        in_while(x)
        return x * 2
    return jax.lax.while_loop(lambda x: x[0, 0] < 9, body, x)

def in_while(x): io_callback(note("d"), None, x[0, 0])

def branch(x): return jax.lax.cond(x[0, 0] > 0, taken, not_taken, x)
def taken(x): io_callback(note("e"), None, x[0, 0]); return x
def not_taken(x): io_callback(note("f"), None, x[0, 0]); return x

def with_result(x): return x + jax.pure_callback(
    note("g"), jax.ShapeDtypeStruct((), x.dtype), x[0, 0])

for function in (looped, long, unknown, branch, with_result):
    jax.jit(function)(large)
jax.effects_barrier()
print(*("".join(called)[:14], *(called.count(name) for name in "abcdefg")))
"""


def test_how_often_each_kind_is_called(tmp_path):
    run = dryrun(tmp_path, KINDS)
    # A loop of known length calls its functions in turn, as on a GPU, up to 1,000 times; one of
    # unknown length once; of two branches the one for a false condition.
    assert run.out == "ababababababab 7 7 1000 1 0 1 0\n"
    rows = {
        name: (row["calls"], row["skipped"], row["skip_reason"])
        for name, row in run.callbacks().items()
    }
    assert rows == {
        "in_scan": (7, 0, None),
        "in_scan_too": (7, 0, None),
        "in_long_scan": (1000, 4000, "bound"),
        "in_while": (1, 0, None),
        "taken": (0, 1, "branch"),
        "not_taken": (1, 0, None),
        "with_result": (0, 1, "results"),
    }


ERRORS = """
def check(value):
    if value == 0:
        raise FloatingPointError("the loss is 0")

def watch(x): io_callback(check, None, x.sum())

@jax.jit
def step(x):
    watch(x)
    return x * 2

for _ in range(2):
    large = step(large)
large.block_until_ready()
jax.effects_barrier()
print("done")
"""


def test_an_error_about_made_up_values_is_reported_and_does_not_end_the_program(tmp_path):
    run = dryrun(tmp_path, ERRORS)
    assert (run.out, run.code) == ("done\n", 0)
    row = run.callbacks()["watch"]
    assert (row["calls"], row["errors"]) == (2, 2)
    assert row["error"] == "FloatingPointError: the loss is 0"
    assert "Traceback" not in run.err
    assert "the loss is 0" in " ".join(run.err.split())  # wrapped, wherever the line ends


def test_debug_print_prints_made_up_values(tmp_path):
    lines = 'jax.jit(lambda x: jax.debug.print("loss {}", x.sum()))(large)\n'
    assert dryrun(tmp_path, lines + "jax.effects_barrier()").out == "loss 0.0\n"


SLOW = """
import time

def send(x):
    time.sleep(0.01)
    if x.sum() == 0:
        print("called")

def body(x, _):
    io_callback(send, None, x[0, 0])
    return x + 1, None

jax.jit(lambda x: jax.lax.scan(body, x, length=700)[0])(large)
"""


def test_the_end_of_the_program_waits_for_its_functions(tmp_path):
    # Longer than an execution waits.
    run = dryrun(tmp_path, SLOW)
    assert (run.code, run.out) == (0, "called\n" * 700)


WITHOUT_CALLS = """
import numpy as np

numbers, history, shown = [], {}, []
count = 0

def note(x):
    numbers.append(float(x))
    return np.float32(0)

def keep(x):
    history["loss"] = float(x)
    return np.float32(0)

def increment(x):
    global count
    count += 1
    return np.float32(0)

def show(x):
    shown.append(float(x))
    print(x)
    return np.float32(0)

scalar = jax.ShapeDtypeStruct((), "float32")
jax.jit(lambda x: io_callback(note, scalar, x.sum()))(large).block_until_ready()
jax.jit(lambda x: io_callback(keep, scalar, x.sum()))(large).block_until_ready()
jax.jit(lambda x: io_callback(increment, scalar, x.sum()))(large).block_until_ready()
jax.jit(lambda x: io_callback(show, scalar, x.sum()))(large).block_until_ready()
print(shown)
if len(numbers) > 3 or count > 3:
    print("many")
if history["loss"] > 3:
    print("large")
"""


BESIDE_LARGE_ARRAYS = """
import os
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback

state, seen = jnp.zeros(int(os.environ["ELEMENTS"])), []
scalar = lambda dtype: jax.ShapeDtypeStruct((), dtype)

def double(n):
    seen.append(int(n))
    return np.int32(2 * n + 1)

@jax.jit
def decide(state, n):
    return state + 1, jax.pure_callback(double, scalar(jnp.int32), n)

n = jnp.int32(0)
while n < 100:
    state, n = decide(state, n)
print(seen)

def note(i):
    seen.append(int(i))
    return np.float32(i)

@jax.jit
def loop(state):
    def body(state, i):
        return state + 1, io_callback(note, scalar(jnp.float32), i, ordered=True)
    return jax.lax.scan(body, state, jnp.arange(5))

state, noted = loop(state)
print(seen[-5:], noted)

@jax.jit
def branch(state, n):
    jax.debug.print("n is {n}", n=n, ordered=True)
    noted = lambda n: io_callback(note, scalar(jnp.float32), n)
    return jax.lax.cond(n > 1, noted, jnp.float32, n), state + n

for n in range(3):
    _, state = branch(state, n)
jax.effects_barrier()
print(seen[-1])

def refuse(n):
    if n > 1:
        raise ValueError("stop now")
    return np.int32(n + 1)

@jax.jit
def end(state, n):
    return state + 1, jax.pure_callback(refuse, scalar(jnp.int32), n)

try:
    n = jnp.int32(0)
    while True:
        state, n = end(state, n)
        print(int(n))
except Exception as error:
    print("stop now" in str(error))
"""


def test_functions_are_called_beside_large_arrays_as_on_a_gpu(tmp_path, monkeypatch):
    env = {"JAX_PLATFORMS": "cpu", "ELEMENTS": "8"}
    real = run_python("-c", BESIDE_LARGE_ARRAYS, env=env, code=0)
    monkeypatch.setenv("ELEMENTS", str(1 << 28))
    run = dryrun(tmp_path, BESIDE_LARGE_ARRAYS)
    assert run.out == real.stdout != ""
    assert run.code == 0
    assert "this result depends on" not in run.err


def test_a_function_that_is_not_called_is_a_condition_where_its_effect_decides(tmp_path):
    run = dryrun(tmp_path, WITHOUT_CALLS)
    decisive = [row for row in run.summary["unknown_reads"] if row["decisions"]]
    assert {row["expression"] for row in decisive} == {"note(x)", "keep(x)", "increment(x)"}
    # What was to be stored is missing, which ends the program: said beside its error.
    kinds = [condition["kind"] for condition in run.summary["verdict"]["conditions"]]
    assert "placeholder_decides" in kinds


ON_EACH_DEVICE = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, PartitionSpec as P

seen = []
mesh = Mesh(np.array(jax.devices()), ("x",))
send = jax.jit(jax.shard_map(
    lambda x: io_callback(lambda part: seen.append(part.shape), (), x),
    mesh=mesh, in_specs=P("x"), out_specs=P()))
send(jnp.ones((4000, 4000)))
print(seen)
"""


def test_each_device_calls_what_a_shard_map_calls(tmp_path):
    run = dryrun_of(tmp_path, ON_EACH_DEVICE, gpu="h100-80gx4")
    assert run.out == f"{[(1000, 4000)] * 4}\n"


EQUINOX = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np

def double(x):
    return np.asarray(x) * 2

class Net(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x):
        y = self.layer(x)
        shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
        y = jax.pure_callback(double, shape, y, vmap_method="sequential")
        jax.debug.print("{}", y.sum())
        return eqx.error_if(y, y.sum() > 1e30, "too large")

@eqx.filter_jit
def step(net, x):
    return jax.vmap(net)(x)

net = Net(eqx.nn.Linear(4096, 4096, key=jax.random.key(0)))
step(net, jnp.ones((4096, 4096)))
"""


def test_every_callback_has_a_line_of_the_program(tmp_path):
    pytest.importorskip("equinox")
    rows = dryrun_of(tmp_path, EQUINOX, code=0).summary["callbacks"]
    lines = {row["site"].rsplit("/", 1)[-1] for row in rows}
    # JAX's locations have no line of the program for the first and the last.
    expected = {"program.py:4 (double)", "program.py:14 (Net.__call__)", "program.py:22 (<module>)"}
    assert lines == expected
