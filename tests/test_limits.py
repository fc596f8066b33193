"""The totals of a GPU, the limits of its allocators, and what the compiler plans for."""

import re

import pytest
from cli_dryrun import dryrun_of

MIB = 1 << 20

# Needs one array of so many bytes, and nothing else to speak of.
ONE_ARRAY = """
import sys, jax, jax.numpy as jnp
jax.block_until_ready(jax.jit(lambda: jnp.zeros(int(sys.argv[1]), jnp.uint8))())
"""

# Keeps an activation of 16 MiB for each of 24 layers, far more than the GPU below has.
LAYERS, WIDTH, ROWS = 24, 256, 16384
TRAIN = f"""
import jax, jax.numpy as jnp

def loss(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x**2).sum()

weights = [jnp.zeros(({WIDTH}, {WIDTH})) for _ in range({LAYERS})]
try:
    jax.block_until_ready(jax.jit(jax.grad(loss))(weights, jnp.zeros(({ROWS}, {WIDTH}))))
except jax.errors.JaxRuntimeError:
    pass
"""

GPU_BYTES = 300_000_000
GPU = f"""
name = "small"
description = "a small GPU"
capability = "7.5"
memory_bytes = {GPU_BYTES}
memory = "estimated"
cores = 10
l2_bytes = 4194304
bandwidth_bytes_per_s = 320064000000
clock_ghz = 1.59
context_bytes_estimate = 1048576
source = "made up: everything is to be too large for it"
"""


@pytest.fixture
def dryrun(tmp_path):
    """Run a program: gives exit code, summary and standard error, with its words on one line."""

    def run(program, gpu, *options, arguments=()):
        said = dryrun_of(tmp_path, program, *options, gpu=gpu, arguments=arguments)
        return said.code, said.summary, " ".join(said.err.split())

    return run


