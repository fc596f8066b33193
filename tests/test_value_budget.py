"""Which values are computed: constants of megabytes, and nothing that takes very long."""

import jax
import jax.numpy as jnp
import pytest
from cli_dryrun import dryrun_of
from on_gpu import on_gpu

# What e3nn-jax does to each activation function: samples that depend on no input are averaged, and
# the program divides by the result (`normalize_function`).
NORMALIZE = """
samples = jax.scipy.special.ndtri(jnp.linspace(0.0, 1.0, 1_000_001 + 2)[1:-1])
constant = float(jnp.mean(jax.nn.silu(samples) ** 2) ** 0.5)
report(constant=constant, inverse=1 / constant)
"""


def test_a_constant_averaged_over_a_million_samples_is_that_of_the_cpu():
    values = on_gpu(NORMALIZE)
    samples = jax.scipy.special.ndtri(jnp.linspace(0.0, 1.0, 1_000_001 + 2)[1:-1])
    expected = float(jnp.mean(jax.nn.silu(samples) ** 2) ** 0.5)
    assert values["constant"] == pytest.approx(expected, rel=1e-4)


def test_large_arrays_are_not_computed_where_that_takes_long():
    # 2^27 multiplications for each of 1,000 rounds: hours, for 2 MiB.
    values = on_gpu(
        """
        x = jnp.full((512, 512), 1 / 512)
        step = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, y: y @ x, x))
        x = jnp.concatenate([x, x])
        report(value=float(jax.jit(lambda x: step(x[:512]))(x)[0, 0]))
        """
    )
    assert values["value"] == 0.0


FAILS = """
import jax.numpy as jnp
large = jnp.ones((4000, 4000))
def scale(): return float(large.sum())
print(1 / scale())
"""


def test_a_failure_after_a_made_up_read_names_the_line(tmp_path):
    run = dryrun_of(tmp_path, FAILS)
    assert run.summary["process_exit"]["code"] == 1
    cause = run.summary["likely_cause"]
    assert cause["kind"] == "placeholder_read"
    assert cause["site"].endswith("program.py:4 (scale)")
    assert "why the program may have failed" in run.err
    assert "program.py:4 (scale)" in run.page


def test_a_program_that_does_not_fail_has_no_cause(tmp_path):
    run = dryrun_of(tmp_path, FAILS.replace("1 / scale()", "scale()"))
    assert run.summary["likely_cause"] is None
    assert run.summary["unknown_reads"]


ENDLESS = """
import jax, jax.numpy as jnp

@jax.jit
def search(x):
    return jax.lax.while_loop(lambda v: v >= 0, lambda v: (v + 1) % 10, x)

@jax.jit
def count(x):
    return x + 1

found = [int(search(jnp.int32(n))) for n in range(3)]
counted = jnp.int32(0)
for _ in range(100):
    counted = count(counted)
print("found", found, "counted", int(counted))
"""


def test_a_loop_that_never_ends_is_given_up_and_reported(tmp_path):
    run = dryrun_of(tmp_path, ENDLESS, env={"VRAMFIT_VALUES_BUDGET": "3"})
    assert run.out == "found [0, 0, 0] counted 100\n"
    (row,) = run.summary["not_computed"]
    assert (row["program"], row["reason"]) == ("jit_search", "program_budget")
    assert row["spent_ms"] >= 1000
    assert "values of `jit_search`" in " ".join(run.summary["caveats"])


def test_no_value_is_computed_where_that_is_not_requested(tmp_path):
    run = dryrun_of(tmp_path, ENDLESS, "--no-values")
    assert run.out == "found [0, 0, 0] counted 0\n"
    assert run.summary["evaluated"] == 0
    assert "--no-values" in " ".join(run.summary["caveats"])


def test_the_past_of_a_long_loop_is_not_kept():
    # Each value was kept by the one made of it: when the last went, so did the stack.
    values = on_gpu(
        """
        import resource
        count = jax.jit(lambda x: x + 1)
        x = jnp.int32(0)
        for _ in range(60_000):
            x = count(x)
        last = int(x)
        del x
        report(last=last)
        """
    )
    assert values["last"] == 60_000
