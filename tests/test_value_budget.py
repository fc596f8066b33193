"""Which values are computed: constants of megabytes, and nothing that takes very long."""

import json

import jax
import jax.numpy as jnp
import pytest
from cli_dryrun import dryrun_of
from commands import run_vramfit
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


def test_a_program_that_fails_with_0_is_run_again_with_1(tmp_path):
    lines = FAILS + "kept = jnp.ones((30000, 30000))\n"
    run = dryrun_of(tmp_path, lines, trace=tmp_path / "run.trace", code=0)
    text = " ".join(run.err.split())
    assert "ZeroDivisionError at program.py:5" in text
    assert "fits, if what is read at program.py:4 (scale) is 1: peak" in text
    assert run.summary["process_exit"]["code"] == 0
    [condition] = run.summary["verdict"]["conditions"]
    assert (condition["kind"], condition["value"]) == ("placeholder_decides", "1")
    # All results are those of the second run, which goes on after the line.
    peak = run.summary["devices"][0]["peak_bytes"]
    assert peak > 4 * 30000**2
    report = run_vramfit("report", "--json", "-", run.trace, code=0)
    assert json.loads(report.stdout)["devices"][0]["peak_bytes"] == peak


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise SystemExit('no scale')", "SystemExit"),  # Python keeps no line of it
        ("sys.exit('no scale')", "SystemExit at program.py:7 (<module>)"),
        ("raise SystemExit(3)", "exit code 3"),
        ("sys.exit(3)", "exit code 3"),
        ("os._exit(3)", "exit code 3"),
    ],
)
def test_a_program_that_exits_because_of_0_is_run_again_with_1(tmp_path, end, reason):
    lines = FAILS.replace("print(1 / scale())", f"import os, sys\nif scale() == 0:\n    {end}")
    run = dryrun_of(tmp_path, lines, code=0)
    text = " ".join(run.err.split())
    assert f"read as 0 ({reason}); what follows" in text
    assert "program.py:4 (scale) is 1" in text


def test_a_predicate_reads_what_the_program_reads(tmp_path):
    """Where values read as 1, "are all valid?" does not read them as 0."""
    lines = """
import jax, jax.numpy as jnp
scale = jax.jit(lambda x: (x * 2, x.sum(axis=1) > 5))
_, is_valid = scale(jnp.tanh(jnp.ones((4000, 4000))))
if not jnp.all(is_valid):
    raise RuntimeError("no valid initial parameters")
"""
    text = " ".join(dryrun_of(tmp_path, lines, code=0).err.split())
    assert "RuntimeError at program.py:6" in text
    assert "fits, if what is read at program.py:5 (<module>) is 1: peak" in text


def test_a_program_that_fails_with_1_as_well_names_the_line(tmp_path):
    run = dryrun_of(tmp_path, FAILS + "print([5][int(scale())])\n")
    assert run.summary["process_exit"]["code"] == 1
    cause = run.summary["likely_cause"]
    assert cause["kind"] == "placeholder_read"
    assert cause["site"].endswith("program.py:4 (scale)")
    assert "because of a value that was not computed" in " ".join(run.err.split())
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


# XLA pads rows that are no multiple of 32 numbers, also those of constants.
CAPTURED = """
import jax, jax.numpy as jnp

@jax.jit
def sgd(weights, x):
    gradients = jax.grad(lambda p: sum([(x @ w) ** 2 for w in p], 0.0).mean())(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients)]

keys = jax.random.split(jax.random.key(0), 4)
weights = sgd([jax.random.normal(key, (3072, 3072)) for key in keys], jnp.ones((8, 3072)))

@jax.jit
def predict(x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x

predict(jnp.ones((8, 3072)))
predict(jnp.ones((16, 3072)))
"""


def test_captured_arrays_that_were_not_computed_are_constants_of_their_own(tmp_path):
    run = dryrun_of(tmp_path, CAPTURED, code=0)
    constants = [program["constant_bytes"] for program in run.programs("jit_predict")]
    assert constants == [4 * 4 * 3072**2] * 2