def test_a_verdict_between_the_known_totals_says_so(dryrun):
    lowest, highest = 15_642_329_088, 15_843_721_216
    # Pools are three quarters, in whole pages: 11,731,746,816 and 11,884,560,384 bytes.
    need = 11_800_000_000
    code, summary, err = dryrun(ONE_ARRAY, "t4", arguments=[need])
    assert code == 1, err
    assert summary["gpu"]["total_memory_bytes"] == lowest
    assert summary["gpu"]["max_total_memory_bytes"] == highest
    assert summary["total_range"] == {
        "max_total_memory_bytes": highest,
        "limit_bytes": -(-highest * 3 // 4 // (2 * MIB)) * 2 * MIB,
        "fits": True,
    }
    assert "with 14,917 MiB in total; with 15,109 MiB this request succeeds" in err
    assert "--total highest" in err
    (condition,) = (c for c in summary["verdict"]["conditions"] if c["kind"] == "total_range")
    assert condition["max_total_memory_bytes"] == highest
    assert not condition["inconclusive"]

    for total in ("highest", str(highest)):
        code, summary, err = dryrun(ONE_ARRAY, "t4", "--total", total, arguments=[need])
        assert code == 0, err
        assert summary["gpu"]["total_memory_bytes"] == highest
        assert summary["total_range"] is None


def test_a_request_beyond_every_known_total_is_refused_at_each(dryrun):
    code, summary, err = dryrun(ONE_ARRAY, "t4", arguments=[12_000_000_000])
    assert code == 1, err
    assert summary["total_range"]["fits"] is False
    assert "highest total also fails on a card that reports 15,109 MiB" in err
    assert "this request succeeds" not in err


FOUR_OUTPUTS = """
import sys
import jax, jax.numpy as jnp
kept = jnp.ones(int(sys.argv[1]), jnp.int8)
outputs = jax.jit(lambda x: [x + i for i in range(4)])(jnp.ones(int(sys.argv[2]), jnp.int8))
"""


@pytest.mark.parametrize(("output", "fits"), [(100_000_000, False), (50_000_000, True)])
def test_the_whole_execution_decides_at_the_highest_total(dryrun, output, fits):
    """The pool of the highest total has 152.8 MB more: enough for the request, not for the rest."""
    lowest = 11_731_746_816
    # The argument is as large as each output, and one of these has room, with 35 MB to spare.
    arguments = [lowest - 2 * output - 35_000_000, output]
    code, summary, err = dryrun(FOUR_OUTPUTS, "t4", arguments=arguments)
    assert code == 1, err
    assert summary["oom"]["remaining_bytes"] >= 3 * output
    assert summary["total_range"]["fits"] is fits
    assert ("this request succeeds" in err) is fits


def test_a_run_that_fits_at_the_lowest_total_needs_no_other(dryrun):
    code, summary, err = dryrun(ONE_ARRAY, "t4", arguments=[1 << 30])
    assert code == 0, err
    assert summary["total_range"] is None
    assert "highest total" not in err


def test_a_total_that_no_driver_reports_is_refused_before_anything_runs(dryrun):
    code, summary, err = dryrun(ONE_ARRAY, "t4", "--total", "80GiB", arguments=[1])
    assert (code, summary) == (2, None)
    assert "error[invalid-argument]: no driver reports 80.0 GiB for `t4`" in err


def test_a_gpu_file_with_one_total_has_no_range(dryrun, tmp_path):
    gpu = tmp_path / "small.toml"
    gpu.write_text(GPU)
    code, summary, err = dryrun(ONE_ARRAY, gpu, arguments=[GPU_BYTES])
    assert code == 1, err
    assert summary["total_range"] is None


@pytest.mark.parametrize(
    ("options", "base"),
    [
        # The pool, in whole pages since JAX 0.10.2.
        ([], -(-GPU_BYTES * 3 // 4 // (2 * MIB)) * 2 * MIB),
        # What `cuda_async` keeps is no cap, and is what JAX tells the compiler all the same.
        (["--allocator", "cuda_async"], GPU_BYTES * 3 // 4),
        # It reports 0 then, and XLA takes 80 % of the GPU.
        (["--allocator", "cuda_async", "--no-preallocate"], GPU_BYTES * 80 // 100),
        # No statistics at all.
        (["--allocator", "platform"], GPU_BYTES * 80 // 100),
    ],
    ids=["bfc", "cuda_async", "cuda_async growing", "platform"],
)
def test_the_compiler_plans_for_what_jax_tells_it_of_the_allocator(dryrun, tmp_path, options, base):
    gpu = tmp_path / "small.toml"
    gpu.write_text(GPU)
    _, summary, err = dryrun(TRAIN, gpu, *options)
    texts = [warning["text"] for warning in summary["compiler_warnings"]]
    found = [re.search(r"below \S+ \((\d+) bytes\) by remat", text) for text in texts]
    (said,) = {int(match[1]) for match in found if match}
    weights, x = LAYERS * WIDTH * WIDTH * 4, ROWS * WIDTH * 4
    result = weights + LAYERS * 8  # with the table of its parts
    assert said == (base - weights - x - result) * 95 // 100 + result, err


def test_a_limit_that_is_none_is_not_called_0_bytes(dryrun):
    options = ["--allocator", "cuda_async", "--no-preallocate"]
    code, summary, err = dryrun(ONE_ARRAY, "t4", *options, arguments=[1 << 20])
    assert code == 0, err
    assert summary["limit_bytes"] == 0, "as JAX reports it"
    assert "limit 0 B" not in err
    assert "limit none without preallocation, `cuda_async` may use all" in err
    code, summary, err = dryrun(ONE_ARRAY, "t4", *options[:2], arguments=[13_000_000_000])
    assert code == 0, "the GPU has more than the threshold"
    assert summary["peak_bytes"] > summary["limit_bytes"] == 15_642_329_088 * 3 // 4
    assert "release threshold 10.9 GiB" in err
    assert "allocates more when it needs more" in err


def test_a_limit_that_becomes_another_is_reported_with_both_figures(dryrun):
    asked = 500 * MIB + 1
    code, summary, err = dryrun(ONE_ARRAY, "t4", "--limit", str(asked), arguments=[1 << 20])
    assert code == 0, err
    assert summary["settings"]["requested_limit_bytes"] == asked
    assert summary["limit_bytes"] == 500 * MIB
    assert f"the limit of {asked} becomes 500.0 MiB (1 B less: JAX reads" in err
    assert f"requested {asked} bytes, got {500 * MIB}" in err
    _, summary, err = dryrun(ONE_ARRAY, "t4", "--limit", "500MiB", arguments=[1 << 20])
    assert summary["limit_bytes"] == 500 * MIB
    assert "becomes a limit" not in err


def test_the_bracket_says_which_programs_it_leaves_out(dryrun, tmp_path):
    program = """
import jax, jax.numpy as jnp
x = jnp.ones((256, 256))
jax.block_until_ready(jax.jit(lambda x: (x @ x).sum() + x.T.sum())(x))
"""
    _, summary, err = dryrun(program, "t4", "--autotune-range")
    small = summary["autotune_range"]["small_programs"]
    assert small == len([p for p in summary["programs"] if p["compile_attempt"] == ""]) > 0
    temporaries = sum(p["temp_bytes"] for p in summary["programs"])
    assert summary["autotune_range"]["small_programs_temp_bytes"] == temporaries
    assert f"{small} program" in err
    assert "below 1 % of the pool" in err


UPLOAD = """
import jax, jax.numpy as jnp, numpy as np
first = np.zeros((60_000, 224, 224), np.float32)
data = jnp.asarray(first)
"""


def test_an_upload_that_the_empty_pool_cannot_hold_lacks_what_is_beyond_its_limit(tmp_path):
    run = dryrun_of(tmp_path, UPLOAD, gpu="t4", code=1)
    oom, requested = run.summary["oom"], 60_000 * 224 * 224 * 4
    assert oom["in_use_bytes"] == 0
    assert run.summary["peak_bytes"] == 0
    text = " ".join(run.err.split())
    limit = run.summary["capacity_bytes"]
    assert f"short by {(requested - limit) / MIB:.1f} MiB at program.py:4" in text
    assert "which the GPU did not have free" not in text
    assert "one array, from program.py:4" in text


def test_uploads_have_the_line_that_makes_them(tmp_path):
    lines = """
import jax, numpy as np
host = np.zeros((1024, 1024), np.float32)
kept = jax.device_put(host)
jax.block_until_ready(jax.jit(lambda a, b: a @ b)(kept, host))
"""
    run = dryrun_of(tmp_path, lines, code=0)
    for line in (4, 5):
        row = re.search(rf"upload, program.py:{line} \(<module>\) +1 +(\S+ \S+)", run.err)
        assert row.group(1) == "4.0 MiB"


HANDLED = """
import sys, jax, jax.numpy as jnp
for rows in (1 << 22, 1 << 10):
    try:
        x = jax.block_until_ready(jnp.ones((rows, 4096)))
        break
    except jax.errors.JaxRuntimeError:
        print("smaller")
jax.block_until_ready(jax.jit(lambda x: x + 1)(x))
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_handled_failure_is_said_to_be_handled(dryrun, exit_code):
    code, summary, text = dryrun(HANDLED, "t4", arguments=(exit_code,))
    assert (code, summary["oom"]["recovered"]) == (1, True)
    assert ("handled that and ran to its end, at a peak of 32.0 MiB" in text) == (exit_code == 0)


READS = """
import sys, jax, jax.numpy as jnp
large = jnp.ones((8192, 8192)) * 2

def decide():
    if float((large @ large)[0, 0]) < -1:
        raise SystemExit

if sys.argv[1] == "before":
    decide()
try:
    jnp.ones((1 << 22, 4096)).block_until_ready()
except jax.errors.JaxRuntimeError:
    pass
decide()
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_read_after_a_failure_is_no_condition_of_it(dryrun, when):
    code, summary, text = dryrun(READS, "t4", arguments=(when,))
    assert (code, len(summary["unknown_reads"])) == (1, 1)
    kinds = [condition["kind"] for condition in summary["verdict"]["conditions"]]
    assert ("placeholder_decides" in kinds) == (when == "before")
    assert ("does not fit, if" in text) == (when == "before")
