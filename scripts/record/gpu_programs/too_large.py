"""Runs out of memory, twice: an array beyond the limit, and arrays until there is no room."""

import json

import jax.numpy as jnp
from allocator_stats import print_stats

GIB = 1 << 30


def attempt(step, make):
    """Tell whether something can be made, and how JAX refuses."""
    message = ""
    try:
        made = make()
        made.block_until_ready()
    except Exception as error:  # its type is a part of what is recorded
        made, message = None, f"{type(error).__name__}: {error}"
    print("REFUSED", json.dumps({"step": step, "message": message}), flush=True)
    print_stats(step)
    return made


attempt("far too much", lambda: jnp.zeros(1 << 40, jnp.uint8))
alive = []
for number in range(400):
    array = attempt(f"array {number}", lambda: jnp.zeros(8 * GIB, jnp.uint8))
    if array is None:
        break
    alive.append(array)
smaller = attempt("a smaller one", lambda: jnp.zeros(GIB // 2, jnp.uint8))
