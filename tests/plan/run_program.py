"""Trains a program of `programs.py`, or makes a run of `runs.py` or of `styles.py`, by its name.

The data of the programs is repeated, so that activations are most of their memory; they train for
two steps. Without a name, the names are printed, each with the number of GPUs that it needs.
"""

import sys

import jax
import jax.numpy as jnp
from programs import PROGRAMS
from runs import RUNS
from styles import RUNS as STYLES

REPETITIONS = 256
# Its data belongs to a given graph.
FIXED = ("graph_network",)


def main(name):
    """Train a program."""
    loss, parameters, data = PROGRAMS[name]()
    if name not in FIXED:
        data = jnp.repeat(data, REPETITIONS, axis=0)
    has_aux = name == "resnet"

    @jax.jit
    def step(parameters, data):
        result, gradients = jax.value_and_grad(loss, has_aux=has_aux)(parameters, data)
        parameters = jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)
        return parameters, result[0] if has_aux else result

    for _ in range(2):
        parameters, value = step(parameters, data)
    jax.block_until_ready(value)


if len(sys.argv) == 1:
    for name in PROGRAMS:
        print(name, 8 if name == "sharded" else 1)
    for name in RUNS | STYLES:
        print(name, 8)
elif sys.argv[1] in PROGRAMS:
    main(sys.argv[1])
else:
    (RUNS | STYLES)[sys.argv[1]]()
