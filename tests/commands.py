"""Runs commands and keeps what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VRAMFIT = [sys.executable, "-m", "vramfit"]


def clean_environment(**more):
    """Return this process's environment without anything that steers JAX or vramfit."""
    steering = re.compile(r"(JAX|XLA|TF|VRAMFIT|CUDA|NVIDIA)_|PYTHONPATH$")
    return {k: v for k, v in os.environ.items() if not steering.match(k)} | more


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
    told = f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    assert code in (None, done.returncode), f"exit code {done.returncode}\n{told}"
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
