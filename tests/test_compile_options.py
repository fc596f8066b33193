"""Flags and options for the compiler that the user has set hold, and their errors are shown."""

import pytest
from cli_dryrun import dryrun_of

# A product of 12,544 rows in attention has no default tiling for Triton: it compiles only by the
# second attempt. On a GPU the autotuner would choose another kernel.
ATTENTION = """
import jax, jax.numpy as jnp

def attention(w, x):
    q, k, v = [jnp.einsum("bld,dhk->blhk", x, w) + 0.1 * i for i in range(3)]
    weights = jax.nn.softmax(jnp.einsum("blhk,bmhk->bhlm", q, k))
    mixed = jnp.einsum("bhlm,bmhk->blhk", weights, v)
    return (mixed.reshape(x.shape) @ w.reshape(512, 512)).sum()

w, x = jnp.ones((512, 8, 64)), jnp.ones((64, 196, 512))
"""

NO_TILES = "Couldn't find output tile sizes"


def attempt_of(tmp_path, script, **environment):
    """Return by which attempt `attention` was compiled, and what the program printed."""
    said = dryrun_of(tmp_path, ATTENTION + script, env=environment, code=0)
    programs = said.summary["programs"]
    attempts = [row["compile_attempt"] for row in programs if row["name"] == "jit_attention"]
    return (attempts or [None])[0], said.out


PRINT_ERROR = """
try:
    {}
except Exception as error:
    print(error)
"""


def test_a_program_without_default_kernels_is_compiled_another_way(tmp_path):
    assert attempt_of(tmp_path, "jax.jit(attention)(w, x)") == ("without Triton GEMM", "")


@pytest.mark.parametrize(
    ("call", "flags"),
    [
        ("jax.jit(attention)(w, x)", "--xla_gpu_enable_triton_gemm=true"),
        (
            'jax.jit(attention, compiler_options={"xla_gpu_enable_triton_gemm": True})(w, x)',
            "",
        ),
        (
            "jax.jit(attention).lower(w, x).compile("
            'compiler_options={"xla_gpu_enable_triton_gemm": True})',
            "",
        ),
    ],
    ids=["environment", "jit", "compile"],
)
def test_a_choice_of_kernels_by_the_user_holds(tmp_path, call, flags):
    compile_attempt, printed = attempt_of(tmp_path, PRINT_ERROR.format(call), XLA_FLAGS=flags)
    assert compile_attempt is None
    assert NO_TILES in printed


def test_the_same_choice_as_ours_is_the_first_attempt(tmp_path):
    compile_attempt, _ = attempt_of(
        tmp_path, "jax.jit(attention)(w, x)", XLA_FLAGS="--xla_gpu_enable_triton_gemm=false"
    )
    assert compile_attempt == ""


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"xla_no_such_option": True}, "No such compile option: 'xla_no_such_option'"),
        ({"xla_gpu_enable_triton_gemm": "maybe"}, "'maybe' is not a valid bool value"),
        ({"xla_gpu_cudnn_gemm_fusion_level": "no"}, "'no' is not a valid int32 value"),
    ],
    ids=["name", "compile_attempt", "last compile_attempt"],
)
def test_an_option_that_the_compiler_does_not_take_is_its_error(tmp_path, options, error):
    for call in (
        f"jax.jit(attention, compiler_options={options!r})(w, x)",
        f"jax.jit(attention).lower(w, x).compile(compiler_options={options!r})",
    ):
        compile_attempt, printed = attempt_of(tmp_path, PRINT_ERROR.format(call))
        assert compile_attempt is None
        assert error in printed
        assert NO_TILES not in printed
