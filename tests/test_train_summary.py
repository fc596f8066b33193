"""The texts of a training run: the shape that was described, 80 columns, the time left."""

import io
import sys

import pytest

from vramfit.train.events import Evaluation
from vramfit.train.output.progress_bar import ProgressBar
from vramfit.train.output.summary import MAX_WIDTH, epoch_line, epoch_summary
from vramfit.train.result import Epoch, Result, Timing

EPOCH = Epoch(
    number=1,
    steps=28,
    train={"loss": 0.123456},
    validation={"loss": 0.234567},
    timing=Timing(wall=150.0),
    best=True,
)

SUMMARY = """\
================================================================================
Epoch 1/100 Summary
================================================================================
  Train Loss:     0.123456
  Val Loss:       0.234567  (best)
  Epoch Time:     2.50 min (150.0s)
  Elapsed Time:   2.50 min"""


def test_t5_the_summary_of_an_epoch_has_the_described_shape():
    assert epoch_summary(EPOCH, 100, elapsed=150.0) == SUMMARY


def test_t5_metrics_beside_the_loss_are_reported_behind_it():
    metrics = {"accuracy": 0.5, "loss": 1e-7}
    epoch = Epoch(number=2, steps=1, train=metrics, validation=None, timing=Timing(wall=1.0))
    lines = epoch_summary(epoch, 2, elapsed=1.0).splitlines()
    assert lines[3:5] == ["  Train Loss:     1.000000e-07", "  Train Accuracy: 0.500000"]
    assert epoch_line(epoch, 2, 1.0) == (
        "epoch 2/2: train loss 1.000000e-07, train accuracy 0.500000, epoch time 1.0 s, "
        "elapsed 1.0 s"
    )


def result(**changes):
    values = {
        "state": None,
        "epochs": [EPOCH],
        "best": Evaluation(28, 1, {"loss": 0.234567}, best=True),
        "stop_reason": "finished",
        "steps": 28,
        "timing": Timing(wall=150.0, compile=10.0, step=120.0, eval=5.0, checkpoint=2.5),
        "device": "CPU (cpu:0)",
        "peak_host_bytes": 1 << 30,
        "peak_device_bytes": None,
        "peak_device_unknown": "JAX counts no memory on cpu",
        "elapsed": 150.0,
    }
    return Result(**{**values, **changes})


def test_t5_the_final_report_has_the_described_parts():
    lines = str(result()).splitlines()
    assert lines[:3] == ["=" * 80, "TRAINING COMPLETE!", "=" * 80]
    for line in (
        "FINAL RESULTS",
        "  Best Val Loss:    0.234567 (epoch 1)",
        "  Final Train Loss: 0.123456",
        "  Final Val Loss:   0.234567",
        "TIMING STATISTICS",
        "  Total Time:     2.50 min (0.04 hours)",
        "  Average Epoch:  2.50 min (150.0s)",
        "  Epochs:         1 (28 steps)",
        "  Device:         CPU (cpu:0)",
        "  Host memory:    1.0 GiB at the peak",
    ):
        assert line in lines, line


@pytest.mark.parametrize(
    ("changes", "title", "reason"),
    [
        ({"stop_reason": "early"}, "TRAINING COMPLETE!", "early stopping"),
        ({"stop_reason": "nan"}, "TRAINING FAILED", "the loss is not finite"),
        ({"stop_reason": "signal", "signal": 15}, "TRAINING STOPPED", "signal 15"),
    ],
)
def test_t5_the_heading_says_how_it_ended(changes, title, reason):
    text = str(result(**changes))
    assert text.splitlines()[1] == title
    assert reason in text.splitlines()[3]


def test_t5_a_state_that_is_not_on_disk_is_said_to_be():
    text = str(result(save_error="No space left on device"))
    assert "  THE FINAL STATE WAS NOT SAVED: No space left on device" in text


def test_t5_no_line_is_longer_than_80_columns_or_broken_in_a_word():
    note = "the checkpoint of step 84 could not be saved: " + "a-rather-long-word " * 12
    text = str(result(notes=(note,), device="8 x NVIDIA H100 80GB HBM3 " * 5))
    assert max(map(len, text.splitlines())) <= MAX_WIDTH
    assert text.split().count("a-rather-long-word") == 12


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def __init__(self, encoding):
        super().__init__()
        self.name_of_encoding = encoding

    encoding = property(lambda self: self.name_of_encoding)

    def isatty(self):
        return True


def bar(monkeypatch, columns, *, encoding="utf-8", epochs=3, steps=None, step=0):
    """Return what is shown in the first epoch of some, 40 of 100 steps and 20 seconds in."""
    out, clock = Terminal(encoding), [1000.0]
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr("vramfit.train.output.progress_bar.time.monotonic", lambda: clock[0])
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = ProgressBar("auto", epochs, steps)
    progress.loss = 0.25
    progress.start_epoch(1, 0, step)
    clock[0] += 20
    progress.update(40, 100, 5.0)
    return out.getvalue().removeprefix("\r\x1b[K")


def test_t6_a_bar_tells_the_time_left_of_the_epoch_and_of_the_run(monkeypatch):
    # Two steps a second: 30 s for the other 60, and 50 s for each of two more epochs.
    line = bar(monkeypatch, 120)
    assert line.startswith("epoch 1/3   40%  ██████")
    assert (
        "40/100  loss 0.250000  ETA 30.0 s  run ETA 2 min 10 s  2.0 steps/s  data wait 25%" in line
    )


def test_t6_a_bar_of_steps_tells_where_the_run_is(monkeypatch):
    # The second epoch began at step 100: two steps a second, 360 to go, or 160 by the epochs.
    line = bar(monkeypatch, 120, epochs=None, steps=500, step=100)
    assert line.startswith("step 140/500   28%  ██████")
    assert "  epoch 1  loss 0.250000  ETA 3 min 0 s  2.0 steps/s" in line
    line = bar(monkeypatch, 120, epochs=2, steps=500, step=100)
    assert line.startswith("step 140/300   47%  ██████")
    assert "ETA 1 min 20 s" in line
    assert bar(monkeypatch, 120, epochs=None, steps=None).startswith("epoch 1   40%  ██████")


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 120])
def test_t6_a_bar_fits_the_terminal_in_whole_parts(monkeypatch, columns):
    line = bar(monkeypatch, columns)
    assert len(line) < columns
    parts = [part.strip() for part in line.split("  ") if part.strip(" █░")]
    whole = ["epoch 1/3", "40%", "40/100", "loss 0.250000", "ETA 30.0 s", "run ETA 2 min 10 s"]
    assert parts == [*whole, "2.0 steps/s", "data wait 25%"][: len(parts)]


def test_t6_a_terminal_without_unicode_gets_a_bar_of_ascii(monkeypatch):
    line = bar(monkeypatch, 160, encoding="ascii")
    assert line.isascii()
    assert "#########---------------" in line
