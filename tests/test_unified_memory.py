"""Unified memory: what the GPUs have no room for lies in host memory, if that has room."""

import pytest
from commands import run_vramfit

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
    assert (
        "fits, if the host has 3.5 GiB of free memory: peak 18.0 GiB on t4, 3.5 GiB of it" in text
    )
    assert condition["moved"] is None, "each program uses less than the GPU has"


def test_a_host_that_has_room_makes_it_slow(run):
    text, summary, [condition] = run(10, 8, "--host-memory", "16GiB")
    assert condition["gpus"] == 1
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
    assert both["gpus"] == 2
    text, _, _ = run(18, 18, "--host-memory", "16GiB", gpu="t4x2")
    assert "peak 18.0 GiB on each of 2 x t4, 7.1 GiB of the peaks of 2 GPUs in host memory" in text
    _, summary, _ = run(18, 18, "--host-memory", "4GiB", gpu="t4x2", code=1)
    assert summary["fits"] is False


def test_what_the_gpu_has_room_for_needs_no_host(run):
    text, _, found = run(4, 4, "--host-memory", "1GiB")
    assert found == []
    assert "host memory" not in text.split("settings of this run")[0]


ONE_CALL = """
import sys
import jax, jax.numpy as jnp
update = jax.jit(lambda x: jnp.sort(x) + x)
x = jnp.ones((int(sys.argv[1]) << 28,))
for _ in range(2):
    x = update(x)
"""


def test_a_call_that_uses_more_than_the_gpu_has_moves_the_rest(dryrun, write_script):
    """6 GiB each: the argument, the result, and temporaries of the sort."""
    script = write_script(ONE_CALL, "program.py")
    done = dryrun(script, 6, options=("--spill", "32GiB"), gpu="t4")
    [condition] = [
        one for one in done.summary["verdict"]["conditions"] if one["kind"] == "host_memory"
    ]
    [program] = [one for one in done.summary["programs"] if one["name"] == "jit__lambda"]
    used = program["argument_bytes"] + program["output_bytes"] + program["temp_bytes"]
    free = done.summary["gpu"]["total_memory_bytes"] - done.summary["context_bytes_estimate"]
    assert condition["moved"] == {
        "program": "jit__lambda",
        "bytes": used - free,
        "link": "pcie3",
    }
    seconds = (used - free) / 15.753846153e9
    text = " ".join(done.err.split())
    assert "each call of `jit__lambda` that uses all of its memory moves at least" in text
    assert f"{(used - free) / GIB:.1f} GiB over the link, {seconds:.1f} s at the full rate" in text


def test_host_memory_is_proposed_with_bytes_and_that_is_what_it_takes(dryrun, write_script):
    script = write_script(ONE_CALL, "program.py")
    refused = dryrun(script, 6, gpu="t4", code=1)
    needed = refused.summary["needed_bytes"]
    free = refused.summary["gpu"]["total_memory_bytes"] - refused.summary["context_bytes_estimate"]
    # `run --spill` gives the pool 90 % of what is free.
    total = refused.summary["gpu"]["total_memory_bytes"]
    host = max(needed - free, (needed - total) / 0.9)
    advice = f"`vramfit run --spill`): what failed needs at least {host / GIB:.1f} GiB of it"
    assert advice in " ".join(refused.err.split())
    fits = dryrun(script, 6, options=("--spill", "32GiB"), gpu="t4")
    assert fits.summary["fits"] is True
    assert fits.summary["peak_bytes"] >= needed
    # Less host memory is no reason to propose it again.
    little = dryrun(script, 6, options=("--spill", "1GiB"), gpu="t4", code=1)
    assert "run --spill" not in " ".join(little.err.split())
    # What no host memory helps: more than three times the GPU.
    text = " ".join(dryrun(script, 60, gpu="t4", code=1).err.split())
    assert "--spill" not in text


def test_run_sets_what_the_dry_run_has(write_script, tmp_path):
    words = ("run", "--gpu", "t4", "--spill", "16GiB", "--print")
    done = run_vramfit(*words, cwd=tmp_path, code=0)
    settings = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert settings["TF_FORCE_UNIFIED_MEMORY"] == "true"
    assert settings["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"
    fraction = float(settings["XLA_CLIENT_MEM_FRACTION"])
    total = 15_642_329_088  # of a T4, in bytes
    assert 16 * GIB - total * 1e-3 <= (fraction - 1) * total <= 16 * GIB
    # Several GPUs share the host.
    words = ("run", "--gpu", "t4x2", "--spill", "16GiB", "--print")
    done = run_vramfit(*words, cwd=tmp_path, code=0)
    half = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert float(half["XLA_CLIENT_MEM_FRACTION"]) - 1 == pytest.approx((fraction - 1) / 2, abs=1e-3)


def test_run_takes_what_the_host_has_free(write_script, tmp_path):
    done = run_vramfit("run", "--gpu", "t4", "--spill", "--print", cwd=tmp_path, code=0)
    assert "of host memory" in done.stderr
    fraction = float(done.stdout.split("XLA_CLIENT_MEM_FRACTION=")[1].split()[0])
    assert fraction > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--spill", "program.py"), "write `--spill -- COMMAND`"),
        (("--spill", "--fraction", "0.5", "--print"), "cannot be used with"),
        (("--spill", "--allocator", "platform", "--print"), "cannot use unified memory"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, words, message):
    done = run_vramfit("run", "--gpu", "t4", *words, cwd=tmp_path, code=None)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())


PAIRS = """
import sys
import jax, jax.numpy as jnp

tokens = int(sys.argv[1])
pairs = jnp.ones((tokens, tokens, 128))


@jax.jit
def update(pairs):
    left = jax.nn.sigmoid(pairs).astype(jnp.bfloat16)
    mixed = jnp.einsum("ikc,jkc->ijc", left, left, preferred_element_type=jnp.float32)
    return pairs + mixed


pairs = update(pairs)
"""


@pytest.mark.parametrize(
    ("tokens", "code", "verdict"),
    [
        # Three arrays of 128 numbers for each pair of tokens: 6.0, 24.0 and 73.5 GiB.
        (2048, 0, "fits: peak 6.0 GiB of"),
        (4096, 0, "fits: peak 24.0 GiB on t4, 9.5 GiB of it in host memory, so it runs slowly"),
        (7168, 1, "does not fit: short by"),
    ],
)
def test_pair_activations_as_in_a_structure_prediction(dryrun, write_script, tokens, code, verdict):
    """On the GPU, beyond it, and beyond GPU and host."""
    script = write_script(PAIRS, "pairs.py")
    done = dryrun(script, tokens, options=("--spill", "40GiB"), gpu="t4", code=code)
    text = " ".join(done.err.split())
    assert verdict in text
    assert "a shortage outside the pool" not in text
    [program] = [one for one in done.summary["programs"] if one["name"] == "jit_update"]
    used = program["argument_bytes"] + program["output_bytes"] + program["temp_bytes"]
    assert 3 * 512 * tokens**2 <= used < 3 * 512 * tokens**2 + (64 << 20)
    assert done.summary["needed_bytes"] == pytest.approx(used, abs=64 << 20)
