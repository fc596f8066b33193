"""Processes of one dry run share its GPUs, as processes on a machine do."""

import json
import os
import re

import pytest
from cli_dryrun import dryrun_of
from commands import run_vramfit
from reference_trace_reader import read_notes

GIB, PAGE = 1 << 30, 2 << 20
T4 = 15_642_329_088  # the lowest total that a driver reports for a T4 (facts on real GPUs)

# Takes its pool, tells its size, allocates what it is told to, and holds all until its input ends.
WORKER = """
import json, os, sys
import jax, jax.numpy as jnp
gib = float(sys.argv[1]) if len(sys.argv) > 1 else 0
held = jnp.ones(8).block_until_ready()
stats = jax.devices()[0].memory_stats()
values = {key: stats.get(key) for key in ("pool_bytes", "bytes_limit")}
print(json.dumps(values | {"pid": os.getpid(), "devices": len(jax.devices())}), flush=True)
if gib:
    more = jnp.ones((int(gib * (1 << 28)),), jnp.float32).block_until_ready()
sys.stdin.read()
"""

# Starts workers one after the other; each is there before the next one begins.
PARENT = """
import json, os, subprocess, sys

def start(*words, **env):
    command = [sys.executable, "worker.py", *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, env=os.environ | env, **pipes)
    line = child.stdout.readline()
    child.values = json.loads(line) if line else None
    return child

def end(*children):
    for child in children:
        child.stdin.close()
    return [child.wait() for child in children]

def report(**values):
    print("VALUES", json.dumps(values))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run lines that start workers on virtual GPUs; return the dry run and their values."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker.py").write_text(WORKER)

    def run(lines, *options, gpu="t4", env=None):
        said = dryrun_of(tmp_path, PARENT + lines, *options, gpu=gpu, env=env)
        line = re.search(r"^VALUES (.*)$", said.out, re.MULTILINE)
        return said, json.loads(line[1]) if line else None

    return run


TWO = """
first = start()
second = start()
codes = end(first, second)
report(first=first.values, second=second.values)
"""


def test_a_second_process_finds_what_the_first_has_left(run):
    said, values = run(TWO)
    first, second = values["first"], values["second"]
    assert first["pool_bytes"] == first["bytes_limit"] == second["bytes_limit"]
    # XLA asks for 10 % less until it gets something; both contexts are on the GPU, too.
    assert 0 < second["pool_bytes"] < T4 - first["pool_bytes"]
    assert said.code == 0
    by_pid = {row["pid"]: row for row in said.summary["processes"]}
    assert set(by_pid) == {first["pid"], second["pid"]}
    row = by_pid[second["pid"]]
    context = said.summary["context_bytes_estimate"]
    assert row["devices"][0]["used_by_others_bytes"] == first["pool_bytes"] + context
    # The driver maps whole pages of 2 MiB.
    pages = -(-second["pool_bytes"] // PAGE) * PAGE
    assert by_pid[first["pid"]]["devices"][0]["used_by_others_bytes"] == pages + context
    # The one with least to spare decides: what it could have had is what others had left.
    assert said.summary["pid"] == second["pid"]
    left = T4 - first["pool_bytes"] - 2 * context
    assert said.summary["capacity_bytes"] == left
    assert "2 processes used the GPU" in said.err
    assert "other processes of this run use" in said.err.replace("\n", " ")


OUT_OF_MEMORY = """
import jax.numpy as jnp
mine = jnp.ones(8).block_until_ready()
child = start(4)
report(child=child.values, codes=end(child))
"""


def test_a_process_that_another_leaves_too_little_does_not_fit_and_is_named(run, tmp_path):
    trace = tmp_path / "kept.trace"
    said, values = run(OUT_OF_MEMORY, "--trace", str(trace))
    child = values["child"]
    assert values["codes"] == [1]
    assert said.code == 1
    assert said.summary["fits"] is False
    assert said.summary["pid"] == child["pid"]
    assert "worker.py" in " ".join(said.summary["command"])
    others = said.summary["oom"]["used_by_others_bytes"]
    assert others == child["bytes_limit"] + said.summary["context_bytes_estimate"]
    # The exception that ended the process is that of the refusal, and no error of its own.
    [condition] = said.summary["verdict"]["conditions"]
    assert condition["kind"] == "shared_gpu"
    assert condition["used_bytes"] == others
    assert condition["total_bytes"] == T4
    assert condition["fits_alone"] is True
    [other] = condition["processes"]
    assert other["pid"] != child["pid"]
    assert "program.py" in other["command"]
    text = " ".join(said.err.split())
    headline = text[text.index("does not fit") : text.index("[#")]
    assert f"in process {child['pid']} (`python worker.py 4`)" in headline
    assert "other processes of this run use 11.0 GiB of 14.6 GiB" in headline
    for way_out in ("XLA_PYTHON_CLIENT_PREALLOCATE=false", "JAX_PLATFORMS=cpu", "--processes"):
        assert way_out in text
    assert f"process {child['pid']}" in said.page
    # The report of the kept trace says the same, and an independent reader finds the notes.
    again = run_vramfit("report", trace, "--json", "-", code=1)
    summary = json.loads(again.stdout)
    assert summary["pid"] == child["pid"]
    assert summary["oom"] == said.summary["oom"]
    header, notes = read_notes(f"{trace}.{child['pid']}")
    assert (header["pid"], header["gpus"]) == (child["pid"], [0])
    assert (header["run"]["gpus"]["count"], header["run"]["sharing"]) == (1, "run")
    held = [note for note in notes if note["what"] == "others"]
    assert held[-1]["device"] == 0
    assert max(note["used_bytes"] for note in held) == others


def test_the_bracket_gives_each_process_the_gpu_to_itself(run):
    said, values = run(OUT_OF_MEMORY, "--autotune-range")
    assert values["codes"] == [0]
    assert said.code == 0
    assert said.summary["fits"] is True
    assert values["child"]["pool_bytes"] == values["child"]["bytes_limit"]
    assert "as if it were alone" in said.err


def test_a_program_that_does_not_fit_alone_either_is_reported(run):
    said, _ = run(OUT_OF_MEMORY.replace("start(4)", "start(13)"))
    [condition] = [c for c in said.summary["verdict"]["conditions"] if c["kind"] == "shared_gpu"]
    assert condition["fits_alone"] is False


VISIBLE = """
a = start(0, CUDA_VISIBLE_DEVICES={0!r})
b = start(0, CUDA_VISIBLE_DEVICES={1!r})
end(a, b)
report(a=a.values, b=b.values)
"""


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("0", "1", False),
        ("1", "1", True),
        ("1,0", "0", False),  # the worker fills device 0, which is GPU 1
        ("GPU-aa", "GPU-bb", False),
        ("GPU-aa", "GPU-aa", True),
    ],
)
def test_visible_devices_are_gpus_of_the_machine(run, first, second, shared):
    said, values = run(VISIBLE.format(first, second), gpu="t4x2")
    a, b = values["a"], values["b"]
    assert a["devices"] == len(first.split(","))
    assert a["pool_bytes"] == a["bytes_limit"]
    assert (b["pool_bytes"] < b["bytes_limit"]) == shared
    assert said.code == 0


def test_the_gpu_that_is_reported_is_that_of_the_machine(run):
    said, _ = run("end(start(1, CUDA_VISIBLE_DEVICES='1'))\n", gpu="t4x2")
    assert "on GPU 1 of 2 x t4" in said.err
    assert said.summary["devices"][0]["gpu"] == 1
    assert said.summary["gpu"]["machine_count"] == 2


BOTH = """
import jax, jax.numpy as jnp
other = start(0, CUDA_VISIBLE_DEVICES="1")
held = [jax.device_put(jnp.ones(1 << 20), device) for device in jax.devices()]
end(other)
"""


def test_the_gpu_with_least_to_spare_decides(run):
    said, _ = run(BOTH, gpu="t4x2")
    own = next(row for row in said.summary["processes"] if len(row["devices"]) == 2)
    assert said.summary["pid"] == own["pid"]
    first, second = own["devices"]
    assert first["used_by_others_bytes"] == 0
    assert second["capacity_bytes"] < first["capacity_bytes"]
    assert "on GPU 1 of 2 x t4" in said.err
    assert said.summary["capacity_bytes"] == second["capacity_bytes"]


CONFIGURED = """
import jax, sys
jax.config.update("jax_cuda_visible_devices", "1")
import jax.numpy as jnp
held = jnp.ones(8).block_until_ready()
other = start(0, CUDA_VISIBLE_DEVICES="0")
same = start(0, CUDA_VISIBLE_DEVICES="1")
end(other, same)
report(other=other.values, same=same.values)
"""


def test_jax_cuda_visible_devices_are_gpus_of_the_machine(run):
    _, values = run(CONFIGURED, gpu="t4x2")
    assert values["other"]["pool_bytes"] == values["other"]["bytes_limit"]
    assert values["same"]["pool_bytes"] < values["same"]["bytes_limit"]


GONE = """
import os, signal, time
first = start()
if {kills}:
    os.kill(first.pid, signal.SIGKILL)
