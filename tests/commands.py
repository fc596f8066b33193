"""Runs commands and keeps what they print."""

import functools
import os
import re
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VRAMFIT = [sys.executable, "-m", "vramfit"]
# The folder of the commands of the environment; the interpreter of the tests is in another.
SCRIPTS = Path(sysconfig.get_path("scripts"))
COMMAND_PATH = f"{os.path.dirname(sys.executable)}{os.pathsep}{SCRIPTS}"
# The folder in which dry runs keep what XLA's compiler made of programs; see `conftest.py`.
COMPILATION_CACHE = "VRAMFIT_COMPILATION_CACHE"


def clean_environment(**more):
    """Return this process's environment without anything that steers JAX or vramfit.

    Only the compilation cache is kept, which changes how long a dry run takes and nothing else.
    """
    steering = re.compile(r"(JAX|XLA|TF|VRAMFIT|CUDA|NVIDIA)_|PYTHONPATH$")
    kept = {k: v for k, v in os.environ.items() if not steering.match(k)}
    if COMPILATION_CACHE in os.environ:
        kept[COMPILATION_CACHE] = os.environ[COMPILATION_CACHE]
    return kept | more


def run_command(*words, env=None, code=None, **options):
    """Run a command to its end and return it, with what it printed as text.

    Args:
        words: The command; each word is made a string.
        env: Variables besides those of `clean_environment()`.
        code: The exit code that the command must have; None accepts any.
        options: As for `subprocess.run`.
    """
    done = subprocess.run(
        [str(word) for word in words],
        env=clean_environment(**(env or {})),
        capture_output=True,
        check=False,
        text=True,
        **options,
    )
    output = f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    assert code in (None, done.returncode), f"exit code {done.returncode}\n{output}"
    return done


def start_command(*words, env=None, **options):
    """Start a command whose output is read as text, with `env` as for `run_command`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    environment = clean_environment(**(env or {}))
    return subprocess.Popen([str(word) for word in words], env=environment, **options)


def run_python(*words, **options):
    """Run Python with these arguments; options are those of `run_command`."""
    return run_command(sys.executable, *words, **options)


def run_vramfit(*words, **options):
    """Run the command line of vramfit; options are those of `run_command`."""
    return run_command(*VRAMFIT, *words, **options)


@functools.cache
def build(package, *kinds):
    """Build a package of the workspace, or `--examples` of it, and return the folder of all builds.

    Where `make` has built all of that, nothing is done: another Cargo may be compiling tests.
    """
    if not os.environ.get("TESTS_ARE_BUILT"):
        run_command("cargo", "build", "--quiet", "--package", package, *kinds, code=0, cwd=ROOT)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


def run_example(name, *arguments):
    """Run an example of `vramfit-analysis`, and return what it prints."""
    program = build("vramfit-analysis", "--examples") / "examples" / name
    return run_command(program, *arguments, code=0, cwd=ROOT).stdout


_held_ports = []


def hold_port():
    """Return a port of this machine that no other process is given as long as this one lives.

    JAX's coordinator can use it nevertheless: gRPC shares ports that are shared.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("localhost", 0))
    _held_ports.append(held)
    return held.getsockname()[1]
