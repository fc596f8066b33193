"""`vramfit train`: from a generated file to a model that has learnt, through every ending."""

import json
import os
import signal
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import ROOT, VRAMFIT, hold_port, run_python, start_command
from train_command import environment, events, generate, until, vramfit, write


# One that predicts the mean is left with a loss of 1.1, a perfect model with 0.0156.
@pytest.mark.parametrize(
    ("kind", "model", "epochs", "reached"),
    [
        ("mlp", {"hidden_sizes": [64]}, 8, 0.06),
        ("gru", {"hidden_sizes": [32], "layers": 1}, 8, 0.10),
        ("lstm", {"hidden_sizes": [32], "layers": 1}, 8, 0.10),
        ("transformer", {"hidden_sizes": [32], "layers": 1, "heads": 2}, 8, 0.10),
    ],
)
def test_each_model_learns_a_generated_task(sequences, kind, model, epochs, reached):
    write(
        sequences,
        model={"kind": kind, **model},
        optimizer={"learning_rate": 0.005, "schedule": "cosine"},
        training={"device": "cpu", "epochs": epochs, "directory": "run"},
    )
    done = vramfit("train", "train.toml", "--json", cwd=sequences, code=0)
    printed = json.loads(done.stdout)
    assert printed["outcome"] == "finished"
    best = printed["result"]["best"]["metrics"]["loss"]
    assert 0.0156 < best < reached
    page = (sequences / "run/report.html").read_text()
    assert "default-src 'none'" in page
    assert events(sequences, "epoch")[-1]["epoch"] == epochs


def test_labels_are_classes_and_their_accuracy_is_reported(tmp_path):
    generate(tmp_path, kind="tabular", samples=6000)
    write(
        tmp_path,
        data={"inputs": "features", "targets": "labels"},
        optimizer={"learning_rate": 0.005},
        training={"epochs": 4},
    )
    done = vramfit("train", "train.toml", cwd=tmp_path, code=0)
    assert "cross-entropy over 10 classes" in done.stderr
    assert "cudart" not in done.stderr, "on the CPU nobody asks for CUDA"
    found = events(tmp_path, "epoch")[-1]["validation"]
    # A perfect model is right in 91 % of cases, with a loss of 0.5003.
    assert 0.85 < found["accuracy"] < 0.95
    assert 0.45 < found["loss"] < 0.7
    text = vramfit("report", "run", cwd=tmp_path).stdout
    assert "accuracy" in text
    assert "time breakdown" in text


def test_losses_are_those_of_a_loop_written_by_hand(sequences):
    write(
        sequences,
        model={"kind": "gru", "hidden_sizes": [16], "layers": 2},
        data={"sequence_length": 6},
        optimizer={"name": "adam", "learning_rate": 0.003, "clip": 0.5},
        training={"epochs": 1, "log_every": 1},
    )
    vramfit("train", "train.toml", cwd=sequences, code=0)
    losses = [line["loss"] for line in events(sequences, "steps")]
    script = ROOT / "tests" / "reference_training.py"
    by_hand = run_python(script, sequences / "train.h5", env={"JAX_PLATFORMS": "cpu"}, code=0)
    expected = json.loads(by_hand.stdout)
    assert len(losses) == len(expected) == 84
    # Two programs, whose sums XLA may order differently; 84 steps carry that on.
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    np.testing.assert_allclose(losses[:5], expected[:5], rtol=1e-5)


def test_a_signal_saves_and_the_same_command_resumes(sequences):
    write(sequences, training={"epochs": 100_000})
    said, code = until(sequences, "Epoch 2/", lambda running: running.send_signal(signal.SIGTERM))
    assert code == 128 + signal.SIGTERM, "".join(said)
    assert said[-1] == "stopped; run `vramfit train train.toml` to resume\n"
    [end] = events(sequences, "end")
    assert end["stop_reason"] == "signal"

    epochs = end["step"] // 84 + 2
    done = vramfit("train", "train.toml", "--resume", "--epochs", epochs, cwd=sequences, code=0)
    assert f"resuming from step {end['step']}" in done.stderr
    assert [line["epoch"] for line in events(sequences, "epoch")] == list(range(1, epochs + 1))
    run_report = json.loads(vramfit("report", "run", "--json", "-", cwd=sequences).stdout)
    assert run_report["sessions"] == 2
    assert run_report["steps"] == 84 * epochs