else:
    first.stdin.close()
# It is not waited for: a process that has ended holds no memory, reaped or not.
while open(f"/proc/{{first.pid}}/stat").read().rsplit(")")[-1].split()[0] != "Z":
    time.sleep(0.02)
second = start()
end(second)
report(second=second.values)
"""


@pytest.mark.parametrize("kills", [True, False])
def test_memory_comes_back_when_a_process_ends_or_is_killed(run, kills):
    said, values = run(GONE.format(kills=kills))
    assert values["second"]["pool_bytes"] == values["second"]["bytes_limit"]
    assert said.code == 0


FULL = """
first = start(0, XLA_PYTHON_CLIENT_MEM_FRACTION="0.99")
try:
    second = start()
    end(second)
finally:
    end(first)
report(second=second.values)
"""


def test_a_process_whose_context_finds_no_room_does_not_fit(run):
    said, values = run(FULL)
    assert values["second"] is None
    assert said.code == 1
    assert said.summary["fits"] is False
    assert said.summary["no_context"]["used_by_others_bytes"] > 0.98 * T4
    text = " ".join(said.err.split())
    assert "does not fit: the CUDA context needs" in text
    assert "other processes of this run use" in text


GROWING = """
import jax.numpy as jnp
mine = jnp.ones((9 << 28,), jnp.float32).block_until_ready()
child = start(6)
report(codes=end(child))
"""


def test_growing_pools_share_the_gpu_too(run):
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    said, values = run(GROWING, env=env)
    assert values["codes"] == [1]
    assert said.code == 1
    assert said.summary["oom"]["used_by_others_bytes"] >= 9 * GIB
    smaller, values = run(GROWING.replace("start(6)", "start(2)"), env=env)
    assert values["codes"] == [0]
    assert smaller.code == 0


def test_a_process_that_keeps_off_the_gpu_takes_nothing(run):
    lines = "a = start(0, JAX_PLATFORMS='cpu')\nb = start()\nend(a, b)\nreport(b=b.values)\n"
    said, values = run(lines)
    assert values["b"]["pool_bytes"] == values["b"]["bytes_limit"]
    assert [row["pid"] for row in said.summary["processes"]] == [values["b"]["pid"]]
    assert said.summary["used_by_others_bytes"] == 0


SPAWNED = """
import multiprocessing

