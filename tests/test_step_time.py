"""The time of a step is estimated, and estimating changes nothing else."""

import pytest
from cli_dryrun import dryrun_of

TRAINING = """
import functools, jax, jax.numpy as jnp

def loss(w, x):
    y, _ = jax.lax.scan(lambda y, w: (jnp.tanh(y @ w), None), x, w)
    return y.astype(jnp.float32).mean()

@functools.partial(jax.jit, donate_argnums=0)
def step(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    return w - gradient, value

w, x = jnp.zeros((8, 2048, 2048), jnp.bfloat16), jnp.zeros((4096, 2048), jnp.bfloat16)
for _ in range(3):
    w, _ = step(w, x)
"""
# 8 layers, 3 products each of 2 * 4096 * 2048 * 2048 operations, at 1,070.5 TFLOP/s.
LOW_US = 8 * 3 * 2 * 4096 * 2048 * 2048 / 1070.53e6


@pytest.mark.parametrize("gpu", ["h100-80g", "a100-80g"])
def test_a_step_has_a_bound_and_an_estimate(gpu, tmp_path):
    said = dryrun_of(tmp_path, TRAINING, gpu=gpu)
    time = said.summary["step_time"]
    assert time["low_us"] <= time["model_us"] <= 8 * time["low_us"]
    assert time["unknown_share"] == 0
    assert time["comparable"]
    assert "of it unknown" not in said.err
    assert any("program.py:5 (loss" in one["site"] for one in time["operations"][:3])
    if gpu == "h100-80g":
        assert time["low_us"] == pytest.approx(LOW_US, rel=0.01)
        assert "estimated (XLA's model)" in said.err
        assert time["xla_us"] > 0
    else:
        assert "estimated (roofline)" in said.err
        assert time["xla_us"] == 0


def test_estimates_change_no_memory_and_no_setting_of_the_user(tmp_path):
    said = dryrun_of(tmp_path, TRAINING)
    off = {"XLA_FLAGS": "--xla_gpu_collect_cost_model_stats=false"}
    without = dryrun_of(tmp_path, TRAINING, env=off)
    assert without.summary["step_time"]["xla_us"] == 0
    for key in ["peak_bytes", "steady_state_bytes", "programs", "attribution"]:
        assert said.summary[key] == without.summary[key]
    assert "cost_model" not in str(said.summary["settings"])


def test_without_a_training_step_there_is_no_time(tmp_path):
    lines = "import jax.numpy as jnp\nprint(jnp.ones((4, 4)).sum())"
    assert dryrun_of(tmp_path, lines).summary["step_time"] is None
