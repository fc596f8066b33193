"""What can be done with a run of `vramfit train`: evaluate, predict, load, export, list."""

import json
import os
import shutil
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
from commands import VRAMFIT, run_python, run_vramfit, start_command
from test_train_models import write_data
from train_command import environment, vramfit, write

from vramfit.errors import InvalidArgumentError, InvalidFileError, VramfitWarning


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a trained classifier, data that it has not seen, and a model of the user's."""
    folder = tmp_path_factory.mktemp("after")
    write_data(folder / "train.h5")
    write_data(folder / "test.h5", rows=1001, seed=1)
    tables = {
        "data": {"inputs": "features", "targets": "labels", "normalize": "inputs"},
        "optimizer": {"learning_rate": 0.01},
        "training": {"epochs": 4, "directory": "runs/first"},
        "checkpoint": {"keep_last": 3},
    }
    write(folder, **tables)
    vramfit("train", "train.toml", cwd=folder, code=0)
    return folder


def read(path, name):
    with h5py.File(path) as file:
        return file[name][:]


def test_an_evaluation_counts_each_row_once(folder):
    from vramfit.train import load

    done = vramfit("train", "--evaluate", "runs/first", "test.h5", "--json", cwd=folder, code=0)
    result = json.loads(done.stdout)["result"]
    assert result["rows"] == 1001
    rows, labels = (read(folder / "test.h5", name) for name in ("features", "labels"))
    correct = (load(folder / "runs/first").predict(rows)["predictions"] == labels).mean()
    assert result["metrics"]["accuracy"] == pytest.approx(float(correct), abs=1e-6)
    assert result["metrics"]["loss"] < result["baseline"]["loss"]
    shown = vramfit("train", "--evaluate", "runs/first", "test.h5", cwd=folder, code=0).stdout
    assert "always predicting the frequency of each class" in shown


def test_predictions_are_written_for_each_row_with_what_is_kept(folder):
    from vramfit.train import load

    with h5py.File(folder / "test.h5", "a") as file:
        if "is_large" not in file:
            file["is_large"] = file["id"][:] > 500
    names = ("id", "one_hot", "flags", "is_large")
    keep = [word for name in names for word in ("--keep", name)]
    done = vramfit("predict", "runs/first", "test.h5", "out.h5", *keep, cwd=folder, code=0)
    assert done.stdout.startswith("predicted 1 001 rows with the model of step ")
    found = load(folder / "runs/first").predict(read(folder / "test.h5", "features"))
    with h5py.File(folder / "out.h5") as file, h5py.File(folder / "test.h5") as source:
        assert sorted(file) == sorted([*names, "predictions", "probabilities"])
        np.testing.assert_array_equal(file["is_large"][:], source["is_large"][:])
        for name in ("id", "one_hot", "flags"):
            assert file[name].dtype == source[name].dtype
            np.testing.assert_array_equal(file[name][:], source[name][:])
        np.testing.assert_array_equal(file["predictions"][:], found["predictions"])
        np.testing.assert_allclose(file["probabilities"][:], found["probabilities"], atol=1e-5)
        assert file.attrs["run"] == str(folder / "runs/first")
    done = vramfit("predict", "runs/first", "test.h5", "out.h5", cwd=folder, code=2)
    assert "exists and will not be overwritten" in done.stderr


