"""What the tests of `vramfit plan` share: how to call it, and a program to plan."""

import ast
import atexit
import json
import tempfile

from commands import ROOT, run_command, run_vramfit

_RUNS = [ROOT / "tests" / "plan" / name for name in ("runs.py", "styles.py")]
_LIBRARIES = ("optax", "linen", "nnx", "equinox", "haiku", "keras", "numpyro")

# Compiled programs are kept from one test to the next.
_cache = tempfile.TemporaryDirectory(prefix="vramfit-cache-")
atexit.register(_cache.cleanup)

# Eight layers whose activations are most of the peak; argument: rows of the batch.
LAYERS = """
import sys
import jax
import jax.numpy as jnp

def layer(x, w):
    return x + jnp.sin(jnp.sin(x @ w) @ w.T)

def loss(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x**2)

@jax.jit
def step(ws, x):
    value, gradients = jax.value_and_grad(loss)(ws, x)
    return [w - g for w, g in zip(ws, gradients)], value

ws = [jnp.ones((512, 512)) * 0.01 for _ in range(8)]
x = jnp.ones((int(sys.argv[1]), 512))
for _ in range(4):
    ws, value = step(ws, x)
print("loss", float(value))
"""


def vramfit(*arguments, code=None, **env):
    env = {"XDG_CACHE_HOME": _cache.name} | env
    return run_vramfit(*arguments, env=env, code=code, timeout=1200)


def peak(done):
    """Return the peak in the JSON of a dry run."""
    summary = json.loads(done.stdout.splitlines()[-1])
    return max(device["peak_bytes"] for device in summary["devices"])


def run_names(*, of_libraries=True):
    """Return the names of the training runs of `plan/runs.py` and `plan/styles.py`."""
    nodes = (node for path in _RUNS for node in ast.parse(path.read_text()).body)
    functions = [
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and not node.args.args
        and not node.name.startswith("_")
    ]
    return [name for name in functions if of_libraries or not name.startswith(_LIBRARIES)]


# Some of the functions of these read values, and are left alone.
READ_VALUES = ("an_eager_loss_that_reads_a_value", "eager_losses_that_look_at_values")
# JAX compiles nothing, or what there is reads values.
WITHOUT_SITES = ("without_compilation", "eager_losses_that_look_at_values")


def check_runs(command, names, *options, is_exact=True):
    """Check that plans which cut everything change no result of training runs.

    Args:
        command: Of the Python.
        names: Of the runs.
        options: Of `plan/same_runs.py`.
        is_exact: Whether a run whose sites are recorded gives the same numbers to the bit. Outside
            of `jit` some releases compile other groups of operations for it.
    """
    env = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "python")}
    script = ROOT / "tests" / "plan" / "same_runs.py"
    done = run_command(*command, script, *options, *names, env=env, code=0)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["name"] for each in found] == names
    for each in found:
        name = each["name"]
        assert each["planned"] < each["tolerance"], each
        assert bool(each["sites"]) == (name not in WITHOUT_SITES), each
        assert ("value_read" in each["left_alone"]) == (name in READ_VALUES), each
        # What reads a value is called again, in the dry run that finds the sites.
        if name not in READ_VALUES:
            assert each["recorded"] <= (0 if is_exact else each["tolerance"]), each
