"""Training: your own training step over a data set, with timing, checkpoints and bit-exact resume.

Importing this loads neither JAX, nor orbax, nor numpy; :func:`fit` does.
"""

from __future__ import annotations

from vramfit.train.accumulators import (
    Accumulator,
    ConfusionMatrix,
    RocAuc,
    confusion_counts,
    score_histogram,
)
from vramfit.train.baseline import Baseline
from vramfit.train.events import (
    CheckpointSaved,
    EpochEnd,
    Evaluation,
    LogPoint,
    RunEnd,
    RunStart,
)
from vramfit.train.fit import fit
from vramfit.train.options import Checkpoints, FitOptions
from vramfit.train.result import Epoch, Result, Timing
from vramfit.train.trained_model import TrainedModel, load, load_state
from vramfit.train.training_run import TrainingRun

__all__ = [
    "Accumulator",
    "Baseline",
    "CheckpointSaved",
    "Checkpoints",
    "ConfusionMatrix",
    "Epoch",
    "EpochEnd",
    "Evaluation",
    "FitOptions",
    "LogPoint",
    "Result",
    "RocAuc",
    "RunEnd",
    "RunStart",
    "Timing",
    "TrainedModel",
    "TrainingRun",
    "confusion_counts",
    "fit",
    "load",
    "load_state",
    "score_histogram",
]
