"""Hosts with data of different sizes take the path that they take on a cluster."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_dryrun import dryrun_of
from commands import clean_environment

PROGRAM = Path(__file__).parent / "cases" / "programs" / "uneven_hosts.py"
WAYS = (
    *("least", "most", "mean", "of_the_last_host", "set_by_the_last_host", "in_two_rounds"),
    "in_three_rounds",
    *("in_a_compiled_reduction", "in_eager_reductions", "in_two_compiled_rounds"),
    *("in_a_gathered_array", "in_a_loop_until_all_are_done"),
)


def steps_of(folder):
    return [int((folder / str(host)).read_text()) for host in range(2)]


def train_for_real(folder, way):
    """Train in two processes on the CPU, and return how many steps each has made."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, way, folder],
            env=clean_environment(JAX_PLATFORMS="cpu", PORT=str(port), COUNT="2", INDEX=str(index)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    return steps_of(folder)


@pytest.mark.parametrize("way", WAYS)
def test_hosts_agree_as_on_a_cluster(tmp_path, way):
    real, dry = tmp_path / "real", tmp_path / "dry"
    real.mkdir()
    dry.mkdir()
    run = dryrun_of(tmp_path, PROGRAM, "--hosts", "2", arguments=[way, dry], gpu="t4")
    assert steps_of(dry) == train_for_real(real, way)
    assert (run.code, run.summary["fits"]) == (0, True)
    assert run.summary["hosts"]["mismatches"] == []
    # Nothing is assumed: all hosts were run, and heard of each other.
    kinds = [one["kind"] for one in run.summary["verdict"]["conditions"]]
    assert "placeholder_decides" not in kinds


@pytest.mark.parametrize("way", ["mean", "in_eager_reductions"])
def test_what_hosts_that_were_not_run_have_is_the_same_for_all(tmp_path, way):
    """Of sixteen, the first and the last are run; what the others have is as on the first."""
    run = dryrun_of(tmp_path, PROGRAM, "--hosts", "16", arguments=[way, tmp_path], gpu="t4")
    assert run.summary["hosts"]["mismatches"] == []
    assert (tmp_path / "0").read_text() == (tmp_path / "15").read_text()
    # How many there are is not known.
    [assumed] = [
        one for one in run.summary["verdict"]["conditions"] if one["kind"] == "placeholder_decides"
    ]
    assert assumed["bearing"] == "assumed"


def test_values_that_differ_in_each_run_are_told(tmp_path):
    """Such as times, which are gathered to be logged: hosts cannot come to rest."""
    steps = "len(gather(__import__('time').time_ns())) + 1"
    run = run_with_steps(tmp_path, steps, "--hosts", "2")
    assert (run.code, run.summary["fits"]) == (0, True)
    text = " ".join(run.err.split())
    assert "host 0: running again" in text
    assert "has since sent with another value (host 0 `allgather 1`): values that differ" in text


def test_no_host_is_run_again_for_values_that_nobody_reads(tmp_path):
    run = run_with_steps(
        tmp_path, "make_global_array(batches).sum() is not None and 3", "--hosts", "2"
    )
    assert (run.code, run.summary["fits"]) == (0, True)
    assert "running again" not in run.err
    read = run_with_steps(tmp_path, "int(make_global_array(batches).sum()) // 5", "--hosts", "2")
    assert (read.code, read.summary["fits"]) == (0, True)
    assert "running again" in read.err


def run_with_steps(folder, steps, *options):
    """Run the program with another number of steps."""
    program = folder / "train.py"
    source = PROGRAM.read_text()
    assert "steps = globals()[sys.argv[1]]()" in source
    program.write_text(source.replace("steps = globals()[sys.argv[1]]()", f"steps = {steps}"))
    return dryrun_of(folder, program, *options, arguments=["least", folder], gpu="t4")


@pytest.mark.parametrize(
    ("steps", "read_at"),
    [
        ("int(gather(batches)[1]) + me", "return multihost_utils.process_allgather("),
        ("int(jax.jit(jnp.sum)(make_global_array(batches))) % 7 + me + 2", "steps = int("),
    ],
    ids=["gathered", "compiled"],
)
def test_a_value_of_a_host_that_was_not_run_is_no_reason_for_a_deadlock(tmp_path, steps, read_at):
    """How often each trains depends on one that is not run, and on its own number."""
    run = run_with_steps(tmp_path, steps, "--hosts", "4", "--host", "0,3")
    [mismatch] = run.summary["hosts"]["mismatches"]
    lines = (tmp_path / "train.py").read_text().splitlines()
    [number] = [at for at, line in enumerate(lines, 1) if line.strip().startswith(read_at)]
    assert mismatch["placeholder"].split("(")[0].endswith(f"train.py:{number} ")
    assert (run.code, run.summary["fits"]) == (2, None)
    text = " ".join(run.err.split())
    assert "it cannot be told whether they do so on the cluster" in text


def test_a_run_without_a_training_step_is_unknown(tmp_path):
    """What a host assumes of another decides that it does not train at all."""
    run = run_with_steps(
        tmp_path, "int(gather(batches).sum()) - 4 * batches", "--hosts", "4", "--host", "0"
    )
    assert (run.code, run.summary["fits"]) == (2, None)
    assert "no program with a backward pass ran" in " ".join(run.err.split())
