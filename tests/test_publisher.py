"""What a JAX process publishes of its own pool, and that it does not suffer from it (row V7)."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from commands import start_command
from on_gpu import environment, finish, start
from stats_files import await_stats_file, folder, read, stats_files

WAIT = "import sys; print('ready', flush=True); sys.stdin.readline()\n"


@pytest.fixture
def publishing(runtime):
    """Start processes that publish; those still there at the end of the test are killed."""
    processes = []

    def begin(lines, **settings):
        settings = {"VRAMFIT_PUBLISH": "1", "VRAMFIT_PUBLISH_MS": 20} | settings
        processes.append(start(textwrap.dedent(lines), XDG_RUNTIME_DIR=runtime, **settings))
        return processes[-1]

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
            process.communicate()


def until_ready(process):
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stderr.read()


def next_look(path):
    """Return what is on a page after a whole further look."""
    now = read(path)[1]["samples"]
    return read(await_stats_file(path.parent.parent, samples=now + 2))


@pytest.mark.parametrize("allocator", ["default", "cuda_async"])
def test_v7_what_is_published_is_what_the_allocator_says(runtime, publishing, allocator):
    lines = "x = jnp.ones(1 << 20); y = (x * 2).block_until_ready(); del x; report(stats=stats())\n"
    process = publishing(
        lines + WAIT,
        XLA_PYTHON_CLIENT_ALLOCATOR=allocator,
        XLA_PYTHON_CLIENT_MEM_FRACTION="0.5",
    )
    stats = json.loads(process.stdout.readline().removeprefix("VALUES "))["stats"]
    until_ready(process)
    header, live = next_look(await_stats_file(runtime))
    (device,) = live["devices"]
    assert device["status"] == "available"
    assert device["in_use"] == stats["bytes_in_use"]
    assert device["peak"] == stats["peak_bytes_in_use"]
    assert device["limit"] == stats["bytes_limit"]
    assert device["allocations"] == stats["num_allocs"]
    assert device.get("pool") == stats.get("pool_bytes")
    # On a virtual GPU the driver's figure is known too: the pool and the context.
    assert device["driver"] > (device.get("pool") or device["in_use"])
    assert header["pid"] == process.pid
    assert header["virtual_gpu"] == "h100-80g"
    assert header["client_settings"] | {"visible_devices": None} == {
        "allocator": allocator,
        "fraction": 0.5,
        "preallocate": None,
        "visible_devices": None,
        "policy": None,
    }
    assert process.communicate("\n") == ("", "")
    assert stats_files(runtime) == []


def test_v7_an_allocator_without_statistics_says_so(runtime, publishing):
    process = publishing(
        "jnp.ones(8).block_until_ready()\n" + WAIT, XLA_PYTHON_CLIENT_ALLOCATOR="platform"
    )
    until_ready(process)
    _, live = next_look(await_stats_file(runtime))
    (device,) = live["devices"]
    assert device["status"] == "unsupported"
    assert "in_use" not in device
    process.communicate("\n")


def test_v7_every_device_has_its_own_record(runtime, publishing):
    lines = "x = jax.device_put(jnp.ones(1 << 20), jax.devices()[1])\n" + WAIT
    process = publishing(lines, count=3)
    until_ready(process)
    header, live = next_look(await_stats_file(runtime))
    assert [device["id"] for device in header["devices"]] == [0, 1, 2]
    in_use = [device["in_use"] for device in live["devices"]]
    assert in_use[1] == 4 << 20
    assert in_use[2] == 0
    process.communicate("\n")


def test_nothing_is_published_unless_asked_for(runtime, publishing):
    lines = "jnp.ones(8).block_until_ready()\n" + WAIT
    for settings in ({}, {"VRAMFIT_PUBLISH": "0"}):
        process = start(lines, XDG_RUNTIME_DIR=runtime, **settings)
        until_ready(process)
        assert not folder(runtime).exists()
        process.communicate("\n")


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(3)", "raise ValueError", "os._exit(4)", "from jax.extend import backend; "
     "backend.clear_backends(); jnp.ones(8).block_until_ready()"],
    ids=["end", "exit", "exception", "exit at once", "second client"],
)  # fmt: skip
def test_the_stats_file_goes_with_the_process_however_it_ends(runtime, publishing, ending):
    lines = f"""
        import os, sys
        jnp.ones(8).block_until_ready()
        report(pages=os.listdir(os.environ["XDG_RUNTIME_DIR"] + "/vramfit"))
        {ending}
    """
    values, _, err, code = finish(publishing(lines))
    assert len(values["pages"]) == 1
    assert stats_files(runtime) == []
    assert code == {"sys.exit(3)": 3, "os._exit(4)": 4, "raise ValueError": 1}.get(ending, 0)
    assert ("Traceback" in err) == ("ValueError" in ending), err


def test_a_killed_process_leaves_its_stats_file_and_the_next_one_removes_it(runtime, publishing):
    lines = "jnp.ones(8).block_until_ready()\n" + WAIT
    process = publishing(lines)
    until_ready(process)
    left = await_stats_file(runtime)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert left.exists()
    process = publishing(lines)
    until_ready(process)
    assert not left.exists()
    assert len(stats_files(runtime)) == 1
    process.communicate("\n")


def test_a_forked_copy_leaves_the_stats_file_alone(runtime, publishing):
    lines = """
        import os, warnings
        warnings.simplefilter("ignore")
        jnp.ones(8).block_until_ready()
        child = os.fork()
        if child == 0:
            os._exit(0)  # as multiprocessing ends its workers
        assert os.waitpid(child, 0)[1] == 0
        import sys; print('ready', flush=True); sys.stdin.readline()
        """
    process = publishing(lines)
    until_ready(process)
    header, _ = next_look(await_stats_file(runtime))
    assert header["pid"] == process.pid
    _, err = process.communicate("\n")
    assert process.returncode == 0, err
    assert stats_files(runtime) == []


def test_a_folder_that_cannot_be_used_is_passed_over_in_silence(runtime, publishing):
    folder(runtime).write_text("in the way")
    values, _, err, code = finish(publishing("report(sum=float(jnp.ones(8).sum()))"))
    assert (values, err, code) == ({"sum": 8.0}, "", 0)


REAL = """
import jax
from jax._src import hardware_utils
hardware_utils.has_visible_nvidia_gpu = lambda: True
try:
    jax.devices()
