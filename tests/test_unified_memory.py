"""Unified memory: what the GPUs have no room for lies in host memory, if that has room."""

import pytest

UNIFIED = {
    "TF_FORCE_UNIFIED_MEMORY": "1",
    "XLA_CLIENT_MEM_FRACTION": "3",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
GIB = 1 << 30
PROGRAM = """
import sys
import jax, jax.numpy as jnp
with jax.default_device(jax.devices()[0]):
    first = [jnp.ones((1 << 28,)) for _ in range(int(sys.argv[1]))]
with jax.default_device(jax.devices()[-1]):
    last = [jnp.ones((1 << 28,)) for _ in range(int(sys.argv[2]))]
"""


@pytest.fixture
def run(dryrun, write_script):
    """Run a program that makes so many GiB on its first GPU, and on its last."""

    def run_with(first, last, *options, gpu="t4", code=0):
        script = write_script(PROGRAM, "program.py")
        done = dryrun(script, first, last, options=options, gpu=gpu, env=UNIFIED, code=code)
        found = done.summary["verdict"]["conditions"]
        found = [one for one in found if one["kind"] == "host_memory"]
        return " ".join(done.err.split()), done.summary, found

    return run_with


def test_without_the_size_of_the_host_it_is_a_condition(run):
    text, summary, [condition] = run(10, 8)
    assert summary["fits"] is True
    assert (condition["bearing"], condition["available_bytes"]) == ("assumed", None)
    # 14.6 GiB, less the context.
    assert 18 * GIB - 14.6 * GIB < condition["host_bytes"] < 18 * GIB - 14.4 * GIB
    assert "fits, if the host has 3.5 GiB of free memory: peak 18.0 GiB" in text


def test_a_host_that_has_room_makes_it_slow(run):
    text, summary, [condition] = run(10, 8, "--host-memory", "16GiB")
    assert (summary["fits"], condition["bearing"]) == (True, "explained")
    assert condition["available_bytes"] == 16 * GIB
    assert "fits: peak 18.0 GiB on t4, 3.5 GiB of it in host memory, so it runs slowly" in text
    assert "it moves over the link to the GPU" in text


def test_a_host_without_room_ends_it(run):
    text, summary, _ = run(10, 8, "--host-memory", "3GiB", code=1)
    assert summary["fits"] is False
    expected = "does not fit: unified memory would move 3.5 GiB to the host, which has 3.0 GiB free"
    assert expected in text


def test_all_gpus_of_a_host_share_its_memory(run):
    _, _, [one] = run(10, 8)
    _, _, [both] = run(18, 18, gpu="t4x2")
    assert both["host_bytes"] == 2 * one["host_bytes"]
    _, summary, _ = run(18, 18, "--host-memory", "4GiB", gpu="t4x2", code=1)
    assert summary["fits"] is False


def test_what_the_gpu_has_room_for_needs_no_host(run):
    text, _, found = run(4, 4, "--host-memory", "1GiB")
    assert found == []
    assert "host memory" not in text.split("settings of this run")[0]
