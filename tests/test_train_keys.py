"""Every key of the configuration, with a value that is not its default, in a run to its end."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest
from commands import ROOT
from train_command import generate, vramfit

# Together the runs set every key; each holds what goes well together.
RUNS = {
    "mlp": {
        "data": {"validation_fraction": 0.2, "batch_size": 32, "shuffle": False, "seed": 3},
        "model": {"kind": "mlp", "hidden_sizes": [16, 8], "dropout": 0.3, "dtype": "bfloat16"},
        "optimizer": {"name": "sgd", "momentum": 0.5, "learning_rate": 0.01, "clip": 1.0},
        "training": {
            "seed": 5,
            "stop_after": 1,
            "log_every": 7,
            "stop_on_nan": False,
            "loss": "huber",
            "best_by": "min loss",
        },
        "checkpoint": {"every_steps": 20, "keep_last": 1, "keep_best": 2},
    },
    "gru": {
        "data": {"sequence_length": 4, "memory": "64MiB", "normalize": "both"},
        "model": {"kind": "gru", "hidden_sizes": [8], "layers": 3, "dropout": 0.5},
        "optimizer": {
            "name": "lion",
            "weight_decay": 0.1,
            "weight_decay_mask": "matrices",
            "accumulate": 2,
            "schedule": "reduce_on_plateau",
            "plateau_factor": 0.3,
            "plateau_patience": 1,
        },
        "training": {"steps_per_dispatch": 4},
        "checkpoint": {"every_seconds": 1},
    },
    "lstm": {
        "model": {"kind": "lstm", "hidden_sizes": [8, 4], "dropout": 0.1},
        "optimizer": {"name": "adam", "schedule": "cosine"},
        "training": {"tensorboard": True},
    },
    "tokens": {
        "data": {"inputs": "words", "targets": "words", "vocabulary": 9, "path": "labeled.h5"},
        "model": {"kind": "transformer", "hidden_sizes": [12], "heads": 3},
    },
    "pixels": {
        "data": {"inputs": "pixels", "targets": "kind", "scale": "1/255", "path": "labeled.h5"},
        "model": {"kind": "cnn", "hidden_sizes": [8]},
        "training": {"steps": 8, "eval_every": 3},
    },
    "own": {
        "data": {"inputs": "signal", "targets": "kind", "path": "labeled.h5"},
        "model": {"kind": "own.py:Net", "arguments": {"width": 8}},
    },
    "transformer": {
        "data": {
            "inputs": "signal",
            "targets": "kind",
            "classes": 5,
            "path": "labeled.h5",
            "validation_path": "held-out.h5",
        },
        "model": {"kind": "transformer", "hidden_sizes": [12], "heads": 3, "dropout": 0.2},
        "optimizer": {"schedule": "warmup_cosine", "warmup_steps": 3},
    },
}


def documented_keys():
    """Return `section.key` for every row of the reference, generated from the table of keys."""
    section, keys = None, set()
    for line in (ROOT / "docs/reference/training-config.md").read_text().splitlines():
        if heading := re.fullmatch(r"## `\[(\w+)\]`", line):
            section = heading[1]
        elif row := re.match(r"\| `(\w+)` \|", line):
            keys.add(f"{section}.{row[1]}")
    return keys


def write_labeled(path, rows, seed):
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file["signal"] = random.standard_normal((rows, 6, 2)).astype("f4")
        file["words"] = random.integers(0, 9, (rows, 6), "u2")
        file["pixels"] = random.integers(0, 256, (rows, 5, 5), "u1")
        file["kind"] = random.integers(0, 4, rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    generate(folder, samples=400)
    write_labeled(folder / "labeled.h5", 300, seed=1)
    write_labeled(folder / "held-out.h5", 64, seed=2)
    shutil.copy(ROOT / "tests/own_models.py", folder / "own.py")
    return folder


def test_the_runs_set_every_key():
    usual = {"data.path", "training.epochs", "training.device", "training.directory"}
    of_runs = {
        f"{section}.{key}" for run in RUNS.values() for section in run for key in run[section]
    }
    assert of_runs | usual == documented_keys()


def write_config(folder, kind):
    tables = {
        "data": {"path": "train.h5", "batch_size": 64},
        "training": {"epochs": 2, "device": "cpu", "directory": f"run-{kind}"},
    }
    lines = []
    for section in {**tables, **RUNS[kind]}:
        keys = {**tables.get(section, {}), **RUNS[kind].get(section, {})}
        lines += [f"[{section}]", *(f"{key} = {as_toml(value)}" for key, value in keys.items())]
    (folder / f"{kind}.toml").write_text("\n".join(lines) + "\n")


def as_toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {as_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def epoch_losses(folder, kind):
    """Return the training loss of each epoch; one that was evaluated again counts once."""
    lines = (folder / f"run-{kind}/metrics.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["event"] == "epoch"]
    return {event["epoch"]: event["train"]["loss"] for event in events}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_with_unusual_values_trains(data, kind):
    write_config(data, kind)
    vramfit("train", f"{kind}.toml", cwd=data, code=0)
    losses = epoch_losses(data, kind)
    assert sorted(losses) == [1, 2]
    assert np.isfinite(list(losses.values())).all()


def test_dropout_draws_the_same_masks_after_a_resume(data):
    """The third epoch is the same whether the run was interrupted before it or not."""
    losses = []
    for directory, parts in (("whole", [3]), ("parts", [2, 3])):
        write_config(data, "gru")
        for epochs in parts:
            vramfit(
                *("train", "gru.toml", "--epochs", epochs),
                *(
                    "--set",
                    f"training.directory={directory}",
                ),
                cwd=data,
                code=0,
            )
        events = map(json.loads, (data / directory / "metrics.jsonl").read_text().splitlines())
        losses.append({e["epoch"]: e["train"] for e in events if e["event"] == "epoch"})
    assert losses[0] == losses[1]
    assert sorted(losses[0]) == [1, 2, 3]