@pytest.mark.fast
def test_what_does_not_belong_to_the_checkpoint_is_refused(sequences):
    write(sequences, training={"epochs": 1})
    nothing = vramfit("train", "train.toml", "--resume", cwd=sequences, code=2)
    assert "error[invalid-argument]: there is no checkpoint to resume from in" in nothing.stderr
    assert not (sequences / "run").exists(), "nothing is made for a run that is refused"
    assert vramfit("train", "train.toml", cwd=sequences).returncode == 0
    other = ("--epochs", 2, "--set", "optimizer.learning_rate=0.1")
    changed = vramfit("train", "train.toml", *other, cwd=sequences, code=2)
    assert "optimizer.learning_rate" in changed.stderr
    vramfit("train", "train.toml", *other, "--force-resume", cwd=sequences, code=0)


def test_a_loss_that_is_no_number_fails_with_words(sequences):
    write(sequences, optimizer={"name": "sgd", "learning_rate": 1e6}, training={"epochs": 3})
    done = vramfit("train", "train.toml", cwd=sequences, code=1)
    assert "error[verification-failed]: the loss is NaN or infinite" in done.stderr
    assert (
        "  cause: the data of that step is finite, so the cause is the computation" in done.stderr
    )
    assert "hint: try a lower `optimizer.learning_rate`" in done.stderr
    assert "there is no checkpoint" in " ".join(done.stderr.split()), (
        "none was made before the loss was NaN"
    )
    report = vramfit("report", "run", cwd=sequences, code=1)
    assert report.stdout.startswith("the loss became NaN at step")


def test_stacks_of_steps_learn_the_same(sequences):
    write(sequences, training={"epochs": 1, "log_every": 4, "steps_per_dispatch": 4})
    vramfit("train", "train.toml", cwd=sequences, code=0)
    stacked = events(sequences, "epoch")[0]
    write(sequences, training={"epochs": 1, "log_every": 4, "directory": "single"})
    assert vramfit("train", "train.toml", cwd=sequences).returncode == 0
    (sequences / "run").rename(sequences / "stacked")
    (sequences / "single").rename(sequences / "run")
    single = events(sequences, "epoch")[0]
    assert stacked["step"] == single["step"] == 84
    assert stacked["validation"]["loss"] == pytest.approx(single["validation"]["loss"], rel=1e-4)


def test_without_the_packages_the_command_says_what_to_install(sequences):
    write(sequences)
    bare = sequences / "python3"
    # Without its site-packages: vramfit alone, and nothing that training needs.
    bare.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "python"} exec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    done = vramfit("--python", bare, "train", "train.toml", cwd=sequences, code=2)
    assert "error[package-missing]: " in done.stderr
    assert "has no `jax`, `flax`, `optax`, `orbax-checkpoint`" in done.stderr
    assert "-m pip install 'vramfit[train]'" in done.stderr


def test_a_program_that_is_killed_is_said_to_be(sequences):
    write(sequences, training={"epochs": 100_000})

    def kill_child(running):
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)

    said, code = until(sequences, "Epoch 1/", kill_child)
    assert code == 128 + signal.SIGKILL
    assert any("the run was killed by SIGKILL" in line for line in said), "".join(said)


@pytest.fixture
def wide(tmp_path):
    """Few rows, wide ones: a batch of them is what takes memory."""
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file.create_dataset("input_sequences", (4096, 64, 512), "f4", chunks=(64, 64, 512))
        file.create_dataset("targets", (4096, 1), "f4", chunks=(64, 1))
    model = {"kind": "transformer", "hidden_sizes": [1024], "layers": 1, "heads": 8}
    write(tmp_path, model=model, data={"batch_size": 512, "memory": "4GiB"})
    return tmp_path


def test_dry_runs_find_the_largest_batch_without_reading_data(wide):
    done = vramfit("train", "train.toml", "--dry-run", "t4", "--json", cwd=wide)
    summary = json.loads(done.stdout)
    assert done.returncode == (0 if summary["fits"] else 1)
    largest, fails = summary["largest_batch"], summary["smallest_too_large"]
    assert 16 <= largest < fails <= largest + largest // 32 + 16
    assert summary["largest_peak_bytes"] <= summary["limit_bytes"]
    assert summary["trials"] <= 10
    assert not (wide / "run").exists()


def test_the_whole_pipeline_runs_on_a_virtual_gpu_and_runs_out_of_its_memory(wide):
    train = (sys.executable, "-m", "vramfit", "train", "train.toml", "--device", "gpu")
    few = ("--epochs", 1, "--set", "data.batch_size=256")
    fits = vramfit("dryrun", "--full", "--gpu", "t4", "--", *train, *few, cwd=wide, code=0)
    assert "unknown on a virtual GPU" in fits.stderr
    much = ("--set", "data.batch_size=1024", "--set", "model.layers=8")
    full = vramfit("dryrun", "--full", "--gpu", "t4", "--", *train, *much, cwd=wide, code=1)
    assert "error[insufficient-memory]: out of memory: step 1 on" in full.stderr
    assert "with a batch of 1024 rows; the step needs" in full.stderr
    assert "--dry-run GPU` finds the largest batch" in " ".join(full.stderr.split())
    assert "does not fit: short by" in full.stderr


