"""Models and losses of the user's, from files, in three libraries."""

import json
import shutil

import h5py
import numpy as np
import pytest
from commands import ROOT
from train_command import vramfit, write

CLASSES = 4


def write_data(path, rows=3000, seed=0):
    """Write features of very different scales, with targets of several kinds."""
    random = np.random.default_rng(seed)
    unit = random.normal(size=(rows, 6))
    labels = (unit[:, 1] > 0) + 2 * (unit[:, 4] > 0)
    with h5py.File(path, "w") as file:
        file["features"] = unit * [1, 10, 1e3, 1, 1e4, 1] + 50
        file["labels"] = labels
        file["one_hot"] = np.eye(CLASSES, dtype="f4")[labels]
        file["flags"] = (unit[:, :3] > 0.5).astype("u1")
        file["value"] = 1000 * np.tanh(unit @ np.arange(6)) + 30_000
        file["pair"] = np.stack([unit[:, 0], 500 * unit[:, 1]], axis=-1)
        file["id"] = np.arange(rows)
    return unit, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_data(folder / "train.h5")
    shutil.copy(ROOT / "tests/own_models.py", folder / "own.py")
    return folder


def train(folder, directory, *, epochs=2, code=0, data=None, **model):
    own = {"inputs": "features", "targets": "labels", "normalize": "inputs"} | (data or {})
    own = {name: value for name, value in own.items() if value is not None}
    training = {"epochs": epochs, "directory": directory, "log_every": 10}
    (folder / "train.toml").unlink(missing_ok=True)
    tables = {"data": own, "training": training | model.pop("training", {})}
    optimizer = {"learning_rate": 0.01} | model.pop("optimizer", {})
    write(folder, model=model, optimizer=optimizer, **tables)
    text = (folder / "train.toml").read_text()
    if model.get("kind", "mlp") != "mlp":
        text = text.replace("hidden_sizes = [32]\n", "")
    (folder / "train.toml").write_text(text)
    return vramfit("train", "train.toml", "--json", cwd=folder, code=code)


def refusal(done):
    """Return the error that a command has printed, after what models have printed."""
    return json.loads(done.stderr.splitlines()[-1])["error"]


@pytest.mark.parametrize("name", ["Net", "LinenNet", "EquinoxNet"])
def test_a_module_of_the_user_learns_and_resumes_to_the_bit(folder, name):
    import jax

    from vramfit.train import load

    kind = f"own.py:{name}"
    done = train(folder, f"{name}-whole", epochs=4, kind=kind)
    printed = json.loads(done.stdout)["result"]
    assert printed["best"]["metrics"]["accuracy"] > 0.8
    assert printed["beats_baseline"] is True
    for epochs in (1, 4):
        train(folder, f"{name}-parts", epochs=epochs, kind=kind)
    whole, parts = (load(folder / f"{name}-{which}", "last") for which in ("whole", "parts"))
    both = zip(jax.tree.leaves(whole.state), jax.tree.leaves(parts.state), strict=True)
    for one, other in both:
        one, other = (
            jax.random.key_data(it) if jax.dtypes.issubdtype(it.dtype, jax.dtypes.prng_key) else it
            for it in (one, other)
        )
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()

    with h5py.File(folder / "train.h5") as file:
        rows, labels = file["features"][:256], file["labels"][:256]
    found = whole.predict(rows)
    assert (np.asarray(found["predictions"]) == labels).mean() > 0.8
    np.testing.assert_allclose(np.asarray(found["probabilities"]).sum(axis=-1), 1, rtol=1e-5)
    assert np.array_equal(np.asarray(whole(rows)).argmax(axis=-1), found["predictions"])
    # The module takes what the model does.
    mean, std = (whole.state["normalization"]["inputs"][word] for word in ("mean", "std"))
    module = jax.vmap(whole.module) if name == "EquinoxNet" else whole.module
    inputs = (rows.astype("f4") - mean) / std
    outputs = module(inputs, train=False) if name == "LinenNet" else module(inputs)
    np.testing.assert_allclose(outputs, whole(rows), rtol=1e-4, atol=1e-4)


