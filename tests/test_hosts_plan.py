"""`plan` and `check` measure the host that decides."""

import json
import sys

import pytest
from commands import run_vramfit
from hosts import EXAMPLES, run_hosts

PROGRAM = EXAMPLES / "pipeline.py"


@pytest.fixture(scope="module")
def peak_bytes(tmp_path_factory):
    """Return the peak of the last stage of the pipeline, which needs most."""
    folder = tmp_path_factory.mktemp("dryrun")
    run = run_hosts(folder, PROGRAM, "--steps", 3, hosts=4, arguments=["--small"])
    last, others = run.host(3)["peak_bytes"], [run.host(host)["peak_bytes"] for host in (0, 1)]
    assert last > max(others)
    return last


def vramfit(folder, *arguments):
    done = run_vramfit(*arguments, cwd=folder)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return done


def test_a_plan_is_measured_on_the_host_that_needs_most(tmp_path, peak_bytes):
    options = ["--gpu", "h100-80gx2", "--hosts", "4", "--max-trials", "2", "--json", "-"]
    done = vramfit(tmp_path, "plan", *options, "--", sys.executable, PROGRAM, "--small")
    assert json.loads(done.stdout)["baseline"]["peak_bytes"] == peak_bytes


def test_an_entry_of_a_check_may_have_hosts(tmp_path, peak_bytes):
    command = json.dumps([sys.executable, str(PROGRAM), "--small"])
    lines = ["[[check.entry]]", 'name = "pipeline"', f"command = {command}"]
    lines += ['gpus = ["h100-80gx2"]', "hosts = 4", ""]
    (tmp_path / "vramfit.toml").write_text("\n".join(lines))
    vramfit(tmp_path, "check", "--update")
    assert f"{peak_bytes}" in (tmp_path / "vramfit.lock").read_text()
