"""What the callbacks of a run are called with: one class for each kind of event.

Epochs are counted from 1. Steps are those of all sessions of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramfit.train.result import Epoch, StopReason
    from vramfit.train.training_run import TrainingRun


@dataclass(frozen=True)
class RunStart:
    """A session starts, before its first step; callbacks have been restored.

    Attributes:
        step: Number of steps of earlier sessions; 0 for a new run.
        epoch: The epoch of the first step to come.
    """

    step: int
    epoch: int


@dataclass(frozen=True)
class LogPoint:
    """The metrics of the steps since the previous log point, or since the start of the epoch.

    It is delivered when its values have been read without waiting for the device: at the next log
    point, which is `log_every` steps later, or at the end of the epoch. :attr:`TrainingRun.step`
    is the current step. When a session ends within an epoch, the log points that are not due yet
    are delivered as well; a session that resumes delivers them again, when they are due.

    Attributes:
        step: The last step that it covers.
        epoch: The epoch of these steps.
        metrics: The mean of each metric; of `learning_rate` the last value.
    """

    step: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of the state on `eval_data`.

    Attributes:
        step: Number of steps of the state.
        epoch: The epoch of that step.
        metrics: What `eval_step` and the accumulators returned, for the whole data.
        best: Whether it is better than all earlier ones by `best_by`.
        scheduled: Whether it is one of those after each epoch, or after `eval_every` steps. False
            for one that was made because the run ended, which `stop_after` does not count.
    """

    step: int
    epoch: int
    metrics: Mapping[str, float]
    best: bool = False
    scheduled: bool = True


@dataclass(frozen=True)
class EpochEnd:
    """An epoch is finished, and evaluated.

    Attributes:
        epoch: Its metrics, and its times without a checkpoint at its end.
        step: Its last step.
    """

    epoch: Epoch
    step: int


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint is being written, of the state and the callbacks before this event.

    When this happens may depend on the clock (`Checkpoints.every_seconds`), so a callback that
    changes the training here makes it depend on the clock.

    Attributes:
        step: Number of steps of its state.
        epoch: The epoch of that step.
    """

    step: int
    epoch: int


@dataclass(frozen=True)
class RunEnd:
    """The session ends, after its last checkpoint. Not delivered after an exception.

    Attributes:
        reason: Why, as in :attr:`Result.stop_reason`.
        step: Number of steps of the run.
    """

    reason: StopReason
    step: int


Event = RunStart | LogPoint | Evaluation | EpochEnd | CheckpointSaved | RunEnd
Callback = Callable[[Event, "TrainingRun"], object]
