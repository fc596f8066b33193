"""`vramfit hold`: occupies exactly so much of a GPU, and gives it back. Rows S13, S14 and S18."""

import json
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from commands import VRAMFIT, clean_environment, run_command, run_vramfit
from fake_driver import gpu
from on_gpu import environment

GIB = 1 << 30


def hold(*words, env, code=0):
    """Run it with `--json` and return its lines."""
    done = run_vramfit("hold", *words, "--json", env=env, code=code)
    return [json.loads(line) for line in done.stdout.splitlines()]


def events(lines):
    return [line["event"] for line in lines]


def hold_in_dryrun(tmp_path, *words, options=()):
    """Run it in a dry run; return its lines and the summary of the dry run."""
    summary_file = tmp_path / "summary.json"
    command = [*VRAMFIT, "dryrun", "--full", "--gpu", "t4", *options, "--json", summary_file, "--"]
    command += [*VRAMFIT, "hold", *words, "--json"]
    done = run_command(*command)
    assert summary_file.exists(), done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines, json.loads(summary_file.read_text())


def start(*words, env):
    """Start it and wait until it holds all."""
    command = [*VRAMFIT, "hold", *words, "--json"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if json.loads(line)["event"] == "holding":
            return process
    raise AssertionError(f"it held nothing, exit code {process.wait()}")


def test_s13_jax_really_holds_what_was_asked_for(tmp_path):
    lines, summary = hold_in_dryrun(tmp_path, "8GiB", "--for", "0s", "--verify")
    assert events(lines) == ["start", *["step"] * 8, "verified", "holding", "released"]
    begin, verified = lines[0], lines[-3]
    # Three quarters of the GPU, which is the pool that JAX makes.
    assert begin["total_bytes"] == summary["limit_bytes"] == begin["free_bytes"]
    # By the allocator's own count, exactly.
    assert verified["allocated_bytes"] == verified["counted_bytes"] == 8 * GIB
    assert verified["read_back"] is None
    assert "no memory contents" in verified["note"]
    # The virtual GPU saw the same: 8 GiB, and the number that the last array was filled with.
    assert summary["peak_bytes"] == 8 * GIB + 256


def test_s13_a_part_is_one_of_the_pool(tmp_path):
    lines, summary = hold_in_dryrun(tmp_path, "50%", "--step", "100GiB", "--for", "0s")
    assert lines[0]["requested_bytes"] == summary["limit_bytes"] // 2
    assert lines[-1]["allocated_bytes"] == summary["limit_bytes"] // 2


def test_s14_each_step_is_reported_with_what_is_left(tmp_path):
    lines, _ = hold_in_dryrun(tmp_path, "7GiB", "--step", "3GiB", "--for", "0s")
    limit = lines[0]["total_bytes"]
    steps = [
        (line["allocated_bytes"], line["free_bytes"]) for line in lines if line["event"] == "step"
    ]
    assert steps == [(held * GIB, limit - held * GIB) for held in (3, 6, 7)]


def test_s14_it_stops_cleanly_at_the_limit(tmp_path):
    # A growing pool believes in memory that something else on the GPU has.
    lines, summary = hold_in_dryrun(
        tmp_path, "10GiB", "--step", "2GiB", options=("--occupied", "8GiB", "--no-preallocate")
    )
    assert events(lines) == ["start", "step", "step", "step", "stopped"]
    assert lines[-1] == {
        "schema": 2,
        "event": "stopped",
        "allocated_bytes": 6 * GIB,
        "requested_bytes": 10 * GIB,
        "reason": "JAX's pool has no free block of 2.0 GiB",
    }
    assert summary["process_exit"]["code"] == 1


def test_s14_more_than_the_pool_is_refused_before_anything_is_held():
    [refused] = hold("12GiB", env=environment("t4"), code=1)
    assert refused["event"] == "insufficient_memory"
    assert refused["requested_bytes"] == 12 * GIB
    assert refused["free_bytes"] == refused["total_bytes"] < 12 * GIB


def test_more_than_the_pool_has_one_answer_in_a_dry_run(tmp_path):
    summary_file = tmp_path / "summary.json"
    command = ["dryrun", "--full", "--gpu", "t4", "--json", summary_file, "--"]
    done = run_vramfit(*command, *VRAMFIT, "hold", "500GiB", code=1)
    summary = json.loads(summary_file.read_text())
    assert summary["fits"] is False
    assert summary["oom"]["requested_bytes"] == 500 * GIB
    assert "cannot allocate 500.0 GiB" in done.stdout + done.stderr
    assert "gpu-not-used" not in done.stderr


def test_an_allocator_without_a_count_tells_no_part():
    env = environment("t4", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    done = run_vramfit("hold", "50%", env=env, code=2)
    assert "error[invalid-argument]: 50% of JAX's pool is unknown" in done.stderr


def test_a_gpu_that_jax_does_not_have_is_refused():
    done = run_vramfit("hold", "1GiB", "--gpu", "3", env=environment("t4"), code=2)
    assert "error[invalid-argument]: JAX has no GPU 3\nhint: it has 1" in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_s18_a_signal_ends_jax_and_what_it_held(ending):
    process = start("2GiB", env=environment("t4"))
    [child] = children(process.pid)
    process.send_signal(ending)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert events(map(json.loads, output.splitlines())) == ["released"]
    assert not Path(f"/proc/{child}").exists()


def test_s18_jax_does_not_outlive_a_command_that_is_killed():
    process = start("2GiB", env=environment("t4"))
    [child] = children(process.pid)
    handle = os.pidfd_open(child)
    process.kill()
    process.communicate()
    # Readable once the process has ended.
    assert select.select([handle], [], [], 60)[0]
    os.close(handle)


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    # The thread that waits for signals starts none; whoever starts a process is its parent.
    return [int(word) for word in text.split()]


def test_s18_through_the_driver_the_gpu_sees_it_and_gets_it_back(fake_driver):
    driver = fake_driver({"gpus": [gpu()]})
    process = start("3GiB", "--step", "3GiB", env=clean_environment(**driver.environment))
    assert [bytes_ for _, _, bytes_ in driver.allocations() if bytes_] == [3 * GIB]
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    assert [bytes_ for _, _, bytes_ in driver.allocations() if bytes_] == [3 * GIB, -3 * GIB]


def test_s18_more_than_is_free_is_refused_with_who_holds_it(fake_driver):
    full = gpu()
    full["memory"] |= {"used_bytes": 10 * GIB, "free_bytes": 6 * GIB}
    full["processes"] = [{"pid": os.getpid(), "used_bytes": 10 * GIB}]
    driver = fake_driver({"gpus": [full]})
    [refused] = hold("50%", env=clean_environment(**driver.environment), code=1)
    assert refused["event"] == "insufficient_memory"
    [holder] = refused["other_processes"]
    assert (holder["pid"], holder["used_bytes"]) == (os.getpid(), 10 * GIB)
    own = Path("/proc/self/cmdline").read_text().replace("\0", " ").strip()
    assert holder["command"].startswith(own[:40])
    assert driver.allocations() == [] or sum(bytes_ for _, _, bytes_ in driver.allocations()) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["driver", "jax"])
def test_s18_a_real_gpu_holds_what_was_asked_for(way):
    env = clean_environment(XLA_PYTHON_CLIENT_PREALLOCATE="false")
    lines = hold("2GiB", "--step", "512MiB", "--for", "0s", "--verify", "--backend", way, env=env)
    verified = next(line for line in lines if line["event"] == "verified")
    assert verified["read_back"] is True
    assert verified["allocated_bytes"] == 2 * GIB
    assert verified["counted_bytes"] >= 2 * GIB


@pytest.mark.gpu
def test_s14_a_real_gpu_is_walked_up_to_ninety_percent_and_back():
    env = clean_environment()
    first = hold("90%", "--for", "0s", env=env)
    assert first[-1]["event"] == "released"
    # All of it came back: the same can be had again.
    again = hold("90%", "--for", "0s", env=env)
    assert again[-1]["allocated_bytes"] == first[-1]["allocated_bytes"]
