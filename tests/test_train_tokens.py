"""Tokens and pixels: generated, proposed by `--init`, trained; and what is refused of them."""

import json
import math

import h5py
import numpy as np
import pytest
from train_command import vramfit


def train(folder, *words, file="train.toml"):
    done = vramfit("train", file, "--json", *words, cwd=folder, code=0)
    printed = json.loads(done.stdout)
    return printed.get("result") or printed


def generate(folder, name, *words):
    vramfit("data", "generate", name, *words, cwd=folder, code=0)


def propose(folder, data):
    vramfit("train", "--init", "train.toml", "--data", data, cwd=folder, code=0)
    return (folder / "train.toml").read_text().splitlines()


SHORT = ["--set", "training.directory=run", "--set", "training.epochs=4", "--device", "cpu"]
SMALL = ["--set", "model.hidden_sizes=[32]", "--set", "optimizer.learning_rate=0.01", *SHORT]


@pytest.fixture(name="tokens")
def generated_tokens(tmp_path):
    size = ["--samples", "2k", "--length", "12", "--vocabulary", "50"]
    generate(tmp_path, "tokens.h5", "--kind", "tokens", *size)
    assert 'inputs = "tokens"' in propose(tmp_path, "tokens.h5")
    return tmp_path


@pytest.mark.parametrize("model", ["gru", "lstm", "transformer"])
def test_generated_tokens_can_be_trained_as_proposed(tokens, model):
    epochs = train(tokens, "--set", f"model.kind={model}", *SMALL)["epochs"]
    losses = [epoch["validation"]["loss"] for epoch in epochs]
    # One that guesses is left with log(50), one that counts with the entropy of its counts.
    with h5py.File(tokens / "tokens.h5") as file:
        counts = np.bincount(file["tokens"][:, 1:].ravel())
    share = counts[counts > 0] / counts.sum()
    assert losses[-1] < losses[0] < math.log(50)
    assert losses[-1] < 1.02 * -(share * np.log(share)).sum()


def test_the_next_token_is_predicted_from_those_before_it_alone(tmp_path):
    # Each row counts up; only the first token of a row cannot be known.
    rows = (np.arange(512)[:, None] + np.arange(9)) % 16
    with h5py.File(tmp_path / "count.h5", "w") as file:
        file["words"] = rows.astype("i8")
    propose(tmp_path, "count.h5")
    for model, length in ("gru", 8), ("transformer", 3):
        directory = f"training.directory={model}{length}"
        last = train(
            tmp_path,
            *("--set", f"model.kind={model}", "--set", "data.batch_size=32", *SMALL),
            *(
                "--set",
                f"data.sequence_length={length}",
                "--set",
                directory,
                "--set",
                "training.epochs=15",
            ),
        )["epochs"][-1]["validation"]
        assert last["accuracy"] > 0.99
    # What cannot be known is not: in random rows nothing is better than guessing.
    with h5py.File(tmp_path / "count.h5", "w") as file:
        file["words"] = np.random.default_rng(0).integers(0, 16, (512, 9))
    last = train(tmp_path, "--set", "model.kind=transformer", *SMALL)["epochs"][-1]
    assert last["validation"]["accuracy"] < 0.15


def test_tokens_can_have_labels_of_their_own(tmp_path):
    random = np.random.default_rng(0)
    words = random.integers(0, 20, (1000, 6))
    with h5py.File(tmp_path / "texts.h5", "w") as file:
        file["words"], file["label"] = words.astype("i4"), (words == 7).any(axis=1).astype("i8")
    propose(tmp_path, "texts.h5")
    words = ["--set", "data.vocabulary=20", "--set", "model.kind=transformer"]
    more = ["--set", "data.batch_size=32", "--set", "training.epochs=12"]
    last = train(tmp_path, *words, *SMALL, *more)["epochs"][-1]
    assert last["validation"]["accuracy"] > 0.97


def test_check_says_what_becomes_of_tokens(tokens):
    done = vramfit("train", "train.toml", "--check", cwd=tokens)
    inputs = "tokens  int32 [2 000, 12], embedding of 50 tokens"
    assert f"{inputs}, all but the last step of each row" in done.stdout
    words = ["train", "train.toml", "--check", "--set", "data.sequence_length=5"]
    shorter = vramfit(*words, cwd=tokens)
    assert f"{inputs}, the 5 steps before the last of each row" in shorter.stdout
    assert "next-token prediction, cross-entropy over 50 tokens" in done.stdout


