"""`--json`: one option with one meaning in every command that has results."""

import json

import pytest
from commands import ROOT, run_vramfit

TRACES = ROOT / "fixtures/traces"
GPT = TRACES / "train_gpt-h100-80g.trace"
LOG = "RESOURCE_EXHAUSTED: Out of memory allocating 10737418240 bytes.\n"
NO_DRIVER = {"VRAMFIT_NVML": "/nowhere/libnvidia-ml.so", "VRAMFIT_CUDA": "/nowhere/libcuda.so"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    (folder / "train.log").write_text(LOG)
    options = ("--kind", "tabular", "--samples", 10, "--features", 2)
    run_vramfit("data", "generate", "rows.h5", *options, cwd=folder, code=0)
    return folder


COMMANDS = {
    "gpus": ["gpus"],
    "gpus-show": ["gpus", "show", "t4"],
    "doctor": ["doctor", "--no-jax"],
    "top": ["top", "--once"],
    "top-stream": ["top", "--replay", ROOT / "fixtures/top/demo.jsonl", "--interval", "50ms"],
    "inspect": ["data", "inspect", "rows.h5"],
    "stats": ["data", "stats", "rows.h5"],
    "explain": ["explain", "train.log"],
    "report": ["report", GPT],
    "replay": ["replay", GPT, "--fraction", "90%"],
    "diff": ["diff", TRACES / "small_gpt-batch-8.trace", TRACES / "small_gpt-batch-16.trace"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_json_goes_to_standard_output_or_a_file(name, folder, tmp_path):
    def run(*options, code=None):
        return run_vramfit(*COMMANDS[name], *options, cwd=folder, env=NO_DRIVER, code=code)

    printed = run("--json", "-")
    values = [json.loads(line) for line in printed.stdout.splitlines()]
    assert values
    assert {value["schema"] for value in values} == {2}
    assert run("--json").stdout.count("\n") == printed.stdout.count("\n")

    file = tmp_path / "answer.json"
    text = run("--json", file, code=printed.returncode)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [value.keys() for value in written] == [value.keys() for value in values]
    shown = text.stdout + text.stderr
    assert name == "top-stream" or len(shown) > 100, shown
    assert not text.stdout.startswith("{")

    refused = run("--json", file, code=2)
    assert "already exists" in refused.stderr
    run("--json", file, "--force", code=printed.returncode)


def test_a_generated_file_is_described(tmp_path):
    words = ["data", "generate", "rows.h5", "--kind", "tokens", "--samples", 4, "--json"]
    done = run_vramfit(*words, "rows.json", cwd=tmp_path, code=0)
    assert "wrote `rows.h5`" in done.stderr
    assert json.loads((tmp_path / "rows.json").read_text())["schema"] == 2


def test_a_gpu_is_not_taken_for_a_file(tmp_path):
    done = run_vramfit("gpus", "--json", "t4", cwd=tmp_path, code=2)
    assert "`vramfit gpus t4 --json -`" in done.stderr
    assert not list(tmp_path.iterdir())
    assert json.loads(run_vramfit("gpus", "t4", "--json", code=0).stdout)["gpu"]["name"] == "t4"