def test_a_function_of_the_user_makes_the_model_with_arguments(folder):
    done = train(folder, "function", epochs=1, kind="own.py:make_net", code=2)
    error = refusal(done)
    assert error["message"] == "`make_net` needs a value for `width`"
    assert "set `model.arguments = { width = … }`" in error["hint"]
    text = (
        (folder / "train.toml").read_text().replace("[model]", "[model]\narguments = {width = 8}")
    )
    (folder / "train.toml").write_text(text)
    vramfit("train", "train.toml", "--json", cwd=folder, code=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "own.py:Missing"}, "has no `Missing`"),
        ({"kind": "other.py:Net"}, "which does not exist"),
        ({"kind": "no_such_module:Net"}, "which cannot be imported"),
        ({"kind": "own.py:no_model"}, "makes a `int`, which is not a model"),
        ({"kind": "own.py:without_outputs"}, "needs [4]"),
        ({"kind": "own.py:one_axis_too_many"}, "returns an array of shape [1, 4] for each row"),
        ({"kind": "own.py:Fails"}, "ValueError: my own words (own.py:"),
        ({"training": {"best_by": "max acuracy"}}, "has only `accuracy`, `loss`"),
        ({"data": {"targets": "value", "normalize": "both"},
          "training": {"loss": "own.py:row_losses"}, "kind": "own.py:two_outputs"},
         "it cannot be converted to their units"),
        ({"data": {"targets": "value"}, "training": {"loss": "own.py:mean_loss"}},
         "returns one number as `loss`"),
        ({"data": {"targets": "value", "normalize": None}, "training": {"loss": "cross_entropy"}},
         "`cross_entropy` needs a label for each row"),
        ({"data": {"targets": "pair"}, "training": {"loss": "cross_entropy"}},
         "but `cross_entropy` takes probabilities"),
        ({"data": {"normalize": "both"}}, "are not quantities"),
        ({"kind": "cnn"}, "needs rows of [height, width]"),
    ],
)  # fmt: skip
def test_what_is_no_model_or_loss_is_said_before_training(folder, changes, message):
    done = train(folder, "refused", code=2, **changes)
    error = refusal(done)
    assert message in error["message"] + (error["cause"] or ""), error
    assert not (folder / "refused").exists()


def numpy_losses(loss, outputs, targets):
    """Return the mean loss by its definition."""
    if loss == "cross_entropy":
        log = outputs - np.log(np.exp(outputs).sum(axis=-1, keepdims=True))
        if targets.ndim == 1:
            return -log[np.arange(len(targets)), targets].mean()
        return -(log * targets).sum(axis=-1).mean()
    if loss == "binary_cross_entropy":
        return (np.logaddexp(0, outputs) - targets * outputs).mean()
    error = np.abs(outputs - targets.reshape(outputs.shape))
    if loss == "huber":
        return np.where(error < 1, error**2 / 2, error - 0.5).mean()
    return (error if loss == "mae" else error**2).mean()


@pytest.mark.parametrize(
    ("loss", "targets", "normalize"),
    [
        ("mse", "value", "both"),
        ("mae", "pair", "both"),
        ("huber", "pair", "inputs"),
        ("cross_entropy", "one_hot", "inputs"),
        ("binary_cross_entropy", "flags", "inputs"),
        ("own.py:row_losses", "value", "both"),
    ],
)
def test_losses_and_predictions_are_those_of_the_file(folder, loss, targets, normalize):
    """Whatever is normalized: the metrics of an evaluation follow from the predictions."""
    from vramfit.train import load

    directory = f"loss-{targets}-{loss.split(':')[-1]}"
    data = {"targets": targets, "normalize": normalize}
    done = train(folder, directory, epochs=3, data=data, training={"loss": loss})
    result = json.loads(done.stdout)["result"]
    assert result["beats_baseline"] is True
    with h5py.File(folder / "train.h5") as file:
        rows, wanted = file["features"][:], file[targets][:].astype("f8")
    model = load(folder / directory)
    outputs = np.asarray(model(rows), "f8")
    done = vramfit("train", "--evaluate", directory, "train.h5", "--json", cwd=folder, code=0)
    evaluated = json.loads(done.stdout)["result"]
    name = "mse" if loss.startswith("own") else loss
    assert evaluated["metrics"]["loss"] == pytest.approx(
        numpy_losses(name, outputs, wanted), rel=1e-4
    )
    mean = wanted.mean(axis=0)
    constant = {
        "cross_entropy": lambda: np.log(mean),
        "binary_cross_entropy": lambda: np.log(mean / (1 - mean)),
    }.get(loss, lambda: mean)()
    shape = outputs.shape if name.endswith("entropy") else wanted.shape
    baseline = numpy_losses(name, np.broadcast_to(constant, shape), wanted)
    assert evaluated["baseline"]["loss"] == pytest.approx(baseline, rel=1e-4)
    predictions = np.asarray(model.predict(rows)["predictions"])
    if normalize == "both" and not loss.startswith("own"):
        assert predictions.shape == wanted.shape
        assert np.abs(predictions - wanted).mean() < np.abs(mean - wanted).mean()