def two_processes(folder, *arguments):
    """Run the same command in two processes, and return what each said and came to."""
    port = hold_port()
    distributed = environment(JAX_COORDINATOR_ADDRESS=f"localhost:{port}", JAX_NUM_PROCESSES="2")
    both = [
        start_command(
            *[*VRAMFIT, "train", "train.toml", *arguments],
            env=distributed | {"JAX_PROCESS_ID": str(index)},
            cwd=folder,
        )
        for index in (0, 1)
    ]
    ends = [child.communicate(timeout=150) for child in both]
    return [(child.returncode, *end) for child, end in zip(both, ends, strict=True)]


def test_v9_two_processes_train_one_model_and_one_of_them_tells(sequences):
    write(sequences)
    # Gloo prints who is connected, which is not part of the answer.
    (code, out, err), (other_code, other_out, other_err) = two_processes(sequences, "--json")
    assert (code, other_code) == (0, 0), err + other_err
    printed = json.loads(out)
    assert "Gloo" in other_err
    assert other_out == ""
    together = [line["loss"] for line in events(sequences, "steps")]
    (sequences / "run").rename(sequences / "together")
    assert vramfit("train", "train.toml", cwd=sequences).returncode == 0
    alone = [line["loss"] for line in events(sequences, "steps")]
    assert len(alone) == printed["result"]["steps"] // 10 + 2
    assert np.allclose(together, alone, rtol=1e-5)


def test_v9_processes_that_are_half_described_are_refused(sequences):
    write(sequences)
    done = vramfit(
        "train", "train.toml", cwd=sequences, JAX_COORDINATOR_ADDRESS="localhost:1", code=2
    )
    assert "`JAX_NUM_PROCESSES` is not set" in done.stderr
    assert not (sequences / "run").exists()


def test_curves_for_tensorboard_are_written_where_the_file_says_so(sequences):
    write(sequences, training={"tensorboard": True})
    vramfit("train", "train.toml", "--epochs", "1", cwd=sequences, code=0)
    (file,) = (sequences / "run/tensorboard").iterdir()
    assert b"validation/loss" in file.read_bytes()


def test_hints_name_what_the_command_has(sequences):
    write(sequences)
    assert vramfit("train", "train.toml", "--epochs", "1", cwd=sequences).returncode == 0
    other = vramfit(
        "train", "train.toml", "--set", "optimizer.learning_rate=0.1", cwd=sequences, code=2
    )
    assert "`optimizer.learning_rate` was 0.001 and is 0.1" in other.stderr
    assert "choose another `training.directory`" in other.stderr
    assert "`--force-resume`" in other.stderr
    assert "force_resume=" not in other.stderr
    assert "start over with `--fresh`" in other.stderr
    for metadata in (sequences / "run/checkpoints").glob("*/run_metadata/metadata"):
        metadata.write_bytes(b"{")
    unreadable = vramfit("train", "train.toml", cwd=sequences, code=2)
    assert "error[invalid-file]: no checkpoint in `" in unreadable.stderr
    assert "`--fresh` starts over" in unreadable.stderr
    fresh = vramfit("train", "train.toml", "--epochs", "1", "--fresh", cwd=sequences, code=0)
    assert "run/previous-1`" in fresh.stderr
    assert "resuming" not in fresh.stderr
    assert events(sequences, "start")[0]["step"] == 0
    moved = {path.name for path in (sequences / "run/previous-1").iterdir()}
    assert moved == {"checkpoints", "metrics.jsonl", "report.html", "run.json"}
    three = vramfit(
        "train",
        "train.toml",
        "--set",
        "training.directory=three",
        cwd=sequences,
        XLA_FLAGS="--xla_force_host_platform_device_count=3",
        code=2,
    )
    assert "64 rows, which cannot be split equally among 3 devices" in three.stderr
    assert "hint: `--set data.batch_size=66`" in three.stderr


def test_t8_a_machine_with_the_cuda_plugin_and_no_gpu_prints_no_traceback(sequences):
    write(sequences, training={"device": "cuda?", "epochs": 1})
    done = vramfit("train", "train.toml", cwd=sequences, code=0)
    assert "Traceback" not in done.stderr
    assert "note: no GPU is available, using the CPU instead: Unable to load CUDA" in done.stderr


