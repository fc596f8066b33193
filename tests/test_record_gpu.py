"""The script that records a real GPU works; here the real half is pretended, too."""

import json
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from commands import ROOT, run_command, run_python


def record(folder, *options, code):
    script = ROOT / "scripts" / "record" / "gpu.py"
    return run_python(script, "--out", folder, *options, code=code)


def test_both_halves_are_recorded_and_compared(tmp_path):
    record(tmp_path, "--pretend", "t4", "--only", "host_memory", code=0)
    summary = (tmp_path / "summary.txt").read_text()
    assert "GPU: t4, pretended" in summary
    assert "host_memory: 36 figures are equal, 0 differ" in summary
    with tarfile.open(tmp_path / "record.tar.gz") as archive:
        names = set(archive.getnames())
        output = archive.extractfile("record/host_memory.real.out.txt").read().decode()
        record_of = json.load(archive.extractfile("record/host_memory.virtual.json"))
    assert {"record/host_memory.virtual.out.txt", "record/packages.out.txt"} <= names
    assert output.count("STATS") == 6
    assert record_of["exit_code"] == 0


def test_a_plan_is_found_and_compared_with_the_run_that_applies_it(tmp_path):
    record(tmp_path, "--pretend", "h100-80g", "--only", "plan-scan", code=0)
    summary = (tmp_path / "summary.txt").read_text()
    # Four times six statistics.
    assert "  plan-scan: 24 figures are equal, 0 differ" in summary
    assert "20 of 20 losses are equal" in summary


@pytest.mark.parametrize(
    "name",
    [
        "hosts_fsdp-1x2x1",
        "hosts_tensor_parallel-1x4x1",
        "hosts_experts-1x8x1",
        "hosts_replicated-1x32x1",
    ],
)
def test_mocked_hosts_are_compared_with_those_of_a_dry_run(tmp_path, name):
    record(tmp_path, "--pretend", "t4", "--only", name, code=0)
    summary = (tmp_path / "summary.txt").read_text()
    # Six steps of six statistics.
    assert f"  {name}: 36 figures are equal, 0 differ" in summary
    assert f"  {name} as a host: 36 figures are equal, 0 differ" in summary
    with tarfile.open(tmp_path / "record.tar.gz") as archive:
        recorded = json.load(archive.extractfile("record/hosts.json"))
    assert (recorded["schema"], recorded["gpu"], recorded["pretended"]) == (1, "t4", True)
    assert "jaxlib" in recorded["versions"]
    steps = recorded["statistics"][name]
    assert list(steps) == ["before", "made", "compiled", "step 0", "step 1", "step 2"]
    # The pool has what XLA gave it, and a step needs more while it runs.
    assert 0 < steps["made"]["bytes_in_use"] < steps["step 0"]["peak_bytes_in_use"]


def test_rates_are_written_as_a_calibration(tmp_path):
    record(tmp_path, "--pretend", "l4", "--only", "rates", code=0)
    path = tmp_path / "calibration.toml"
    recorded = tomllib.loads(path.read_text())
    assert recorded["schema"] == 1
    assert recorded["gpu"] == "l4"
    assert recorded["pretended"] is True
    assert set(recorded["matmul_flops_per_s"]) == {"bf16", "f16", "f32"}
    assert {"exponential", "tanh", "sine"} <= set(recorded["elementwise_ops_per_s"])
    # A virtual GPU computes nothing, so its rates are refused.
    options = ["--gpu", "l4", "--calibration", path, "--", "python", "-c", "pass"]
    command = [sys.executable, "-m", "vramfit", "dryrun", *options]
    refused = run_command(*command, code=2)
    assert "recorded on a virtual GPU" in refused.stderr
    path.write_text(path.read_text().replace("pretended = true", ""))
    accepted = run_command(*command)
    assert "calibration" not in accepted.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path):
    done = record(tmp_path, code=1)
    assert "no NVIDIA GPU here" in done.stderr
