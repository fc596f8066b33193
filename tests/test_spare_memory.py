"""The batch that a dry run says there is room for: the program with that batch fits."""

import re
import sys

import pytest
from commands import run_vramfit

# Argument: rows of the batch.
PROGRAM = """
import sys
import jax
import jax.numpy as jnp

@jax.jit
def step(w, x):
    def loss(w):
        h = jnp.tanh(jnp.tanh(x @ w) @ w)
        {loss}
        return jnp.mean(h**2), h
    (_, h), g = jax.value_and_grad(loss, has_aux=True)(w)
    return w - g, h

w = jnp.zeros((1024, 1024))
x = jnp.zeros((int(sys.argv[1]), 1024))
kept = []
for _ in range(4):
    w, h = step(w, x)
    {use}
"""


@pytest.mark.parametrize(
    ("rows", "loss", "use"),
    [
        (1 << 17, "pass", "pass"),
        (1 << 17, "pass", "kept.append(h)"),
        (1 << 14, "h = jnp.tanh(h @ h.T)", "pass"),
    ],
    ids=["activations", "kept-results", "pairs-of-rows"],
)
def test_the_batch_that_there_is_room_for_fits(write_script, rows, loss, use):
    program = write_script(PROGRAM.format(loss=loss, use=use))

    def dryrun(rows, **options):
        command = ("dryrun", "--gpu", "t4", "--", sys.executable, program, rows)
        return run_vramfit(*command, **options).stderr

    found = re.search(r"room\s+for\s+about\s+([0-9.]+)\s+times", dryrun(rows, code=0))
    if "h.T" in loss:
        assert found is None
        return
    factor = float(found[1])
    assert factor > 1.5
    dryrun(int(rows * factor), code=0)
    dryrun(int(rows * factor * 1.6), code=1)
