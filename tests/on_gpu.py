"""Runs a few lines of JAX on the virtual GPU, without the command line in between."""

import json
import subprocess
import sys
import textwrap

from commands import ROOT, clean_environment, start_command
from run_configs import VARIABLE, write_run_config

PACKAGE = ROOT / "python" / "vramfit"
SHIM = PACKAGE / "_inprogram" / "_jax_shim"
GIB = 1 << 30


class Failed(AssertionError):
    """The lines raised something that the test did not expect."""


def environment(gpu="h100-80g", count=1, run=None, **more):
    """Return an environment in which Python's JAX finds `count` GPUs called `gpu`.

    Args:
        gpu: Name of the virtual GPU.
        count: How many of it.
        run: Fields of the run's configuration, see `write_run_config`.
        more: Other variables.
    """
    settings = {
        "PYTHONPATH": str(SHIM),
        VARIABLE: write_run_config(gpu, count, **(run or {})),
        "JAX_PLATFORMS": "cuda,cpu",
        **{name: str(value) for name, value in more.items()},
    }
    return clean_environment(**settings)


def start(lines, *, python=sys.executable, **settings):
    """Start a process that runs `lines`; they may call `report(**values)`."""
    program = (
        "import json, jax, jax.numpy as jnp, numpy as np\n"
        "def report(**values): print('VALUES', json.dumps(values), flush=True)\n"
        "def stats(device=0): return jax.devices()[device].memory_stats()\n"
        + textwrap.dedent(lines)
    )
    env = environment(**settings)
    return start_command(python, "-c", program, env=env, stdin=subprocess.PIPE)


def finish(process):
    """Wait for a process of `start`; return the values it reported, its output and its errors."""
    out, err = process.communicate()
    values = {}
    for line in out.splitlines():
        if line.startswith("VALUES "):
            values |= json.loads(line.removeprefix("VALUES "))
    return values, out, err, process.returncode


def on_gpu(lines, **settings):
    """Run `lines` on the virtual GPU and return the values that they `report`.

    Raises:
        Failed: If they end with an exception, with its text.
    """
    values, out, err, code = finish(start(lines, **settings))
    if code != 0:
        raise Failed(f"exit code {code}\n{out[-2000:]}\n{err[-6000:]}")
    return values
