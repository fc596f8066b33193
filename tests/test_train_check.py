"""What `vramfit train --check` says of a run before it starts."""

import json

import h5py
import numpy as np
import pytest
from train_command import events, vramfit, write


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


@pytest.mark.parametrize(
    ("targets", "loss"), [("targets", None), ("targets", "mse"), ("labels", "mse")]
)
def test_a_number_of_classes_of_targets_that_are_no_labels_is_an_error(rows, targets, loss):
    data = {"targets": targets, "classes": 3}
    write(rows, data=data, training={} if loss is None else {"loss": loss})
    done = vramfit("train", "train.toml", "--check", cwd=rows, code=2)
    assert f"`data.classes` is 3, but `{targets}` has no such labels" in done.stderr
    assert "hint: remove it, or store one integer label for each row" in done.stderr
