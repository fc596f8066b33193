"""What several test files share."""

import itertools
import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from cli_dryrun import dryrun_of
from commands import ROOT, run_command, run_python
from fake_driver import FakeDriver, build_library
from on_gpu import environment

# Texts are compared as a terminal with UTF-8 gets them, wherever the tests run.
os.environ["LC_ALL"] = "C.UTF-8"
# A shell starts jobs in the background with SIGINT ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def reader_threads():
    """Return the numbers of the threads of this process that read for a loader."""
    tasks = Path("/proc/self/task").iterdir()
    return [
        int(task.name) for task in tasks if (task / "comm").read_text().startswith("vramfit-read")
    ]


@pytest.fixture
def write_script(tmp_path):
    """Write a program into a directory of the test, and return its path."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def train(tmp_path):
    """Return a file with the data of the task in `training.py`."""
    from training import write  # needs JAX, which most tests do without

    return write(tmp_path / "train.h5")


@pytest.fixture
def runtime(tmp_path):
    """Return a directory to be `XDG_RUNTIME_DIR`, which only its owner may enter."""
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def dryrun(tmp_path):
    """Run a script of `examples/` on a virtual GPU: `dryrun("leak.py", "--steps", 5)`."""
    numbers = itertools.count(1)

    def run(script, *arguments, options=(), **more):
        folder = tmp_path / f"dryrun-{next(numbers)}"
        folder.mkdir()
        program, trace = ROOT / "examples" / script, folder / "run.trace"
        return dryrun_of(folder, program, *options, arguments=arguments, trace=trace, **more)

    return run


@pytest.fixture
def derive():
    """Derive what an example needs with XLA alone; see `derive_expected.py`."""

    def run(example, *arguments, limit, devices=1):
        command = [sys.executable, ROOT / "tests" / "derive_expected.py", example]
        command += ["--limit", limit, "--devices", devices, "--", *arguments]
        done = run_command(*command, env={"JAX_PLATFORMS": "cpu"}, code=0)
        return json.loads(done.stdout)

    return run


@pytest.fixture
def on_virtual_gpu():
    """Return a function that runs a script on virtual GPUs and returns what it printed."""

    def run(script, *, devices=1, gpu="h100-80g"):
        done = run_python("-c", script, env=environment(gpu, count=devices), code=0)
        return done.stdout.split("\n")[:-1]

    return run


@pytest.fixture(scope="session")
def fake_driver_library():
    """Build the fake NVIDIA driver."""
    return build_library()


@pytest.fixture
def fake_driver(fake_driver_library, tmp_path):
    """Return a function that fakes a host, such as `{"gpus": [gpu()]}`; see `fake_driver.py`."""
    return lambda host: FakeDriver(fake_driver_library, tmp_path, host)
