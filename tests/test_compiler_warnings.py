"""What XLA's compiler warns of reaches the user, the answer, and the trace."""

import json

import pytest
from cli_dryrun import dryrun_of
from commands import run_vramfit

# Keeps an activation of 16 MiB for each layer. `sys.argv[1]` is how often it is compiled.
TRAIN = """
import sys, jax, jax.numpy as jnp

def loss(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x**2).sum()

weights = [jnp.zeros((256, 256)) for _ in range(8)]
for rows in range(int(sys.argv[1])):
    try:
        jax.block_until_ready(jax.jit(jax.grad(loss))(weights, jnp.zeros((16384, 256))))
    except jax.errors.JaxRuntimeError as error:
        print("refused", str(error)[:18], file=sys.stderr)
    jax.clear_caches()
"""


@pytest.fixture
def dryrun(tmp_path):
    """Run a program on a small pool: `dryrun(TRAIN, "1")` gives its summary and standard error."""

    def run(program, *arguments, options=(), code=1):
        options = ["--limit", "96MiB", *options]
        said = dryrun_of(tmp_path, program, *options, gpu="t4", arguments=arguments, code=code)
        return said.summary, said.err

    return run


def test_rematerialization_that_did_not_reach_its_aim_is_reported_and_explained(dryrun, tmp_path):
    trace = tmp_path / "run.trace"
    summary, err = dryrun(TRAIN, "2", options=("--trace", str(trace)))
    warnings = summary["compiler_warnings"]
    assert [warning["program"] for warning in warnings] == ["jit_loss"]
    assert warnings[0]["source"] == "hlo_rematerialization.cc"
    assert warnings[0]["count"] == 2
    # It is told in XLA's own words at once, and in ours at the end.
    assert err.count("hlo_rematerialization.cc:") == 2
    assert err.index("hlo_rematerialization.cc:") < err.index("refused RESOURCE_EXHAUSTED")
    explained = " ".join(err.split("compiler warnings")[1].split())
    assert explained.startswith("- `jit_loss`: XLA's target for its temporaries was ")
    assert "(2 times)" in explained.split(" - ")[0].split("programs, per device")[0]

    again = run_vramfit("report", trace, "--json", "-")
    assert json.loads(again.stdout)["compiler_warnings"] == warnings


def test_a_program_that_fits_has_no_warnings(dryrun):
    program = "import jax.numpy as jnp; print(jnp.ones(8).sum())"
    summary, err = dryrun(program, code=0)
    assert summary["compiler_warnings"] == []
    assert "compiler warnings" not in err


def test_arguments_larger_than_the_pool_are_distinguished_from_an_error_in_a_calculation(dryrun):
    program = """
import jax, jax.numpy as jnp
shape = jax.ShapeDtypeStruct((1 << 26,), jnp.float32)
jax.jit(lambda x: x.sum()).lower(shape).compile()
jnp.ones(8).sum()
"""
    summary, err = dryrun(program, code=1)
    assert summary["fits"] is False
    texts = [warning["text"] for warning in summary["compiler_warnings"]]
    assert any("input/output arguments (268435460) exceeds" in text for text in texts)
    assert "arguments and outputs alone (256.0 MiB) exceed the pool" in " ".join(err.split())


def test_standard_error_is_the_programs_again_after_each_compile(dryrun):
    program = """
import os, sys, jax.numpy as jnp
before = os.fstat(2)
jnp.ones(8).sum()
after = os.fstat(2)
print("same", (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino), file=sys.stderr)
"""
    _, err = dryrun(program, code=0)
    assert "same True" in err
