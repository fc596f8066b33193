"""Whose memory it is that a check finds: the code's or a library's.

The toolchain's is in `test_matrix`.
"""

import json

import pytest
from checking import Project

# Keeps as many moments for each weight as it is told.
LIBRARY = """
import jax, jax.numpy as jnp

def moments(w):
    return tuple(jnp.zeros_like(w) for _ in range({moments}))

def update(w, g, state):
    return w - 0.1 * g, tuple(m + g for m in state)
"""
PROGRAM = """
import jax, jax.numpy as jnp
import tinyopt

@jax.jit
def step(w, state, x):
    g = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)
    return tinyopt.update(w, g, state)

w = jnp.ones(({width}, 1024))
state = tinyopt.moments(w)
for _ in range(4):
    w, state = step(w, state, jnp.ones((256, {width})))
"""
MIB = 1 << 20


@pytest.fixture
def project(tmp_path, tmp_path_factory):
    """A repository of which the lock file is accepted, and a library that it does not contain."""
    folder = tmp_path / "project"
    folder.mkdir()
    project = Project(folder, tmp_path / "cache")
    install(project, "1.0", moments=1)
    write_program(project, 1024)
    packages = tmp_path / "site-packages"
    entry = project.entry() + f'env = {{ PYTHONPATH = "{packages}" }}\n'
    project.write("vramfit.toml", entry)
    project.git("init", "-q", "-b", "main")
    project.check("--update")
    project.commit("begin")
    project.git("switch", "-qc", "change")
    return project


def install(project, version, moments):
    """Replace the library by another version, as `pip install --upgrade` does."""
    packages = "../site-packages"
    project.write(f"{packages}/tinyopt/__init__.py", LIBRARY.format(moments=moments))
    metadata = f"Metadata-Version: 2.1\nName: tinyopt\nVersion: {version}\n"
    project.write(f"{packages}/tinyopt-1.0.dist-info/METADATA", metadata)


def write_program(project, width):
    project.write("train.py", PROGRAM.format(width=width))


def growth_of(project, *options):
    """Return what has grown, and the sentence about it."""
    file = project.folder.parent / "check.json"
    text = project.check("--json", file, "--force", *options, code=1).stdout
    [row] = json.loads(file.read_text())["rows"]
    names = ("code_bytes", "toolchain_bytes", "library_bytes", "unknown")
    growth = {name: row["growth"][name] for name in names}
    if growth["code_bytes"] is not None:
        total = row["measured"]["peak_bytes"] - row["accepted"]["peak_bytes"]
        assert growth["code_bytes"] + growth["library_bytes"] == total
    return growth, text


def grown(code, libraries):
    return {"code_bytes": code, "toolchain_bytes": 0, "library_bytes": libraries, "unknown": ""}


def test_versions_of_libraries_are_in_the_lock_file(project):
    line = next(line for line in project.lock().splitlines() if line.startswith("train "))
    assert " libraries=tinyopt:1.0 " in line
    assert project.rows()[0]["measured"]["libraries"] == {"tinyopt": "1.0"}
    # Figures that stay the same are of the new version as well.
    install(project, "1.1", moments=1)
    done = project.check()
    assert "unchanged (tinyopt 1.0 -> 1.1)" in done.stdout
    assert "to accept the figures of these versions: vramfit check --update" in done.stdout


def test_the_code_needs_more(project):
    write_program(project, 2048)
    growth, text = growth_of(project)
    assert growth_of(project, "--no-cache")[0] == growth
    assert growth == grown(growth["code_bytes"], 0)
    assert growth["code_bytes"] > 4 * MIB
    assert ", toolchain 0 B\n" in text


def test_a_library_needs_more(project):
    install(project, "2.0", moments=3)
    growth, text = growth_of(project)
    assert growth_of(project, "--no-cache")[0] == growth
    assert growth == grown(0, growth["library_bytes"])
    # Two more moments, before and after the step; less what the peak had elsewhere.
    assert growth["library_bytes"] == 15 * MIB
    assert "code 0 B, libraries +15.0 MiB (tinyopt 1.0 -> 2.0)" in text


def test_code_and_library_need_more(project):
    write_program(project, 2048)
    code, _ = growth_of(project)
    install(project, "2.0", moments=3)
    both, text = growth_of(project)
    # With more moments, wider weights cost more.
    assert both == grown(both["code_bytes"], 15 * MIB)
    assert both["code_bytes"] > code["code_bytes"]
    assert "libraries +15.0 MiB (tinyopt 1.0 -> 2.0)" in text


def test_code_that_needs_more_fails_although_a_library_needs_less(project):
    write_program(project, 1280)
    install(project, "2.0", moments=0)
    growth, text = growth_of(project)
    assert growth["code_bytes"] > 0 > growth["library_bytes"]
    assert growth["code_bytes"] + growth["library_bytes"] < 0
    assert "but the code needs more than accepted" in text


def test_without_a_repository_they_cannot_be_told_apart(project):
    install(project, "2.0", moments=3)
    (project.folder / ".git").rename(project.folder / "git")
    growth, text = growth_of(project)
    assert (growth["code_bytes"], growth["library_bytes"]) == (None, None)
    assert "tinyopt 1.0 -> 2.0; code and libraries cannot be told apart: " in text


def test_a_lock_file_older_than_the_merge_base_blames_the_code_all_the_same(project):
    """Nothing else has changed since; which of it the branch did is said apart."""
    project.git("switch", "-q", "main")
    write_program(project, 2048)
    project.commit("grow without accepting it")
    project.git("switch", "-qc", "other")
    write_program(project, 3072)
    with_cache = project.rows(code=1)[0]["growth"]
    without = project.rows("--no-cache", code=1)[0]["growth"]
    assert with_cache["code_bytes"] == without["code_bytes"] > 8 * MIB
    assert "the lock file is older than it" in without["unknown"]
