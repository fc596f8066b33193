"""A line that promotes values to a wider type is named, and nothing else is called a promotion."""

import re

import pytest
from commands import run_vramfit

PRELUDE = """
import jax, jax.numpy as jnp, numpy as np
X64 = jax.config.update("jax_enable_x64", {x64})
half = np.full((4096,), 0.5, np.float32)

def layers(h):
    for _ in range(3):
        h = jnp.cos(h @ h[:4096].T) + h
    return h
"""

BFLOAT16 = "jnp.ones((16384, 4096), jnp.bfloat16)"
FLOAT32 = "jnp.ones((16384, 4096), jnp.float32)"

# What a function computes of `x`, which is line 11, whether 64 bits are on, `x`, and what is said.
PROMOTIONS = {
    "float32 constant": (
        "h = x * half",
        False,
        BFLOAT16,
        "bfloat16: program.py:11 (f) promotes bfloat16 to float32, because a constant is float32; ",
    ),
    "float32 argument": (
        "h = x * y",
        False,
        BFLOAT16,
        "bfloat16: program.py:11 (f) promotes bfloat16 to float32, because `y` is float32; ",
    ),
    "product": (
        "h = x @ jnp.tile(y, (4096, 1))",
        False,
        BFLOAT16,
        "bfloat16: program.py:11 (f) promotes bfloat16 to float32, because another operand is "
        "float32; ",
    ),
    "where": (
        "h = jnp.where(x > 0, x, jnp.finfo(jnp.float32).min)",
        False,
        BFLOAT16,
        "bfloat16: program.py:11 (f) promotes bfloat16 to float32, because another operand is "
        "float32; ",
    ),
    "terms of an expression": (
        "h = x * half + y",
        False,
        BFLOAT16,
        "bfloat16: program.py:11 (f) promotes bfloat16 to float32, because a constant is float32; ",
    ),
    "NumPy scalar": (
        "h = x / np.sqrt(128)",
        True,
        FLOAT32,
        "float32: program.py:11 (f) promotes float32 to float64, because a constant is float64; ",
    ),
    "NumPy array": (
        "h = x + np.linspace(0, 1, 4096)",
        True,
        FLOAT32,
        "float32: program.py:11 (f) promotes float32 to float64, because a constant is float64; ",
    ),
}
NO_PROMOTIONS = {
    "cast": ("h = x.astype(jnp.float32) * half", False, BFLOAT16),
    "cast on its own": ("h = x.astype(jnp.float32); h = h * half", False, BFLOAT16),
    "cast in a statement of several lines": (
        "h = (x\n         .astype(jnp.float32) * half)",
        False,
        BFLOAT16,
    ),
    "Python scalar": ("h = x * 0.5", False, BFLOAT16),
    "narrow again": ("h = (x * half).astype(jnp.bfloat16)", False, BFLOAT16),
    "what widens for itself": ("h = x - jnp.var(x) + jnp.mean(x)", False, BFLOAT16),
    "asked for": ("h = jnp.dot(x, x.T, preferred_element_type=jnp.float32)", False, BFLOAT16),
    "wide from the beginning": ("h = x * half", False, FLOAT32),
    "NumPy scalar without 64 bits": ("h = x / np.sqrt(128)", False, FLOAT32),
}


@pytest.fixture
def advice(tmp_path):
    """Return a function that gives the ways to reduce memory, as one line."""

    def run(statement, x64, x, gpu="a10"):
        path = tmp_path / "program.py"
        function = f"@jax.jit\ndef f(x, y):\n    {statement}\n    return jnp.sum(layers(h))\n"
        call = f"f({x}, jnp.ones((4096,), jnp.float32))\n"
        path.write_text(PRELUDE.format(x64=x64).strip("\n") + "\n" + function + call)
        said = run_vramfit("dryrun", "--full", "--gpu", gpu, path, cwd=tmp_path).stderr
        _, _, after = said.partition("ways to reduce memory")
        return re.sub(r"\s+", " ", after.partition("\n\n")[0])

    return run


@pytest.mark.parametrize("name", PROMOTIONS)
def test_the_line_that_promotes_is_named(advice, name):
    *program, expected = PROMOTIONS[name]
    said = advice(*program)
    assert f"stay in {expected}" in said
    assert re.search(
        r"at the peak are float(32|64) that is computed from it, .* more than in", said
    )


@pytest.mark.parametrize("name", NO_PROMOTIONS)
def test_nothing_else_is_a_promotion(advice, name):
    assert "promotes" not in advice(*NO_PROMOTIONS[name])


def test_no_type_is_advised_that_the_gpu_does_not_compute_in(advice):
    statement, x64, x, _ = PROMOTIONS["float32 constant"]
    assert "promotes" not in advice(statement, x64, x, gpu="t4")
