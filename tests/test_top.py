"""`vramfit top` as people use it, beside processes that publish (rows S17 and V7)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from commands import VRAMFIT, clean_environment, run_command
from on_gpu import start
from stats_files import await_stats_file, read, stats_files

DEMO = Path(__file__).resolve().parent.parent / "fixtures" / "top" / "demo.jsonl"
TOP = [*VRAMFIT, "top"]
HOLD = "x = jnp.ones(1 << 20).block_until_ready(); print('ready', flush=True); input()\n"


@contextlib.contextmanager
def publishing(runtime, **settings):
    """Start a process with 4 MiB in use that publishes."""
    process = start(HOLD, XDG_RUNTIME_DIR=runtime, VRAMFIT_PUBLISH="1", **settings)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def holding(runtime):
    """A process that publishes 4 MiB in use, every 100 ms."""
    with publishing(runtime) as process:
        # What is on the page may be from before; the second look from now is not.
        looks = read(await_stats_file(runtime))[1]["samples"]
        await_stats_file(runtime, samples=looks + 2)
        yield process


def surroundings(runtime):
    # No driver, whatever machine this is.
    return clean_environment(XDG_RUNTIME_DIR=str(runtime), VRAMFIT_NVML="/nowhere/libnvidia-ml.so")


def top(runtime, *arguments):
    env = surroundings(runtime) | {"COLUMNS": "120"}
    return run_command(*TOP, *arguments, env=env, code=0).stdout


def row_of(board, pid):
    """Return the GPU and the row of a process, or None."""
    for gpu in board["gpus"]:
        for row in gpu["processes"]:
            if row["pid"] == pid:
                return gpu, row
    return None


@pytest.mark.fast
def test_v7_a_virtual_process_is_shown_with_its_three_memories(runtime, holding):
    board = json.loads(top(runtime, "--once", "--json"))
    gpu, row = row_of(board, holding.pid)
    assert gpu["is_virtual"]
    assert gpu["label"] == "virtual h100-80g"
    assert row["in_use_bytes"] == 4 << 20
    assert row["driver_bytes"] > row["reserved_bytes"] > row["in_use_bytes"]
    assert row["pool"]["client_settings"]["allocator"] == "default"
    assert "/nowhere/libnvidia-ml.so" in board["no_driver"]


def test_v7_a_process_that_has_looked_in_the_last_two_intervals_is_fresh(runtime):
    # 200 ms can pass at any point on a busy machine, two minutes cannot.
    with publishing(runtime, VRAMFIT_PUBLISH_MS=60_000) as process:
        await_stats_file(runtime)
        _, row = row_of(json.loads(top(runtime, "--once", "--json")), process.pid)
        assert row["liveness"] == "fresh"


def test_v7_the_table_says_why_there_is_no_driver_and_what_the_pool_is(runtime, holding):
    table = top(runtime, "--once")
    assert "no driver: `/nowhere/libnvidia-ml.so` cannot be opened" in table
    assert "reserved by JAX's pool and 4.0 MiB in use" in table
    assert str(holding.pid) in table


def test_v7_a_killed_process_is_stale_at_once_and_a_stopped_one_after_two_intervals(
    runtime, holding
):
    holding.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holding.pid, os.WSTOPPED)
    (file,) = stats_files(runtime)
    two_intervals = read(file)[1]["heartbeat"] + 2 * 100_000_000
    while time.monotonic_ns() <= two_intervals:
        time.sleep(0.01)
    _, row = row_of(json.loads(top(runtime, "--once", "--json")), holding.pid)
    assert row["liveness"]["silent"]["for_ms"] >= 200
    holding.kill()
    holding.wait()
    _, row = row_of(json.loads(top(runtime, "--once", "--json")), holding.pid)
    assert "gone" in row["liveness"]
    assert "gone" in top(runtime, "--once")


def test_s17_a_recording_is_what_was_seen(runtime, holding, tmp_path):
    file = tmp_path / "record.jsonl"
    seen = json.loads(top(runtime, "--once", "--json", "--record", str(file)))
    assert json.loads(top(runtime, "--once", "--json", "--replay", str(file))) == seen
    lines = top(runtime, "--json", "--interval", "50ms", "--replay", str(DEMO)).splitlines()
    assert [len(json.loads(line)["gpus"]) for line in lines] == [3, 2]


def test_s17_csv_is_read_by_a_parser(runtime):
    import csv

    rows = list(csv.DictReader(top(runtime, "--csv", "--replay", str(DEMO)).splitlines()))
    train = [row for row in rows if row["pid"] == "4121"]
    assert len(train) == 1
    assert train[0]["command"].endswith("train.py --config llama-8b.toml")
    assert int(train[0]["in_use_bytes"]) == int(12.1 * (1 << 30))


@pytest.fixture
def served(runtime):
    """The address of a server of metrics of the demo's first look."""
    first = runtime / "first.jsonl"
    first.write_text(DEMO.read_text().splitlines()[0] + "\n")
    command = [*TOP, "--prometheus", "0", "--interval", "3600", "--replay", str(first)]
    process = subprocess.Popen(
        command, env=surroundings(runtime), stderr=subprocess.PIPE, text=True
    )
    line = process.stderr.readline()
    yield line.strip().removeprefix("serving metrics at ")
    process.send_signal(signal.SIGINT)
    process.communicate()


