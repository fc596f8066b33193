"""Training on a real GPU. `make test-gpu` runs these; nowhere else are they run."""

import textwrap

import pytest
from commands import ROOT, run_python

pytestmark = pytest.mark.gpu

HEAD = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import jax, jax.numpy as jnp, numpy as np
from training import load, start, step
from vramfit.train import fit
"""


def run(code, *arguments):
    return run_python("-c", HEAD + textwrap.dedent(code), *arguments, timeout=170)


def test_t8_a_step_on_the_gpu_gets_the_numbers_of_a_loop_by_hand(train):
    done = run(
        """
        from training import by_hand, same
        result = fit(step, start(), load(sys.argv[1]), epochs=2, device="cuda")
        assert "cuda" in result.device, result.device
        assert result.peak_device_bytes > 0
        assert same(result.state, by_hand(sys.argv[1], 2)[0])
        """,
        train,
    )
    assert done.returncode == 0, done.stderr


def test_t3_nothing_comes_back_from_the_gpu_between_log_points(train):
    # The guard sees copies from a GPU; on the CPU there are none to see.
    done = run(
        """
        jax.config.update("jax_transfer_guard_device_to_host", "disallow")
        try:
            fit(step, start(), load(sys.argv[1]), log_every=8)
        except jax.errors.JaxRuntimeError as error:
            print("guarded", str(error)[:60])
        jax.config.update("jax_transfer_guard_device_to_host", "allow")
        from vramfit.train.loop.metrics import MetricsBuffer
        rotate, reads = MetricsBuffer.rotate, []
        def allowed(self):
            with jax.transfer_guard_device_to_host("allow"):
                reads.append(1)
                return rotate(self)
        MetricsBuffer.rotate = allowed
        jax.config.update("jax_transfer_guard_device_to_host", "disallow")
        fit(step, start(), load(sys.argv[1]), log_every=8)
        print(len(reads))
        """,
        train,
    )
    assert done.returncode == 0, done.stderr
    guarded, reads = done.stdout.splitlines()
    assert guarded.startswith("guarded"), "the guard sees the reading of losses"
    # Four chunks of 32 steps, and two rotations at the end.
    assert reads == "6"


def test_t14_a_step_that_finds_no_memory_says_what_was_in_use(train):
    done = run(
        """
        def large(state, batch):
            rows = batch["x"].shape[0]
            noise = jax.random.normal(jax.random.key(0), (rows, 1 << 30))
            return state, jnp.tanh(noise @ noise.T @ noise).sum()
        fit(large, start(), load(sys.argv[1]))
        """,
        train,
    )
    assert done.returncode == 1
    assert "InsufficientMemoryError: out of memory" in done.stderr
    assert "with a batch of 32 rows" in done.stderr
    assert "were in use" in done.stderr
