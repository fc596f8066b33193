"""Programs of `examples/hosts`: bytes counted by hand, and the path of two real processes."""

import re
import subprocess
import sys

import pytest
from commands import hold_port, start_command
from hosts import EXAMPLES, run_hosts

F32 = I32 = 4
PROGRAMS = ["train_transformer", "pipeline", "train_experts"]


def step_of(run):
    """Return the training step of the host that decides."""
    (step,) = [one for one in run.summary["programs"] if one["name"] == run.summary["step"]]
    return step


@pytest.mark.parametrize("hosts", [2, 4])
def test_a_transformer_holds_its_part_of_weights_and_moments(tmp_path, hosts):
    run = run_hosts(tmp_path, EXAMPLES / "train_transformer.py", hosts=hosts, arguments=["--small"])
    assert run.code == 0, run.err[-3000:]
    layers, width, vocabulary, length, batch, gpus = 2, 64, 256, 32, 8, 2 * hosts
    matrices = vocabulary * width + layers * (3 + 1 + 4 + 4) * width * width
    scales = layers * 2 * width + width
    # Weights and both moments; the count of AdamW; the tokens of this host, on both of its GPUs.
    parts = 3 * (matrices // gpus + scales) * F32 + I32
    assert step_of(run)["argument_bytes"] == parts + batch * (length + 1) * I32


def test_replicated_moments_are_counted_whole(tmp_path):
    peaks = []
    for mistake in ([], ["--replicate-optimizer"]):
        arguments = ["--small", *mistake]
        run = run_hosts(tmp_path, EXAMPLES / "train_transformer.py", arguments=arguments)
        peaks.append(step_of(run)["argument_bytes"])
    matrices = 256 * 64 + 2 * 12 * 64 * 64
    assert peaks[1] - peaks[0] == 2 * (matrices - matrices // 4) * F32


def test_the_last_stage_of_a_pipeline_has_the_layer_of_outputs(tmp_path):
    run = run_hosts(tmp_path, EXAMPLES / "pipeline.py", hosts=4, arguments=["--small"])
    assert run.code == 0, run.err[-3000:]
    layers, width, classes = 2, 32, 64
    # One stage of layers on each GPU of a host; the batch is divided, the layers are not.
    rows = 8 * 16 // 2
    expected = layers * width * width * F32 + rows * width * F32
    assert step_of(run)["argument_bytes"] == expected
    head = width * classes * F32 // 2
    assert {"owner": "other_arrays", "bytes": head} in run.host(3)["differences"]
    assert run.host(0)["differences"] == []
    assert run.host(1)["represents"] == [2]


def test_each_gpu_has_its_experts_and_the_whole_router(tmp_path):
    run = run_hosts(tmp_path, EXAMPLES / "train_experts.py", hosts=4, arguments=["--small"])
    assert run.code == 0, run.err[-3000:]
    each, width, hidden, tokens, gpus = 2, 16, 32, 64, 8
    weights = each * 2 * width * hidden + width * each * gpus
    expected = 3 * weights * F32 + I32 + tokens * width * F32
    assert step_of(run)["argument_bytes"] == expected


def compiled(log):
    """Return the programs that JAX says it compiles, with shapes of arguments, in order."""
    found = re.findall(r"Compiling (jit\(\S+?\)|\S+) with global shapes and types (.*?)\. Arg", log)
    return [(name, re.sub(r"\s", "", shapes)) for name, shapes in found]


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_real_processes_compile_the_same_programs_in_the_same_order(tmp_path, program):
    port = hold_port()
    path, environment = EXAMPLES / f"{program}.py", {"JAX_LOG_COMPILES": "1"}
    named = ["--small", "--coordinator", f"localhost:{port}", "--processes", "2", "--process"]
    processes = [
        start_command(
            *[sys.executable, path, *named, process],
            env={"JAX_PLATFORMS": "cpu", **environment},
            stderr=subprocess.STDOUT,
        )
        for process in range(2)
    ]
    logs = [process.communicate(timeout=300)[0] for process in processes]
    for process, log in enumerate(logs):
        assert processes[process].returncode == 0, log[-3000:]
        options = ["--host", process]
        run = run_hosts(
            tmp_path, path, *options, gpu="h100-80g", arguments=["--small"], **environment
        )
        assert run.code == 0, run.err[-3000:]
        real = compiled(log)
        assert real, log[-3000:]
        assert compiled(run.err) == real
