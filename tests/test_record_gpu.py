"""The script that records a real GPU works; here the real half is pretended, too."""

import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def record(folder, *options):
    command = [sys.executable, str(ROOT / "scripts" / "record_gpu.py"), "--out", str(folder)]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_both_halves_are_recorded_and_compared(tmp_path):
    done = record(tmp_path, "--pretend", "t4", "--only", "host_memory")
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "summary.txt").read_text()
    assert "GPU: t4, pretended" in summary
    assert "host_memory: 36 figures are equal, 0 differ" in summary
    with tarfile.open(tmp_path / "record.tar.gz") as archive:
        names = set(archive.getnames())
        told = archive.extractfile("record/host_memory.real.out.txt").read().decode()
        record_of = json.load(archive.extractfile("record/host_memory.virtual.json"))
    assert {"record/host_memory.virtual.out.txt", "record/packages.out.txt"} <= names
    assert told.count("TOLD") == 6
    assert record_of["exit_code"] == 0


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
    done = record(tmp_path, "--pretend", "t4", "--only", name)
    assert done.returncode == 0, done.stderr
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
    done = record(tmp_path, "--pretend", "l4", "--only", "rates")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "calibration.toml"
    recorded = tomllib.loads(path.read_text())
    assert recorded["schema"] == 1
    assert recorded["gpu"] == "l4"
    assert recorded["pretended"] is True
    assert set(recorded["matmul_flops_per_s"]) == {"bf16", "f16", "f32"}
    # A virtual GPU computes nothing, so its rates are refused.
    options = ["--gpu", "l4", "--calibration", path, "--", "python", "-c", "pass"]
    command = [sys.executable, "-m", "vramfit", "dryrun", *options]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "recorded on a virtual GPU" in refused.stderr
    path.write_text(path.read_text().replace("pretended = true", ""))
    accepted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "calibration" not in accepted.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path):
    done = record(tmp_path)
    assert done.returncode == 1
    assert "no NVIDIA GPU here" in done.stderr
