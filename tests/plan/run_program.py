"""Trains one of the programs of `programs.py` for two steps: ``python run_program.py NAME``.

Its data is repeated, so that activations are most of its memory. Without a name the names are
printed.
"""

import sys

import jax
import jax.numpy as jnp
from programs import PROGRAMS

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


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    print("\n".join(PROGRAMS))
