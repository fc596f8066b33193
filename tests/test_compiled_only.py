"""A program that is compiled and not executed is told by owner and line, as if it had been."""

import json

import pytest
from commands import run_vramfit

SCRIPT = """
import jax, jax.numpy as jnp

def loss(weights, x):
    for w in weights:
        x = jax.nn.relu(jax.lax.conv(x, w, (1, 1), "SAME"))
    return jnp.mean(x**2)

def transform(x):
    return jnp.abs(jnp.fft.fft2(x)) + 1

def invert(x):
    return jnp.linalg.inv(x @ x.T) + x

array = ARRAY
PROGRAMS = {
    "convolutions": (jax.grad(loss), [array((64, 64, 3, 3))] * 3, array((8, 64, 128, 128))),
    "transform": (transform, array((16, 1024, 1024))),
    "solver": (invert, array((2048, 2048))),
}
function, *arguments = PROGRAMS[NAME]
"""
EXECUTED = "jax.jit(function)(*arguments)\n"
COMPILED = "jax.jit(function).lower(*arguments).compile()\n"
OF_THE_PROGRAM = ("activations", "gradients", "temporaries", "outputs", "library_scratch")


def summary_of(script):
    options = ["--gpu", "a100-40g", "--remedies", "off", "--json", "-"]
    done = run_vramfit("dryrun", *options, "--", "python", script, code=0)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["convolutions", "transform", "solver"])
def test_it_has_the_owners_of_one_that_is_executed(write_script, name):
    script = SCRIPT.replace("NAME", repr(name))
    executed = summary_of(write_script(script.replace("ARRAY", "jnp.ones") + EXECUTED))
    shape = "lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)"
    compiled = summary_of(write_script(script.replace("ARRAY", shape) + COMPILED))
    assert (compiled["executions"], compiled["peak_bytes"]) == (0, 0)
    attribution = compiled["attribution"]
    assert attribution["total_bytes"] == compiled["plan"]["needed_bytes"]
    assert sum(each["bytes"] for each in attribution["entries"]) == attribution["total_bytes"]

    def buffers(run):
        names = ("kind", "site", "shape", "producer", "bytes")
        entries = run["attribution"]["entries"]
        found = [
            tuple(each[name] for name in names)
            for each in entries
            if each["kind"] in OF_THE_PROGRAM
        ]
        return sorted(found)

    assert buffers(compiled) == buffers(executed) != []
