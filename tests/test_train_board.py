"""Curves for TensorBoard: what a run learns is in its event files, of every sitting."""

import json
import struct

import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event
from training import evaluate, load, start, step

from vramfit.errors import InvalidArgumentError, PackageMissingError
from vramfit.train import LogPoint, RunStart, fit
from vramfit.train.callbacks import TensorBoard
from vramfit.train.output import tensorboard


def events(file):
    """Return the events of a file: each has a length and its content, both with a checksum."""
    data, found = file.read_bytes(), []

    def masked(part):
        sum_ = crc32c(part)
        return ((sum_ >> 15 | sum_ << 17) + 0xA282EAD8) & 0xFFFFFFFF

    while data:
        length, check = struct.unpack("<QI", data[:12])
        content, (end,) = (
            data[12 : 12 + length],
            struct.unpack("<I", data[12 + length : 16 + length]),
        )
        assert (masked(data[:8]), masked(content)) == (check, end)
        found.append(Event.FromString(content))
        data = data[16 + length :]
    return found


def scalars(folder):
    """Return the curves of a directory, as TensorBoard shows them."""
    curves = {}
    for file in sorted((folder / "tensorboard").iterdir()):
        for event in events(file):
            if event.HasField("session_log"):
                # A run that goes on takes back what it will do again.
                for name, points in curves.items():
                    curves[name] = [point for point in points if point[0] < event.step]
            for value in event.summary.value:
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def close(points, expected):
    """Say whether points are the expected ones, rounded to 32 bits."""
    rounded = [(step, struct.unpack("f", struct.pack("f", value))[0]) for step, value in expected]
    return points == rounded


def test_curves_are_the_lines_of_the_journal(train, tmp_path):
    run = tmp_path / "run"
    validation = load(train, split=("validation", 0.1), mask=True)
    options = {
        "eval_step": evaluate,
        "eval_data": validation,
        "directory": run,
        "log_every": 10,
        "progress": "none",
        "tensorboard": True,
    }
    fit(step, start(), load(train, split=("train", 0.1)), epochs=1, **options)
    # The second sitting writes a file of its own.
    fit(step, start(), load(train, split=("train", 0.1)), epochs=3, **options)
    assert len(list((run / "tensorboard").iterdir())) == 2
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    chunks = [line for line in lines if line["event"] == "steps"]
    epochs = [line for line in lines if line["event"] == "epoch"]
    curves = scalars(run)
    for name in ("loss", "slope"):
        assert close(curves[f"train/{name}"], [(line["step"], line[name]) for line in chunks])
    expected = [(line["step"], line["validation"]["loss"]) for line in epochs]
    assert len(expected) == 3
    assert close(curves["validation/loss"], expected)
    # Without the checkpoint behind the epoch, which the lines have.
    for name in ("seconds", "steps_per_second"):
        assert [at for at, _ in curves[f"epoch/{name}"]] == [line["step"] for line in epochs]
    for (_, seconds), line in zip(curves["epoch/seconds"], epochs, strict=True):
        assert 0 < seconds <= line["seconds"]
    assert set(curves) == {
        "train/loss",
        "train/slope",
        "validation/loss",
        "epoch/seconds",
        "epoch/steps_per_second",
        "epoch/waiting_for_data",
    }


def test_steps_that_are_done_again_are_taken_back(tmp_path):
    before = TensorBoard(tmp_path / "tensorboard")
    before(RunStart(0, 1), None)
    for number in (5, 10):
        before(LogPoint(number, 1, {"loss": float(number)}), None)
    before.close()
    # Files are read in the order of their names, which begin with the second.
    for file in (tmp_path / "tensorboard").iterdir():
        file.rename(file.with_name("events.out.tfevents.1.first"))
    after = TensorBoard(tmp_path / "tensorboard")
    after(RunStart(5, 1), None)
    after(LogPoint(10, 1, {"loss": 11.0}), None)
    after.close()
    assert scalars(tmp_path)["train/loss"] == [(5, 5.0), (10, 11.0)]


def test_without_the_package_nothing_begins(train, tmp_path, monkeypatch):
    find = tensorboard.importlib.util.find_spec
    monkeypatch.setattr(
        tensorboard.importlib.util,
        "find_spec",
        lambda name, *more: None if name == "tensorboardX" else find(name, *more),
    )
    with pytest.raises(PackageMissingError, match="has no `tensorboardX`") as caught:
        fit(step, start(), load(train), directory=tmp_path / "run", tensorboard=True)
    assert "pip install 'vramfit[tensorboard]'" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_without_a_directory_there_is_no_place_for_curves(train):
    with pytest.raises(InvalidArgumentError, match="needs a directory for its event files"):
        fit(step, start(), load(train), tensorboard=True)
