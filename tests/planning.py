"""What the tests of `vramfit plan` share: how to call it, and a program to plan."""

import atexit
import json
import tempfile

from commands import run_vramfit

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
    return run_vramfit(*arguments, env=env, code=code, timeout=600)


def peak(done):
    """Return the peak in the JSON of a dry run."""
    answer = json.loads(done.stdout.splitlines()[-1])
    return max(device["peak_bytes"] for device in answer["devices"])
