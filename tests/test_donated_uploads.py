"""Donated arguments that were made from host memory: both figures, until a GPU has decided.

JAX is reported to copy such arrays on GPUs in the call that is donated them (jax-ml/jax#18617).
"""

import sys

import pytest
from commands import clean_environment, run_command

GIB = 1 << 30
PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
shape = (1 << 28,)
state = jax.device_put(np.ones(shape, np.float32)) if sys.argv[1] == "host" else jnp.ones(shape)
step = jax.jit(lambda state: state * 2, donate_argnums=0 if sys.argv[2] == "donated" else ())
for _ in range(2):
    state = step(state)
print(jax.devices()[0].memory_stats()["peak_bytes_in_use"])
"""
CAVEAT = "donated arguments of 1.0 GiB were made from host memory"


@pytest.fixture
def run(dryrun, write_script):
    """Dry-run the program: where its state comes from, and whether that is donated."""
    script = write_script(PROGRAM, "program.py")

    def with_state(made_on, donated, *options):
        done = dryrun(script, made_on, donated, gpu="t4", options=options)
        conditions = done.summary["verdict"]["conditions"]
        found = [one for one in conditions if one["kind"] == "donated_uploads"]
        return done.summary, " ".join(done.err.split()), found

    return with_state


def test_both_figures_are_given(run):
    summary, text, conditions = run("host", "donated")
    assert summary["peak_bytes"] < GIB + 4096
    assert f"{CAVEAT} (uploaded, or restored)" in text
    assert "and the peak would then be 2.0 GiB" in text
    uploads = summary["donated_uploads"]
    assert uploads["bytes"] == GIB
    assert 2 * GIB <= uploads["in_use_bytes"] < 2 * GIB + 4096
    assert conditions == []


def test_it_is_a_condition_where_copies_would_not_fit(run):
    summary, text, [condition] = run("host", "donated", "--limit", "1536MiB")
    assert summary["fits"] is True
    assert condition["bytes"] == GIB
    assert condition["in_use_bytes"] == summary["donated_uploads"]["in_use_bytes"] >= 2 * GIB
    assert condition["capacity_bytes"] == summary["limit_bytes"]
    assert text.count(CAVEAT) == 1
    assert "then it does not fit, since only 1.5 GiB are available" in text


def test_the_temporaries_of_the_call_count(dryrun, write_script):
    """What is in use when the call runs, and not what it leaves."""
    lines = PROGRAM.replace("state * 2", "jnp.sort(state) * 2 + jnp.cumsum(state)")
    done = dryrun(write_script(lines, "program.py"), "host", "donated", gpu="h100-80g")
    [program] = [one for one in done.summary["programs"] if one["temp_bytes"] >= GIB]
    uploads = done.summary["donated_uploads"]
    assert uploads["bytes"] == GIB
    # The donated argument is the result; its copy and the temporaries come to that.
    assert uploads["in_use_bytes"] >= 2 * GIB + program["temp_bytes"]


@pytest.mark.parametrize("state", [("gpu", "donated"), ("host", "kept")])
def test_nothing_is_said_of_other_arguments(run, state):
    summary, text, conditions = run(*state)
    assert summary["donated_uploads"] is None
    assert "made from host memory" not in text
    assert conditions == []


@pytest.mark.gpu
@pytest.mark.parametrize("made_on", ["host", "gpu"])
def test_a_gpu_reuses_what_it_is_donated(write_script, made_on):
    """Where it fails for `host`, JAX copies, and `DonatedUploads` belongs into the peak."""
    script = write_script(PROGRAM, "program.py")
    done = run_command(sys.executable, script, made_on, "donated", env=clean_environment(), code=0)
    assert int(done.stdout) < 1.5 * GIB
