"""`vramfit.gpus` gives the same catalog as `vramfit gpus`."""

import json

import pytest
from commands import run_vramfit

from vramfit import gpus
from vramfit.errors import InvalidFileError, UnknownGpuError


def test_both_languages_give_the_same_gpus():
    done = run_vramfit("gpus", "--json", code=0)
    listed = json.loads(done.stdout)["gpus"]
    ours = gpus.all()
    assert [gpu["name"] for gpu in listed] == [gpu.name for gpu in ours]
    for entry, gpu in zip(listed, ours, strict=True):
        assert entry["total_memory_bytes"] == gpu.total_memory_bytes
        assert entry["max_total_memory_bytes"] == gpu.max_total_memory_bytes
        assert tuple(entry["compute_capability"]) == gpu.compute_capability
        assert {k: v for k, v in entry["peak_tflops"].items() if v is not None} == gpu.peak_tflops
        assert (entry["memory_certainty"] == "estimated") == gpu.memory_is_estimated


def test_a_gpu_is_found_by_each_of_its_names():
    gpu = gpus.find("h100-80g")
    assert gpu == gpus.find("NVIDIA H100 80GB HBM3")
    for alias in gpu.aliases:
        assert gpus.find(alias) == gpu
    assert repr(gpu) == "<Gpu h100-80g: 79.1 GiB>"


def test_an_unknown_gpu_names_the_nearest():
    with pytest.raises(UnknownGpuError) as caught:
        gpus.find("h100-81g")
    assert "h100-80g" in caught.value.hint


def test_a_gpu_file_that_is_none_is_refused(tmp_path):
    file = tmp_path / "gpu.toml"
    file.write_text("name = 'mine'\n")
    with pytest.raises(InvalidFileError):
        gpus.find(str(file))


def test_gpus_cannot_be_changed():
    with pytest.raises(AttributeError):
        gpus.find("t4").name = "mine"


def test_a_name_alone_shows_that_gpu():
    def shown(*words):
        done = run_vramfit("gpus", *words)
        return done.returncode, done.stdout

    assert shown("h100-80g") == shown("show", "h100-80g")
    code, text = shown("h100-80g", "--json")
    assert (code, json.loads(text)["gpu"]["name"]) == (0, "h100-80g")
    assert shown("no-such-gpu")[0] == 2