except Exception as error:
    print(type(error).__name__, error)
"""


def on_real_plugin(shim, **settings):
    """Ask the real CUDA plugin for its devices, and return what it answers where there are none."""
    given = environment(JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1, **settings)
    del given["VRAMFIT_RUN_CONFIG"]
    given["JAX_PLATFORMS"] = "cuda"
    if not shim:
        del given["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-c", REAL], env=given, capture_output=True, check=False, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU here")
def test_the_real_plugins_answer_passes_through_unchanged(runtime):
    alone = on_real_plugin(False)
    assert alone[0] == 0
    assert "cuda" in alone[1]
    for settings in ({"VRAMFIT_PUBLISH": "1"}, {"VRAMFIT_PUBLISH": "0"}, {}):
        looked_on = on_real_plugin(True, XDG_RUNTIME_DIR=runtime, **settings)
        assert looked_on[:2] == alone[:2], looked_on
    assert stats_files(runtime) == []


@pytest.mark.gpu
def test_v7_on_a_gpu_what_is_published_is_what_the_allocator_says(runtime):
    lines = (
        "import json, sys, jax, jax.numpy as jnp\n"
        "x = jnp.ones((1 << 20,)); x.block_until_ready()\n"
        "print(json.dumps(jax.devices()[0].memory_stats()), flush=True); sys.stdin.readline()\n"
    )
    given = environment(XDG_RUNTIME_DIR=runtime, VRAMFIT_PUBLISH="verbose", VRAMFIT_PUBLISH_MS=20)
    del given["VRAMFIT_RUN_CONFIG"]
    command = [sys.executable, "-c", lines]
    process = start_command(*command, env=given, stdin=subprocess.PIPE)
    stats = json.loads(process.stdout.readline())
    header, live = next_look(await_stats_file(runtime))
    assert header["virtual_gpu"] is None
    assert live["devices"][0]["in_use"] == stats["bytes_in_use"]
    assert live["devices"][0].get("pool") == stats.get("pool_bytes")
    assert "driver" not in live["devices"][0]
    process.communicate("\n")
    assert process.returncode == 0
    assert stats_files(runtime) == []