def test_s17_metrics_are_accepted_by_prometheus(served):
    from prometheus_client.parser import text_string_to_metric_families

    text, end = "", time.monotonic() + 120
    while not text and time.monotonic() < end:  # nothing was looked at yet
        with urllib.request.urlopen(served, timeout=120) as response:
            kind, text = response.headers["Content-Type"], response.read().decode()
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(text)}
    in_use = {s.labels["pid"]: s.value for s in families["vramfit_pool_in_use_bytes"].samples}
    assert in_use == {pid: int(gib * (1 << 30)) for pid, gib in
                      [("4121", 12.1), ("3310", 17.9), ("5170", 3.4)]}  # fmt: skip
    assert families["vramfit_pool_allocations"].type == "counter"
    assert [s.value for s in families["vramfit_driver_up"].samples] == [1]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(served.replace("/metrics", "/"), timeout=120)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux; `make tmux` brings it")
def test_s17_in_a_real_terminal_keys_work_and_the_terminal_comes_back(runtime):
    socket = str(runtime / "tmux")

    def tmux(*arguments):
        command = ["tmux", "-S", socket, "-f", "/dev/null", *arguments]
        return run_command(*command, env=surroundings(runtime), code=0).stdout

    def await_screen(text, is_there=True):
        end = time.monotonic() + 120
        while (text in (screen := tmux("capture-pane", "-p"))) is not is_there:
            assert time.monotonic() < end, screen
            time.sleep(0.05)
        return screen

    tmux("new-session", "-d", "-x", "120", "-y", "40", "env", "PS1=$ ", "sh")
    try:
        command = " ".join([*TOP, "--replay", str(DEMO), "--interval", "3600"])
        tmux("send-keys", f"echo before; {command}; echo after=$?", "Enter")
        screen = await_screen("train.py --config")
        assert "before" not in screen  # the screen is its own
        tmux("send-keys", "?")
        await_screen("largest free block of the pool")
        tmux("send-keys", "Escape")
        # An Escape that is read together with the next key is Alt with that key.
        await_screen("largest free block of the pool", is_there=False)
        tmux("send-keys", "j", "Enter")
        await_screen(" details ")
        tmux("send-keys", "/", "serve", "Enter")
        screen = await_screen("filter: serve")
        assert "Xorg" not in screen
        tmux("resize-window", "-x", "44", "-y", "12")
        await_screen("of 23.7 GiB reserved")
        tmux("send-keys", "q")
        screen = await_screen("after=0")
        assert "before\nafter=0" in screen  # what was there has come back
    finally:
        tmux("kill-server")


def test_s17_wrong_values_are_reported(runtime):
    for arguments, words in [
        (["--interval", "soon"], "`soon` is not a duration"),
        (["--interval", "1ms"], "is out of range"),
        (["--listen", "127.0.0.1"], "--prometheus"),
        (["--replay", os.devnull], "there is nothing to replay"),
    ]:
        done = run_command(*TOP, *arguments, env=surroundings(runtime), code=2)
        assert words in done.stderr
