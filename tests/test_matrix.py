"""The programs of `tests/matrix` run on every supported release of JAX.

The release that is installed here runs with the ordinary tests; the others with `make matrix`, and
those that need a newer Python where there is one.
"""

import json
import os
import shlex
import sys

import pytest
from checking import GROWN, GROWN_LINE, PROGRAM, Project
from commands import ROOT, run_command, run_vramfit
from on_gpu import environment
from planning import check_runs, run_names

SCRIPTS = sorted((ROOT / "tests" / "matrix").glob("*.py"))
RELEASES = sorted(path.stem.removeprefix("jax-") for path in (ROOT / "requirements").glob("jax-*"))
# So that several processes run what takes minutes.
PARTS = 6
# All others run on one GPU.
ON_EIGHT_GPUS = ("devices", "sharded_offloading", "sharded_step", "small_sharded_outputs")


def run(command, script):
    count = 8 if script.stem in ON_EIGHT_GPUS else 1
    run_command(*command, script, env=environment(count=count), code=0)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_installed_release(script):
    run([sys.executable], script)


@pytest.mark.matrix
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("release", RELEASES)
def test_release(release, script):
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    assert command.is_file(), f"{command} is not there: `make matrix`"
    run(json.loads(command.read_text()), script)


@pytest.mark.matrix
@pytest.mark.parametrize("release", RELEASES)
def test_plan(release, tmp_path):
    """A plan is found, and is what its dry run measures; offloaded values are not on the GPU."""
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    program = [*json.loads(command.read_text()), ROOT / "tests" / "plan" / "scanned.py", "32768"]
    plan, offloaded = tmp_path / "plan.toml", tmp_path / "offloaded.toml"
    options = ["--try", "remat", "--budget", "1600MiB", "--max-trials", "4", "--out", plan]
    found = vramfit("plan", "--gpu", "t4", *options, "--no-cache", "--json", "-", "--", *program)
    kept = found["recommended"]["peak_bytes"]
    assert found["failures"] == []
    assert found["meets_budget"] is True
    assert found["recommended"]["moves"] == ["scanned.py:9 (layer): recompute everything"]
    text = plan.read_text()
    offloaded.write_text(text.replace("segments = ", "offload_inputs = true\nsegments = "))
    dry = ["dryrun", "--full", "--gpu", "t4", "--steps", "3", "--json", "-", "--plan"]
    peaks = [
        max(device["peak_bytes"] for device in vramfit(*dry, path, "--", *program)["devices"])
        for path in (plan, offloaded)
    ]
    # A stack of 16 x 64 MiB.
    assert peaks[0] == kept
    assert peaks[1] <= kept - (14 * 64 << 20)


@pytest.mark.matrix
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("release", RELEASES)
def test_a_plan_changes_no_result(release, part):
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    names = run_names(of_libraries=False)[part::PARTS]
    check_runs(json.loads(command.read_text()), names, "--all-cuts", is_exact=False)


@pytest.mark.matrix
@pytest.mark.parametrize("release", RELEASES)
def test_code_and_toolchain_are_told_apart(release, tmp_path):
    """A change of the program and of JAX at once: what each takes is that of a dry run with one."""
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    old = shlex.join(json.loads(command.read_text()))
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", tmp_path / "cache")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    path = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}

    def use(interpreter):
        (bin_folder / "python").write_text(f'#!/bin/sh\nexec {interpreter} "$@"\n')
        (bin_folder / "python").chmod(0o755)

    def peak():
        """Return the peak of the program by a dry run that has nothing to do with a check."""
        arguments = ["dryrun", "--full", "--gpu", "l4", "--steps", "3", "--json", "-", "--"]
        summary = vramfit(*arguments, bin_folder / "python", project.folder / "train.py")
        return summary["peak_bytes"]

    project.write("train.py", PROGRAM)
    project.write("vramfit.toml", project.entry(command=["python", "train.py"]))
    project.git("init", "-q", "-b", "main")
    use(old)
    project.check("--update", env=path)
    project.commit("first")
    accepted = peak()
    use(sys.executable)
    upgraded = peak()
    project.git("checkout", "-q", "-b", "branch")
    project.write("train.py", GROWN)
    project.commit("second")
    now = peak()
    assert now > upgraded
    [row] = project.rows(code=1, env=path)
    assert row["accepted"]["peak_bytes"] == accepted
    assert row["measured"]["peak_bytes"] == now
    assert row["growth"]["code_bytes"] == now - upgraded
    assert row["growth"]["toolchain_bytes"] == upgraded - accepted
    assert any(f"train.py:{GROWN_LINE} " in line["site"] for line in row["growth"]["lines"])
    assert f"JAX {row['accepted']['jax']} -> " in " ".join(row["details"])
    # The lock file of the new release has no line of the old one.
    project.check("--update", "--prune", env=path)
    assert project.lock().count("\ntrain l4 ") == 1


def vramfit(*arguments):
    """Run the command line of this Python, and return the JSON that it prints."""
    done = run_vramfit(*arguments, timeout=1200)
    assert done.stdout, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
