"""What several test files share."""

import collections
import contextlib
import fcntl
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from cli_dryrun import dryrun_of
from commands import COMPILATION_CACHE, ROOT, run_command, run_python
from fake_driver import FakeDriver, build_library
from on_gpu import environment
from preloaded import FOLDER, Servers, build_program
from stop_before import StopBefore
from train_command import generate
from watchdog import Watchdog

# Texts are compared as a terminal with UTF-8 gets them, wherever the tests run.
os.environ["LC_ALL"] = "C.UTF-8"
# NumPy's threads wait for work in a loop, a sixth of the time of a dry run, and no test has any.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Of programs that a test changes within a second, Python would run what it has kept.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
# A shell starts jobs in the background with SIGINT ignored, and `nohup` with SIGHUP: what is
# ignored stays so in all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def pytest_configure(config):
    """Share one compilation cache between all tests, and servers that have JAX imported.

    Most tests compile what another has compiled, or an earlier run. The cache is that of the
    sources that say how programs are compiled. `make test VRAMFIT_COMPILATION_CACHE=` runs all
    tests without one, `make test PRELOADED_PYTHON=` without servers.
    """
    if hasattr(config, "workerinput"):
        return
    if FOLDER not in os.environ and build_program():
        config.add_cleanup(Servers().end)
    if COMPILATION_CACHE in os.environ:
        return
    caches = ROOT / ".cache" / "compilations"
    crates = ROOT / "crates"
    sources = [
        *(crates / "vramfit-vgpu" / "src" / "compile").glob("*.rs"),
        crates / "vramfit-vgpu" / "src" / "device" / "topology.rs",
        crates / "vramfit-model" / "src" / "program" / "options.rs",
    ]
    cache = caches / digest_of(*sorted(sources))
    cache.mkdir(parents=True, exist_ok=True)
    for other in set(caches.iterdir()) - {cache}:
        shutil.rmtree(other, ignore_errors=True)
    os.environ[COMPILATION_CACHE] = str(cache)


def pytest_report_header():
    """Say how dry runs are made."""
    if os.environ.get(FOLDER):
        return "dry runs: in copies of a process that has JAX imported"
    return "dry runs: each in a new Python"


# When the time for tests is over, in seconds since 1970; see `MINUTES` in the Makefile.
TESTS_END = "VRAMFIT_TESTS_END"

# Files that take longer than all others together; the longest first, so that nobody waits for
# the last of them at the end.
SLOW_FILES = [
    *("test_examples", "test_plan", "test_docs", "test_train_command", "test_check"),
    *("test_plan_same_runs", "test_pytest_plugin", "test_measured_edits", "test_matrix"),
    *("test_train_tokens", "test_record_gpu", "test_recorded_gpu", "test_hosts_examples"),
    *("test_same_calls", "test_hosts_uneven", "test_plan_start", "test_after_training"),
    *("test_train_keys", "test_verdicts", "test_replay", "test_explain_remedies"),
    *("test_estimate", "test_plan_advice", "test_gpu_targets", "test_control_flow"),
]


def pytest_collection_modifyitems(items):
    """Put slow files last, and leave the order of the others as it is.

    Most of what is wrong is then found in half of the time. Where the time is limited, each run
    has another order of both: else it would always be the same that no run comes to.
    """
    places = {name: place for place, name in enumerate(SLOW_FILES)}
    end = os.environ.get(TESTS_END)

    def place(item):
        name = item.path.stem
        if end is None:
            return places.get(name, -1)
        return name in places, hashlib.sha256(f"{end} {name}".encode()).digest()

    items.sort(key=place)


NOT_BEGUN = "not begun: the time for tests is over"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Skip a test that has not begun when the time for tests is over."""
    if time.time() > float(os.environ.get(TESTS_END, "inf")):
        pytest.skip(NOT_BEGUN)


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Watch a test, with all that its fixtures do."""
    with Watchdog(item.nodeid, float(item.config.getini("timeout"))):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keep whether a test has failed, for `tmp_path`."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def test_folder():
    """Return a folder that no other process has, with the same path in each run of the tests."""
    for number in itertools.count():
        folder = Path(tempfile.gettempdir()) / f"vramfit-tests-{os.getuid()}-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for left in set(folder.iterdir()) - {folder / "lock"}:
                shutil.rmtree(left, ignore_errors=True)
            yield folder
            return