def work(queue, go):
    import jax, jax.numpy as jnp
    held = jnp.ones(8).block_until_ready()
    stats = jax.devices()[0].memory_stats()
    queue.put((stats["pool_bytes"], stats["bytes_limit"]))
    go.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    queue, go, pools = context.Queue(), context.Event(), []
    children = []
    for _ in range(2):
        children.append(context.Process(target=work, args=(queue, go)))
        children[-1].start()
        pools.append(queue.get(timeout=120))
    go.set()
    for child in children:
        child.join()
    print("VALUES", json.dumps(pools))
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_multiprocessing_share(run, method):
    said, values = run(SPAWNED.format(method=method))
    (first, limit), (second, _) = values
    assert first == limit > second
    assert said.code == 0
    assert len(said.summary["processes"]) == 2


def test_nothing_is_left_behind(run, tmp_path):
    places = {"TMPDIR": tmp_path / "tmp", "XDG_RUNTIME_DIR": tmp_path / "run"}
    for place in places.values():
        place.mkdir()
    before = set(os.listdir("/dev/shm"))
    run(TWO, env={name: str(place) for name, place in places.items()})
    left = [path for place in places.values() for path in place.rglob("*") if path.is_file()]
    assert left == []
    assert {name for name in set(os.listdir("/dev/shm")) - before if "vramfit" in name} == set()


CRASHES = """
child = subprocess.Popen([sys.executable, "-c",
    "import jax.numpy as jnp; jnp.ones(8).block_until_ready(); raise ValueError('no data')"])
child.wait()
import jax.numpy as jnp
jnp.ones(1 << 20).block_until_ready()
"""


def test_a_process_that_stopped_by_its_own_error_leaves_the_answer_open(run):
    said, _ = run(CRASHES)
    assert said.summary["process_exit"] == {"code": 0, "signal": None}
    assert said.summary["fits"] is None
    assert said.code == 2
    [condition] = said.summary["verdict"]["conditions"]
    assert condition["kind"] == "process_failed"
    assert condition["error"]["message"] == "no data"
    assert f"process {said.summary['pid']}" in said.err


def test_options_that_contradict_each_other_are_refused():
    command = ["dryrun", "--gpu", "t4", "--share-as", "desk", "--autotune-range"]
    done = run_vramfit(*command, "--", "true", code=2)
    assert "cannot be used with" in done.stderr
