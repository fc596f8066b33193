"""`vramfit diff --python`: one command, two environments."""

import json
import sys

import pytest
from commands import run_vramfit

SCRIPT = """
import os
import jax, jax.numpy as jnp

rows = 1024 * (2 if "larger" in os.environ.get("PYTHONUSERBASE", "") else 1)
x = jnp.ones((rows, 1024))
jax.block_until_ready(jax.jit(lambda x: x * 2)(x))
print("the program's own output")
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def other_python(folder, text):
    """Write a Python that starts another one, with something else in its environment."""
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\n{text}\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def test_two_dry_runs_are_compared(script, tmp_path):
    words = ["diff", "--gpu", "t4", "--python", sys.executable, "--python", sys.executable]
    done = run_vramfit(*words, "--json", "-", "--", "python", script, code=0)
    found = json.loads(done.stdout)
    assert found["difference_bytes"] == 0
    assert found["a"]["total_bytes"] == found["b"]["total_bytes"] >= 8 << 20
    assert "A: a dry run with" in done.stderr
    assert "own output" not in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.trace"))


def test_what_the_second_environment_needs_more_fails(script, tmp_path):
    larger = other_python(tmp_path, "export PYTHONUSERBASE=/larger")
    words = ["diff", "--gpu", "t4", "--python", sys.executable, "--python", larger]
    done = run_vramfit(*words, "--fail-above", "1MiB", "--", script, code=1)
    assert "B needs 8.0 MiB more at the peak" in done.stdout + done.stderr
    assert str(larger) in done.stderr


def test_wrong_commands_say_what_is_wrong(script, tmp_path):
    python = ["--python", sys.executable]
    both = [*python, *python, "--gpu", "t4"]
    (tmp_path / "fails.py").write_text("raise SystemExit('no data here')\n")
    wrong = [
        ([*python, "--gpu", "t4", "--", "python", script], "`--python` was given 1 times"),
        ([*both, "--", "bash", script], "`bash` is not Python"),
        ([*both, "--", "python", tmp_path / "missing.py"], "there is no file"),
        ([*both, "--", "python", tmp_path / "fails.py"], "no data here"),
        ([*python, *python, "--", "python", script], "missing `--gpu"),
        ([*both[:-2], "--gpu", "t5", "--", "python", script], "t5"),
        (["a.trace", "b.trace", *python], "cannot be used with"),
        (["a.trace"], "missing `<B>`"),
    ]
    for words, message in wrong:
        done = run_vramfit("diff", *words, code=2)
        assert message in done.stderr, done.stderr