def test_predictions_that_were_killed_are_resumed_to_the_same_file(folder):
    """Killed as soon as some, and as soon as most of it is there."""
    with h5py.File(folder / "many.h5", "w") as file:
        file["features"] = np.random.default_rng(0).normal(size=(60_000, 6))
        # Large, so that parts of the file are safe long before its end.
        file["kept"] = np.zeros((60_000, 100))
    command = ["predict", "runs/first", "many.h5", "OUTPUT", "--keep", "kept"]

    def words(output):
        return [output if word == "OUTPUT" else word for word in command]

    vramfit(*words("whole.h5"), cwd=folder, code=0)
    whole = (folder / "whole.h5").read_bytes()
    hidden, journal = folder / ".killed.h5.part", folder / ".killed.h5.journal"

    def rows_safe():
        """Return how many rows the journal says are on the disk."""
        lines = journal.read_text().splitlines()[1:] if journal.exists() else []
        pieces = [json.loads(line)["pieces"] for line in lines if line.endswith("}")]
        return 64 * pieces[-1] if pieces else 0

    for share in (0.2, 0.7):
        options = {"cwd": folder, "env": environment(), "start_new_session": True}
        with start_command(*VRAMFIT, *words("killed.h5"), **options) as running:
            # Not by time: however slow the machine is, there is something to resume.
            while running.poll() is None and rows_safe() < share * 60_000:
                time.sleep(0.001)
            os.killpg(running.pid, signal.SIGKILL)
        if running.returncode == 0:
            break  # it was quicker than the one who wanted to kill it
        assert not (folder / "killed.h5").exists()
    else:
        done = vramfit(*words("killed.h5"), "--json", cwd=folder, code=0)
        assert json.loads(done.stdout)["result"]["resumed_rows"] > 0
    assert (folder / "killed.h5").read_bytes() == whole
    assert not hidden.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "runs", "test.h5", "x.h5"], "is not the directory of a run"),
        (["predict", "runs/first", "test.h5", "x.h5", "--inputs", "pair"],
         "have the shape [2], but the model was trained on [6]"),
        (["predict", "runs/first", "test.h5", "x.h5", "--keep", "nothing"], "nothing"),
        (["predict", "runs/first", "test.h5", "x.h5", "--checkpoint", "7"],
         "there is no checkpoint of step 7"),
        (["predict", "runs/first", "missing.h5", "x.h5"], "missing.h5"),
        (["train", "--evaluate", "runs/first", "strange.h5"], "has the label 9 in row 3"),
        (["train", "--evaluate", "runs/first", "real.h5"], "needs a label for each row"),
        (["train", "--evaluate", "runs/first", "wide.h5"],
         "have the shape [3], but the model was trained on []"),
        (["predict", "runs/first", "test.h5", "./test.h5", "--force"],
         "is the file with the inputs"),
        (["predict", "runs/first", "kept.h5", "x.h5", "--keep", "predictions/old"],
         "cannot be kept"),
        (["export", "runs/first", "--format", "safetensors", "--output", "test.h5"],
         "already exists"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(folder, words, message):
    with h5py.File(folder / "strange.h5", "w") as file:
        file["features"], file["labels"] = np.zeros((5, 6)), [0, 1, 2, 9, 0]
    with h5py.File(folder / "real.h5", "w") as file:
        file["features"], file["labels"] = np.zeros((5, 6)), np.zeros(5)
    with h5py.File(folder / "wide.h5", "w") as file:
        file["features"], file["labels"] = np.zeros((5, 6)), np.zeros((5, 3), int)
    with h5py.File(folder / "kept.h5", "w") as file:
        file["features"], file["predictions/old"] = np.zeros((5, 6)), np.zeros(5)
    done = vramfit(*words, cwd=folder, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x.h5").exists()


def test_checkpoints_are_chosen_by_name_and_step(folder):
    from vramfit.train import load, load_state

    run = folder / "runs/first"
    best, last = load(run), load(run, "last")
    assert last.step == max(int(path.name) for path in (run / "checkpoints").iterdir())
    assert best.metrics["loss"] <= last.metrics["loss"]
    assert load(run, last.step).step == last.step
    state = load_state(run, like=last.state, checkpoint="last")
    np.testing.assert_array_equal(
        state["parameters"]["head"]["kernel"], last.parameters["head"]["kernel"]
    )
    with pytest.raises(InvalidArgumentError, match="has a different state"):
        load_state(run, like={"parameters": last.parameters})
    with pytest.raises(InvalidArgumentError, match="no checkpoint of step 3"):
        load(run, 3)
    with pytest.raises(InvalidArgumentError, match=r"shape \[5\], but the model was trained on"):
        best(np.zeros((2, 5)))


# What orbax has begun to read is collected after its event loop is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_checkpoint_is_not_loaded(folder, tmp_path):
    from vramfit.train import load

    run = tmp_path / "damaged"
    shutil.copytree(folder / "runs/first", run)
    step = load(run, "last").step
    for path in (run / f"checkpoints/{step}/state/d").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InvalidFileError, match="cannot be read") as found:
        load(run, "last")
    assert "there are others" in found.value.hint
    # Nor does one whose metadata is gone prevent that others are read.
    shutil.rmtree(run / f"checkpoints/{step}/run_metadata")
    earlier = min(int(path.name) for path in (run / "checkpoints").iterdir())
    assert load(run, earlier).step == earlier


def test_a_run_of_a_program_gives_its_state_and_no_model(tmp_path):
    import jax.numpy as jnp

    from vramfit.train import fit, load, load_state

    def step(state, batch):
        return state + batch.sum(), {"loss": batch.mean()}

    fit(step, jnp.zeros(()), [np.ones(4, "f4")] * 3, directory=tmp_path / "run", progress="none")
    assert float(load_state(tmp_path / "run", like=jnp.zeros(()))) == 12
    with pytest.raises(InvalidArgumentError, match="whose model only that program knows"):
        load(tmp_path / "run")
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["data"] is None
    assert record["sources"]["data"] == {"type": "list"}


def test_exports_compute_the_same_without_vramfit(folder):
    from vramfit.train import load

    for kind in ("stablehlo", "safetensors"):
        vramfit("export", "runs/first", "--format", kind, cwd=folder, code=0)
    program = """
import sys
import h5py, numpy as np
from jax import export
from safetensors.numpy import load_file

with h5py.File("test.h5") as file:
    rows = file["features"][:].astype("f4")
found = export.deserialize(bytearray(open("first.stablehlo", "rb").read())).call(rows)
arrays = load_file("first.safetensors")
x = (rows - arrays["normalization.inputs.mean"]) / arrays["normalization.inputs.std"]
hidden = x @ arrays["layers.0.kernel"] + arrays["layers.0.bias"]
import jax
logits = jax.nn.gelu(hidden) @ arrays["layers.1.kernel"] + arrays["layers.1.bias"]
logits = jax.nn.gelu(logits) @ arrays["head.kernel"] + arrays["head.bias"]
np.savez("exported.npz", logits=logits, **found)
assert not {"vramfit", "flax", "optax"} & set(sys.modules)
"""
    run_python("-c", program, cwd=folder, env={"JAX_PLATFORMS": "cpu"}, code=0)
    model = load(folder / "runs/first")
    rows = read(folder / "test.h5", "features")
    with np.load(folder / "exported.npz") as exported:
        for name, values in model.predict(rows).items():
            np.testing.assert_array_equal(exported[name], values)
        np.testing.assert_allclose(exported["logits"], model(rows), rtol=1e-4, atol=1e-4)


def test_a_run_keeps_the_code_of_its_model(folder, tmp_path):
    from vramfit.train import load

    (folder / "sizes.py").write_text("INPUTS = 6\n")
    function = "def make(outputs, rngs):\n    return nnx.Linear(INPUTS, outputs, rngs=rngs)\n"
    (folder / "linear.py").write_text(
        f"from flax import nnx\nfrom sizes import INPUTS\n\n\n{function}"
    )
    write(
        folder,
        data={"inputs": "features", "targets": "labels", "normalize": "inputs"},
        model={"kind": "linear.py:make"},
        training={"epochs": 1, "directory": "runs/linear"},
    )
    text = (folder / "train.toml").read_text().replace("hidden_sizes = [32]\n", "")
    (folder / "train.toml").write_text(text)
    vramfit("train", "train.toml", cwd=folder, code=0)
    rows = read(folder / "test.h5", "features")
    before = np.asarray(load(folder / "runs/linear")(rows))
    (folder / "linear.py").write_text("def make():\n    raise RuntimeError\n")
    with pytest.warns(VramfitWarning, match="has changed since the run began"):
        np.testing.assert_array_equal(load(folder / "runs/linear")(rows), before)
    moved = tmp_path / "elsewhere"
    shutil.move(folder / "runs/linear", moved)
    (folder / "linear.py").unlink()
    (folder / "sizes.py").unlink()
    with pytest.warns(VramfitWarning, match="is not there any more"):
        np.testing.assert_array_equal(load(moved)(rows), before)


def test_the_record_of_a_run_has_its_sessions(folder, tmp_path):
    shutil.copy(folder / "train.h5", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    write(tmp_path, data={"inputs": "features", "targets": "labels"}, training={"epochs": 1})
    vramfit("train", "train.toml", cwd=tmp_path, code=0)
    vramfit("train", "train.toml", "--epochs", 2, cwd=tmp_path, code=0)
    record = json.loads((tmp_path / "run/run.json").read_text())
    first, second = record["sessions"]
    assert first["command"] == "vramfit train train.toml"
    assert second["command"] == "vramfit train train.toml --epochs 2"
    assert len(first["git"]["commit"]) == 40
    assert {"python", "jax", "flax", "vramfit"} <= set(first["versions"])
    assert record["config"]["data"]["path"] == str(tmp_path / "train.h5")
    assert record["sources"]["data"]["rows"] == 2700
    assert record["config"]["training"]["epochs"] == 2


def test_runs_are_listed_side_by_side(folder):
    done = vramfit("train", "--list", "runs", "--json", cwd=folder, code=0)
    runs = json.loads(done.stdout)["runs"]
    assert "first" in [run["run"] for run in runs]
    [first] = [run for run in runs if run["run"] == "first"]
    assert first["stop_reason"] == "finished"
    assert first["config"]["data.normalize"] == "inputs"
    page = folder / "runs.html"
    shown = vramfit("train", "--list", "runs", "--html", page, cwd=folder, code=0).stdout
    assert "training run" in shown.splitlines()[0]
    assert "default-src 'none'" in page.read_text()
    (folder / "nothing").mkdir(exist_ok=True)
    done = run_vramfit("train", "--list", folder / "nothing", code=2)
    assert "there are no training runs" in done.stderr


def test_a_token_that_the_model_does_not_know_is_an_error(tmp_path):
    random = np.random.default_rng(0)
    for name, largest in (("words.h5", 19), ("new.h5", 25)):
        with h5py.File(tmp_path / name, "w") as file:
            words = random.integers(0, 20, (200, 8))
            words[7, 3] = largest
            file["words"] = words
    write(
        tmp_path,
        data={"path": "words.h5", "inputs": "words", "targets": "words"},
        model={"kind": "gru", "hidden_sizes": [8]},
        training={"epochs": 1},
    )
    vramfit("train", "train.toml", cwd=tmp_path, code=0)
    for words in (["train", "--evaluate", "run", "new.h5"], ["predict", "run", "new.h5", "x.h5"]):
        done = vramfit(*words, cwd=tmp_path, code=2)
        assert "has the token 25 in row 7, but the 20 tokens" in done.stderr
    vramfit("predict", "run", "words.h5", "x.h5", cwd=tmp_path, code=0)
    assert read(tmp_path / "x.h5", "predictions").shape == (200, 7)


def test_inputs_of_another_type_are_not_rounded(tmp_path):
    from vramfit.train import load

    with h5py.File(tmp_path / "train.h5", "w") as file:
        pixels = np.random.default_rng(0).integers(0, 256, (300, 4, 4), "u1")
        file["pixels"], file["labels"] = pixels, (pixels.mean(axis=(1, 2)) > 127).astype(int)
    write(
        tmp_path,
        data={"inputs": "pixels", "targets": "labels", "scale": "1/255"},
        model={"kind": "cnn", "hidden_sizes": [4]},
        training={"epochs": 1},
    )
    vramfit("train", "train.toml", cwd=tmp_path, code=0)
    model = load(tmp_path / "run")
    np.testing.assert_array_equal(model(pixels[:3].astype("f4")), model(pixels[:3]))
    for wrong in (pixels[:3] / 255, pixels[:3].astype(int) + 300):
        with pytest.raises(InvalidArgumentError, match="was trained on uint8"):
            model(wrong)
    assert model(pixels[:0]).shape == (0, 2)


def test_init_does_not_mix_groups_nor_trains_on_tests(tmp_path):
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        for group in ("test", "train"):
            file[f"{group}/x"], file[f"{group}/y"] = np.zeros((50, 3)), np.zeros(50)
    vramfit("train", "--init", "groups.toml", "--data", "groups.h5", cwd=tmp_path, code=0)
    text = (tmp_path / "groups.toml").read_text()
    assert '\ninputs = "train/x"\n' in text
    assert '\ntargets = "train/y"\n' in text
