"""`vramfit train --check` adds up what the models and optimizers really keep."""

import json

import h5py
import jax
import numpy as np
import pytest
from train_command import events, vramfit, write

from vramfit.train.cli.task import build

MODELS = {
    "mlp": {"hidden_sizes": [32, 16]},
    "gru": {"hidden_sizes": [24, 16]},
    "lstm": {"hidden_sizes": [24, 16]},
    "transformer": {"hidden_sizes": [16], "layers": 3, "heads": 2},
}
OPTIMIZERS = [
    {"name": "adamw"},
    {"name": "adam", "accumulate": 3},
    {"name": "lion", "schedule": "cosine"},
    {"name": "sgd"},
]


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    with h5py.File(tmp_path / "train.h5", "w") as f:
        f["input_sequences"] = random.standard_normal((300, 12, 5)).astype("f4")
        f["targets"] = random.standard_normal((300, 3)).astype("f4")
        f["labels"] = random.integers(0, 7, 300)
    return tmp_path


def check(folder, *words):
    done = vramfit("train", "train.toml", "--check", "--json", *words, cwd=folder, code=0)
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("targets", ["targets", "labels", "input_sequences"])
def test_parameters_and_optimizer_are_those_of_the_task(rows, kind, targets):
    write(rows, model={"kind": kind, **MODELS[kind]})
    length = [] if kind == "mlp" else ["--set", "data.sequence_length=8"]
    for optimizer in OPTIMIZERS:
        words = [f"--set=optimizer.{key}={value}" for key, value in optimizer.items()]
        found = check(rows, f"--set=data.targets={targets}", *length, *words)
        memory = found["memory"]
        task = build(found["config"], found["data"])
        state = jax.eval_shape(task.init)
        kept = [leaf for leaf in jax.tree.leaves(state["optimizer"]) if leaf.ndim]
        assert memory["parameters"] == task.parameter_count
        assert memory["parameter_bytes"] == 4 * task.parameter_count == memory["gradient_bytes"]
        assert memory["optimizer_bytes"] == sum(4 * leaf.size for leaf in kept)
    row = (8 if length else 12) * 5 + {"targets": 3, "labels": 1, "input_sequences": 60}[targets]
    assert memory["batch_bytes"] == 3 * 64 * 4 * row
    parts = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "batch_bytes")
    assert memory["device_bytes"] == sum(memory[part] for part in parts)
    assert memory["loader_bytes"] == 2 * 256 * 2**20


def test_what_does_not_fit_is_reported_with_both_figures(rows):
    write(rows, model={"kind": "mlp", "hidden_sizes": [1_000_000, 1_000_000]})
    (warning,) = check(rows)["warnings"]
    assert warning.startswith("the run needs an estimated 14.6 TiB, but the host has ")
    text = vramfit("train", "train.toml", "--check", cwd=rows).stdout
    assert f"warning      {warning}" in text
    assert "parameters   1 000 065 000 003: 3.6 TiB" in text


def test_keys_without_effect_on_a_run_are_reported(rows):
    # 270 rows are 4 batches of 64 in an epoch, 8 in the run.
    write(rows)
    done = vramfit("train", "train.toml", "--set", "optimizer.accumulate=9", cwd=rows, code=2)
    assert "`accumulate` is 9, but the run has 8 batches: the parameters would" in done.stderr
    assert "hint: use at most `--set optimizer.accumulate=8`, or more epochs" in done.stderr
    assert not (rows / "run").exists()
    (warning,) = check(rows, "--set=optimizer.accumulate=5")["warnings"]
    assert warning.startswith("`accumulate` is 5, but an epoch has 4 batches")
    warmup = ["--set=optimizer.schedule=warmup_cosine", "--set=optimizer.warmup_steps=8"]
    (warning,) = check(rows, *warmup)["warnings"]
    assert warning.startswith("`warmup_steps` is 8, but the parameters are updated 8 times")
    rest = ["--set=checkpoint.every_steps=9", "--set=training.stop_after=2"]
    assert [warning[:12] for warning in check(rows, *rest)["warnings"]] == [
        "`every_steps",
        "`stop_after`",
    ]
    assert check(rows)["warnings"] == []
    done = vramfit("train", "train.toml", *rest, cwd=rows, code=0)
    assert "warning: `stop_after` is 2, but the run has 2 epochs: it never stops" in done.stderr


@pytest.mark.parametrize("more", [[], ["--set=training.steps_per_dispatch=2"]])
def test_a_model_learns_its_own_inputs(rows, more):
    write(rows, data={"targets": "input_sequences"}, model={"hidden_sizes": [64]})
    vramfit("train", "train.toml", "--epochs", "12", *more, cwd=rows, code=0)
    losses = [line["validation"]["loss"] for line in events(rows, "epoch")]
    assert losses[-1] < 0.9 * losses[0]
    again = vramfit("train", "train.toml", "--epochs", "13", *more, cwd=rows, code=0)
    assert "resuming from step" in again.stderr


def test_bytes_are_rebuilt_and_are_no_labels(rows):
    with h5py.File(rows / "train.h5", "a") as f:
        f["bytes"] = np.arange(300, dtype="u1").reshape(300, 1) % 9
    write(rows, data={"inputs": "bytes", "targets": "bytes"})
    found = check(rows)["data"]
    assert (found["classes"], found["targets"]["batch_dtype"]) == (None, "float32")
    assert vramfit("train", "train.toml", cwd=rows).returncode == 0


@pytest.mark.parametrize("kind", ["gru", "lstm", "transformer"])
def test_the_vectors_of_tokens_count(rows, kind):
    with h5py.File(rows / "train.h5", "a") as f:
        f["tokens"] = np.arange(3000).reshape(300, 10) % 11
    write(
        rows, data={"inputs": "tokens", "targets": "tokens"}, model={"kind": kind, **MODELS[kind]}
    )
    found = check(rows)
    assert found["memory"]["parameters"] == build(found["config"], found["data"]).parameter_count
    assert found["memory"]["batch_bytes"] == 3 * 64 * 4 * (9 + 9)