def test_t8_where_a_gpu_is_required_the_cause_is_that_of_the_plugin(sequences):
    write(sequences, training={"device": "cuda"})
    done = vramfit("train", "train.toml", cwd=sequences, code=2)
    assert "Traceback" not in done.stderr
    assert "  cause: Unable to load CUDA" in done.stderr


def write_table(path, rows=400, classes=3, bad=None):
    """Write features with labels; `bad` is a row and what its label is instead."""
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, rows)
    labels[:classes] = range(classes)
    if bad is not None:
        labels[bad[0]] = bad[1]
    with h5py.File(path, "w") as file:
        file["features"] = random.standard_normal((rows, 4)).astype("f4")
        file["labels"] = labels.astype("i4")


TABLE = {"inputs": "features", "targets": "labels"}


@pytest.mark.parametrize(
    ("train", "validation", "data", "message"),
    [
        ((5, -1), None, {}, "the label -1 in row 5"),
        ((5, 7), None, {"classes": 3}, "the label 7 in row 5, but the 3 classes"),
        (None, (9, 3), {}, "`labels` of `held-out.h5` has the label 3 in row 9, but the 3 classes"),
        ((5, 999_999), None, {}, "the label 999999 in row 5, but only 4 different labels"),
    ],
)
def test_labels_that_are_no_classes_are_refused_with_their_row(
    tmp_path, train, validation, data, message
):
    write_table(tmp_path / "train.h5", bad=train)
    write_table(tmp_path / "held-out.h5", bad=validation)
    other = {"validation_path": "held-out.h5"} if validation else {}
    write(tmp_path, data={**TABLE, **data, **other})
    done = vramfit("train", "train.toml", "--check", cwd=tmp_path, code=2)
    assert message in done.stderr.replace(f"{tmp_path}/", "")


def test_a_large_label_that_is_meant_is_taken_when_the_file_says_so(tmp_path):
    write_table(tmp_path / "train.h5", bad=(5, 1999))
    write(tmp_path, data={**TABLE, "classes": 2000})
    done = vramfit("train", "train.toml", "--check", cwd=tmp_path, code=0)
    assert "cross-entropy over 2000 classes" in done.stdout


@pytest.mark.parametrize(("column", "dataset"), [("inputs", "features"), ("targets", "wanted")])
def test_data_that_is_nan_is_named_by_dataset_and_row(tmp_path, column, dataset):
    random = np.random.default_rng(0)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["features"] = random.standard_normal((600, 4)).astype("f4")
        file["wanted"] = random.standard_normal((600, 1)).astype("f4")
        file[dataset][417, 0] = np.nan
    write(
        tmp_path,
        data={
            "inputs": "features",
            "targets": "wanted",
            "validation_fraction": 0,
            "batch_size": 60,
        },
    )
    done = vramfit("train", "train.toml", cwd=tmp_path, code=1)
    cause = f"`{column}` (dataset `{dataset}`) is NaN or infinite in row 417 of the file"
    assert cause in " ".join(done.stderr.split())
    assert "hint: correct or remove these rows" in done.stderr
    assert "learning_rate" not in done.stderr


def test_a_directory_that_is_the_data_file_is_refused(sequences):
    write(sequences, training={"directory": "train.h5"})
    before = (sequences / "train.h5").read_bytes()
    for words in (["--check"], []):
        done = vramfit("train", "train.toml", *words, cwd=sequences, code=2)
        assert "train.h5` is the data file of `data.path`" in done.stderr
        assert "hint: choose a directory for checkpoints and metrics" in done.stderr
    inside = vramfit(
        "train", "train.toml", "--set", "training.directory=train.toml/run", cwd=sequences, code=2
    )
    assert "train.toml` is a file" in inside.stderr
    assert (sequences / "train.h5").read_bytes() == before


@pytest.mark.parametrize("when", ["starting", "training"])
def test_ctrl_c_again_and_again_prints_no_traceback_and_loses_nothing(sequences, when):
    write(sequences, training={"epochs": 100_000})
    journal = sequences / "run/metrics.jsonl"

    def press(running):
        has_trained = '"event": "steps"'
        while when == "training" and not (journal.exists() and has_trained in journal.read_text()):
            assert running.poll() is None
        while running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)

    said, code = until(sequences, "parameters", press, start_new_session=True)
    assert code == 130
    text = "".join(said)
    assert "Traceback" not in text
    assert "KeyboardInterrupt" not in text
    assert "without saving" not in text
    if when == "training":
        assert events(sequences, "end")[0]["stop_reason"] == "signal"
        assert said[-1] == "stopped; run `vramfit train train.toml` to resume\n"