@pytest.mark.parametrize("kind", ["own.py:Net", "own.py:make_mlp"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_learning_rate_is_lowered_on_a_plateau(folder, kind, accumulate):
    """With a scale among the parameters, with and without accumulation."""
    optimizer = {
        "schedule": "reduce_on_plateau",
        "plateau_factor": 0.5,
        "plateau_patience": 1,
        "accumulate": accumulate,
        "clip": 1.0,
        # So low that nothing improves.
        "learning_rate": 1e-9,
    }
    directory = f"plateau-{kind[-3:]}-{accumulate}"
    train(folder, directory, epochs=6, kind=kind, optimizer=optimizer)
    lines = (folder / directory / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    rates = [it["train"]["learning_rate"] for it in events if it["event"] == "epoch"]
    assert rates[0] == pytest.approx(1e-9)
    assert rates == sorted(rates, reverse=True)
    halvings = -np.log2(rates[-1] / 1e-9)
    assert halvings >= 1
    assert halvings == pytest.approx(round(halvings), abs=1e-4)


def test_the_check_builds_a_model_of_the_user(folder):
    train(folder, "checked", epochs=1, kind="own.py:make_mlp")
    done = vramfit("train", "train.toml", "--check", "--json", cwd=folder, code=0)
    assert json.loads(done.stdout)["parameters"] == 6 * 16 + 16 + 16 * CLASSES + CLASSES
    missing = ["--set", "model.kind=own.py:Missing"]
    done = vramfit("train", "train.toml", "--check", *missing, cwd=folder, code=2)
    assert "has no `Missing`" in done.stderr


def test_without_normalization_the_summary_says_that_nothing_was_learned(folder):
    done = train(folder, "raw", data={"normalize": None}, kind="mlp")
    assert json.loads(done.stdout)["result"]["beats_baseline"] is False
    shown = vramfit("train", "train.toml", "--fresh", cwd=folder, code=0).stderr
    text = " ".join(shown.split())
    assert "WARNING: the model is not better than always predicting the frequency" in text
    assert "check `data.normalize`" in text


def test_what_init_proposes_for_scaled_data_learns(folder):
    vramfit("train", "--init", "proposed.toml", "--data", "train.h5", cwd=folder, code=0)
    text = (folder / "proposed.toml").read_text()
    assert '\nnormalize = "inputs"\n' in text
    done = vramfit(
        *("train", "proposed.toml", "--json", "--epochs", 6),
        *("--set", "optimizer.learning_rate=0.01"),
        *("--set", "training.device=cpu"),
        cwd=folder,
        code=0,
    )
    result = json.loads(done.stdout)["result"]
    assert result["best"]["metrics"]["accuracy"] > 0.95
    assert result["best"]["metrics"]["loss"] < result["baseline"]["metrics"]["loss"]


def test_images_are_learned_by_what_init_proposes(tmp_path):
    vramfit(
        *("data", "generate", "images.h5", "--kind", "images", "--samples", 2000),
        cwd=tmp_path,
        code=0,
    )
    vramfit("train", "--init", "images.toml", "--data", "images.h5", cwd=tmp_path, code=0)
    assert '\nkind = "cnn"\n' in (tmp_path / "images.toml").read_text()
    done = vramfit(
        *("train", "images.toml", "--json", "--epochs", 3, "--device", "cpu"),
        *("--set", "data.batch_size=64", "--set", "optimizer.learning_rate=0.003"),
        cwd=tmp_path,
        code=0,
    )
    assert json.loads(done.stdout)["result"]["beats_baseline"] is True


def test_two_processes_train_a_model_with_keys_in_its_state(folder):
    """JAX does not put keys of random numbers on the devices of another process by itself."""
    from test_train_command import two_processes

    train(folder, "alone", epochs=1, kind="own.py:Net")
    text = (folder / "train.toml").read_text().replace('"alone"', '"together"')
    (folder / "train.toml").write_text(text)
    for code, _, err in two_processes(folder, "--json"):
        assert code == 0, err
    losses = []
    for directory in ("alone", "together"):
        lines = (folder / directory / "metrics.jsonl").read_text().splitlines()
        [epoch] = [it for it in map(json.loads, lines) if it["event"] == "epoch"]
        losses.append(epoch["train"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
