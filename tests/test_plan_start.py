"""`vramfit run --plan` applies a plan however Python is started, or says that it did not."""

import sys
import venv
from pathlib import Path

import pytest
from planning import LAYERS, vramfit

PLAN_OF_LAYERS = ("--gpu", "t4", "--budget", "1MiB", "--max-trials", 5, "--try", "remat")
# What a program that applies the plan writes, as its shapes are smaller than those planned.
APPLIED = "has other shapes or types than in the plan"
CPU = {"JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return a folder with a program and its plan."""
    folder = tmp_path_factory.mktemp("planned")
    (folder / "train.py").write_text(LAYERS)
    (folder / "sub").mkdir()
    command = ["--out", folder / "plan.toml", "--", sys.executable, folder / "train.py", 4096]
    vramfit("plan", *PLAN_OF_LAYERS, *command, code=1)
    return folder


def launch(folder, *command, code=0, options=(), **env):
    return vramfit(
        "run", *options, "--plan", folder / "plan.toml", "--", *command, code=code, **env
    )


PATHS = {
    "none": "",
    "absolute": "/elsewhere",
    "relative": "sub",
    "with dots": "{folder}/sub/../sub",
    "upwards": "sub/..",
    "linked": "{folder}/link",
    "of this directory": ".",
    "an empty entry first": ":{folder}/sub",
    "with a slash at the end": "{folder}/sub/",
    "missing": "{folder}/nowhere/..:/elsewhere",
}


@pytest.mark.parametrize("name", PATHS)
def test_whatever_is_in_pythonpath(planned, monkeypatch, name):
    if not (planned / "link").exists():
        (planned / "link").symlink_to(planned / "sub")
    monkeypatch.chdir(planned)
    path = PATHS[name].format(folder=planned)
    done = launch(planned, sys.executable, planned / "train.py", 16, PYTHONPATH=path, **CPU)
    assert APPLIED in done.stderr
    assert done.stdout.startswith("loss ")


def shell_script(folder, text):
    script = folder / "start"
    script.write_text(text)
    script.chmod(0o755)
    return [script]


RUN = "import runpy, sys\nsys.argv[1:] = ['16']\nrunpy.run_path('train.py')\n"
# What starts the program in a folder.
WAYS = {
    "a module": lambda folder: [sys.executable, "-m", "train", 16],
    "with options": lambda folder: [sys.executable, "-u", "-X", "dev", "train.py", 16],
    "a shell": lambda folder: ["sh", "-c", f"cd {folder}; exec {sys.executable} train.py 16"],
    "a script that names Python": lambda folder: shell_script(folder, f"#!{sys.executable}\n{RUN}"),
    "a long first line": lambda folder: shell_script(
        folder,
        f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''\n{RUN}",
    ),
    "env": lambda folder: ["env", "SOME=thing", sys.executable, "train.py", 16],
    "a Python that starts others": lambda folder: [
        sys.executable,
        "-c",
        "import subprocess, sys; subprocess.run([sys.executable, 'train.py', '16'], check=True)",
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_however_python_is_started(planned, monkeypatch, way):
    monkeypatch.chdir(planned)
    done = launch(planned, *WAYS[way](planned), **CPU)
    assert APPLIED in done.stderr
    assert done.stdout.startswith("loss ")


def test_a_linked_environment(planned, tmp_path):
    """The environment, and a directory above it, are links."""
    prefix = Path(sys.prefix)
    (tmp_path / "home").symlink_to(prefix.parent)
    (tmp_path / "env").symlink_to(tmp_path / "home" / prefix.name)
    python = tmp_path / "env" / "bin" / "python"
    assert APPLIED in launch(planned, python, planned / "train.py", 16, **CPU).stderr


@pytest.mark.parametrize("explain", [(), ("--explain",)])
def test_a_launcher_that_takes_the_plan_away_is_an_error(planned, explain):
    program = f"{sys.executable} {planned}/train.py 16"
    start = ["sh", "-c", f"unset VRAMFIT_PLAN; {program}"]
    done = launch(planned, *start, code=125, options=explain, **CPU)
    assert done.stdout.startswith("loss ")
    assert APPLIED not in done.stderr
    assert "the plan was not applied" in done.stderr


def test_the_exit_code_of_a_launcher_is_kept(planned):
    text = f"{sys.executable} -c 'import jax'; exit 7"
    launch(planned, "sh", "-c", text, code=7, **CPU)


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_a_python_that_ignores_the_environment_is_refused(planned, option):
    done = launch(planned, sys.executable, option, planned / "train.py", 16, code=125, **CPU)
    assert done.stdout == ""
    assert "its Python ignores `PYTHONPATH`" in done.stderr
    assert len(done.stderr.splitlines()) <= 5


def test_a_python_without_jax_is_refused(planned, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    done = launch(planned, python, planned / "train.py", 16, code=125)
    assert "has no JAX" in done.stderr