@pytest.fixture
def tmp_path(request, test_folder):
    """Return the directory of the test. What a test that failed leaves is kept for a look.

    It has the same path in each test, and so have programs in it: the paths of their lines are part
    of what they compile to, and the compilation cache finds only what is the same.
    """
    path = test_folder / "test"
    path.mkdir(mode=0o700)
    yield path
    name = re.sub(r"\W+", "-", request.node.name)[:100]
    kept = tempfile.mkdtemp(prefix=f"{name}-", dir=test_folder)
    # Renamed first: what still runs does not write into the directory of the next test.
    path.rename(kept)
    if not request.node.stash.get(FAILED, False):
        shutil.rmtree(kept, ignore_errors=True)


def pytest_terminal_summary(terminalreporter):
    """Say what has not begun. Have GitHub show each failure, with its test, above the log."""
    skipped = terminalreporter.getreports("skipped")
    not_begun = [each.nodeid.split("::")[0] for each in skipped if NOT_BEGUN in str(each.longrepr)]
    if not_begun:
        terminalreporter.section("tests that have not begun: their time was over")
        for file, count in sorted(collections.Counter(not_begun).items()):
            terminalreporter.write_line(f"{count:5} of {file}")
        terminalreporter.write_line(f"{len(not_begun):5} in all: this run says nothing of them")
    if "GITHUB_ACTIONS" not in os.environ:
        return
    for outcome in ("failed", "error"):
        for report in terminalreporter.getreports(outcome):
            message = str(report.longrepr).strip().rpartition("\n")[2]
            terminalreporter.write_line(f"::error title={report.nodeid}::{message}")


def digest_of(*files, text=""):
    """Return a name for the content of files and a text."""
    digest = hashlib.sha256(text.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture
def no_compilation_cache(monkeypatch):
    """Have XLA compile everything, in tests of compiling itself."""
    monkeypatch.setenv(COMPILATION_CACHE, "")


@pytest.fixture(scope="session")
def stop_before(tmp_path_factory):
    """Build the library that stops a process before a call; see `stop_before.py`."""
    return StopBefore(tmp_path_factory.mktemp("library"))


def reader_threads():
    """Return the numbers of the threads of this process that read for a loader."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if (task / "comm").read_text().startswith("vramfit-read"):
                found.append(int(task.name))
    return found


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
def sequences(tmp_path):
    """Return a directory with generated data that `vramfit train` can be given."""
    generate(tmp_path, length="8", features="4")
    return tmp_path


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
    """Derive what an example needs with XLA alone; see `derive_expected.py`.

    What was derived from the same files with the same packages is in `fixtures/examples`;
    `RECORD_EXAMPLES=1` writes what is missing there.
    """

    def run(example, *arguments, limit, devices=1):
        words = [example, "--limit", limit, "--devices", devices, "--", *arguments]
        record = derivation_record(example, words)
        if record.exists():
            return json.loads(record.read_text())
        command = [sys.executable, ROOT / "tests" / "derive_expected.py", *words]
        done = run_command(*command, env={"JAX_PLATFORMS": "cpu"}, code=0)
        if os.environ.get("RECORD_EXAMPLES"):
            record.write_text(json.dumps(json.loads(done.stdout)) + "\n")
        return json.loads(done.stdout)

    return run


def derivation_record(example, words):
    """Return the file with what is derived: all that it depends on decides its name."""
    sources = [ROOT / "examples" / f"{example}.py", ROOT / "tests" / "derive_expected.py"]
    target = ROOT / "tests" / "h100_sxm.target.txtpb"
    packages = ("jax", "jaxlib", "jax-cuda13-pjrt", "flax", "equinox", "optax", "numpyro")
    versions = [importlib.metadata.version(package) for package in packages]
    digest = digest_of(*sources, target, text=f"{[str(word) for word in words]} {versions}")
    return ROOT / "fixtures" / "examples" / f"{example}-{digest}.json"


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