def test_stacks_of_steps_and_a_rehearsal_have_tokens_too(tokens):
    once = train(tokens, *SMALL, "--set", "training.epochs=1")
    stacked = ["--set", "training.steps_per_dispatch=7", "--set", "training.directory=other"]
    again = train(tokens, *SMALL, "--set", "training.epochs=1", *stacked)
    assert again["steps"] == once["steps"] == 7
    loss = once["epochs"][0]["validation"]["loss"]
    assert again["epochs"][0]["validation"]["loss"] == pytest.approx(loss, rel=1e-4)
    summary = train(tokens, "--dry-run", "t4", "--set", "data.batch_size=1800")
    assert summary["fits"]


def test_tokens_out_of_range_are_named(tokens):
    with h5py.File(tokens / "tokens.h5", "r+") as file:
        file["tokens"][1234, 5] = 77
    words = ["train", "train.toml", "--check", "--set", "data.vocabulary=50"]
    done = vramfit(*words, cwd=tokens, code=2)
    assert "`tokens` of `tokens.h5` has the token 77 in row 1234, but the 50 tokens" in done.stderr
    assert "correct that row, or set `data.vocabulary` to at least 78" in done.stderr
    with h5py.File(tokens / "tokens.h5", "r+") as file:
        file["tokens"][1234, 5] = 60_000
    done = vramfit(*words[:3], cwd=tokens, code=2)
    assert (
        "but only 51 different tokens: a model of 60001 tokens is probably not intended"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.kind=mlp"], "a model of kind `mlp` has no embedding for them"),
        (["data.scale=0.5"], "`scale` has no effect on the tokens of `tokens`"),
        (["data.sequence_length=12"], "rows of `tokens` have 11 tokens for training"),
        (["data.inputs=other", "data.vocabulary=9"], "rows of `other` are float32 with the shape"),
    ],
)
def test_what_tokens_cannot_be_is_refused(tokens, settings, said):
    with h5py.File(tokens / "tokens.h5", "r+") as file:
        file["other"] = np.zeros((2000, 3), "f4")
    words = [word for setting in settings for word in ("--set", setting)]
    done = vramfit("train", "train.toml", "--check", *words, cwd=tokens, code=2)
    assert said in done.stderr


def test_generated_images_can_be_trained_as_proposed(tmp_path):
    generate(tmp_path, "images.h5", "--kind", "images", "--samples", "1k", "--image-size", "8")
    with h5py.File(tmp_path / "images.h5") as file:
        assert file["images"].dtype == np.uint8
    assert 'scale = "1/255"' in propose(tmp_path, "images.h5")
    done = vramfit("train", "train.toml", "--check", cwd=tmp_path)
    assert "images  uint8 [1 000, 8, 8" in done.stdout
    assert ", scaled by 1/255 on the device\n" in done.stdout
    epochs = train(tmp_path, *SMALL)["epochs"]
    assert epochs[-1]["train"]["loss"] < epochs[0]["train"]["loss"]


def test_a_scale_is_what_scaled_data_would_be(tmp_path):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (600, 5), "u1")
    scaled = x.astype("f4") * np.float32(1 / 255)
    y = scaled.mean(axis=1, dtype="f4")
    losses = {}
    for name, values, scale in [
        ("bytes", x, "1/255"),
        ("longs", x.astype("i8"), "1/255"),
        ("floats", scaled, "1"),
        ("doubled", scaled * 2, "0.5"),
    ]:
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"], file["y"] = values, y
        (tmp_path / f"{name}.toml").write_text(
            f'[data]\npath = "{name}.h5"\ninputs = "x"\ntargets = "y"\nscale = "{scale}"\n'
            f'[model]\nkind = "mlp"\n[training]\ndirectory = "{name}"\ndevice = "cpu"\nepochs = 2\n'
        )
        epochs = train(tmp_path, file=f"{name}.toml")["epochs"]
        losses[name] = [epoch["validation"]["loss"] for epoch in epochs]
    for name in losses:
        assert losses[name] == pytest.approx(losses["floats"], rel=1e-5), name


def test_floats_can_be_their_own_targets(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.random.default_rng(0).normal(size=(1000, 4)).astype("f4")
    (tmp_path / "train.toml").write_text(
        '[data]\npath = "x.h5"\ninputs = "x"\ntargets = "x"\n[model]\nkind = "mlp"\n'
    )
    more = ["--set", "training.epochs=10", "--set", "data.batch_size=32"]
    epochs = train(tmp_path, *SMALL, *more)["epochs"]
    # One that predicts the mean is left with 1.
    assert epochs[-1]["validation"]["loss"] < 0.01


def test_data_that_nothing_can_be_proposed_for_is_refused(tmp_path):
    with h5py.File(tmp_path / "lone.h5", "w") as file:
        file["x"] = np.zeros((10, 3), "f4")
    done = vramfit("train", "--init", "train.toml", "--data", "lone.h5", cwd=tmp_path, code=2)
    assert "has neither inputs with a dataset named `targets`" in done.stderr
    assert not (tmp_path / "train.toml").exists()
