"""The result of a training run: plain values, and the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vramfit.errors import InvalidArgumentError
from vramfit.train.baseline import Baseline
from vramfit.train.best_by import BestBy
from vramfit.train.events import Evaluation

StopReason = Literal["finished", "early", "callback", "signal", "nan"]


@dataclass(frozen=True)
class Timing:
    """Wall-clock time by activity, in seconds.

    Attributes:
        wall: Total time. What the other fields do not add up to is start-up and reporting.
        compile: Tracing and compiling the step, the evaluation and their helpers.
        data_wait: Waiting for batches while the device had no step left to compute: reading, and
            the transfer to the device. Reading that overlaps with computation does not count.
        step: Training steps, without waiting for batches.
        eval: Evaluation, with its batches.
        checkpoint: Time that training was blocked by checkpoints, and the wait for the last one.
        callbacks: Callbacks, without their evaluations.
        device_wait: The part of `step` in which the program waited for the device. Where it is
            small, the device waits for the program.
    """

    wall: float = 0.0
    compile: float = 0.0
    data_wait: float = 0.0
    step: float = 0.0
    eval: float = 0.0
    checkpoint: float = 0.0
    callbacks: float = 0.0
    device_wait: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """One pass over the data.

    Attributes:
        number: Its number, from 1.
        steps: Number of training steps.
        train: Means of the metrics over its steps, `loss` among them; of `learning_rate` the last
            value. None on a virtual GPU, where values are unknown.
        validation: The metrics of the latest evaluation in it; None without one.
        timing: Where its time went.
        best: Whether that evaluation is better than all earlier ones.
        complete: Whether it is finished; False for the last one of a run that ended within it.
    """

    number: int
    steps: int
    train: dict[str, float] | None
    validation: dict[str, float] | None
    timing: Timing
    best: bool = False
    complete: bool = True


@dataclass(frozen=True)
class NanCause:
    """The likely cause of a loss that is not finite.

    Attributes:
        in_data: Whether the data of that step has NaN or infinite values; None if it could not be
            read again.
        text: The cause as one clause.
    """

    in_data: bool | None
    text: str


@dataclass(frozen=True)
class Result:
    """The result of :func:`vramfit.train.fit`; ``str()`` of it is the final report.

    A run that was resumed consists of several sessions, one for each call of `fit`.

    Attributes:
        state: The state after the last step.
        epochs: The epochs, those of earlier sessions included. The last one is not complete if the
            run ended within it.
        best: The best evaluation by `best_by`, or None without one.
        stop_reason: Why training ended: `finished`, `early`, `callback`, `signal` or `nan`.
        steps: Number of training steps, those of earlier sessions included.
        timing: Where the time of this session went.
        device: Description of the device or devices.
        peak_host_bytes: Peak memory of the process, or None where the system does not report it.
        peak_device_bytes: Peak memory of JAX on a device, or None where it is not counted.
        peak_device_unknown: Why `peak_device_bytes` is None; None if it is not.
        signal: Number of the signal that stopped the run, or None.
        elapsed: Seconds of all sessions together.
        resumed_at: Step that this session resumed from; 0 for a new run.
        notes: What was reported along the way, one sentence each.
        save_error: Why the checkpoint of the final state could not be written; None if it was
            written, or if none was wanted. A state whose loss is NaN is never saved.
        nan: The likely cause of a loss that is NaN or infinite; None without one.
        evaluations: All evaluations, those of earlier sessions included.
        best_by: The option that decides which evaluation is the best.
        baseline: The metrics of a constant prediction, as `fit` was given them.
        stop_message: What the callback that stopped the run said; None without one.
        programs: Number of programs that were compiled for the step and the evaluation.
        batch_shapes: Number of shapes of batches that they were compiled for.
        programs_seconds: How long that took.
        checkpoints: The directory of the checkpoints, or None.
    """

    state: Any = field(repr=False)
    epochs: list[Epoch]
    best: Evaluation | None
    stop_reason: StopReason
    steps: int
    timing: Timing
    device: str
    peak_host_bytes: int | None
    peak_device_bytes: int | None
    peak_device_unknown: str | None = None
    signal: int | None = None
    elapsed: float = 0.0
    resumed_at: int = 0
    notes: tuple[str, ...] = ()
    save_error: str | None = None
    nan: NanCause | None = None
    evaluations: tuple[Evaluation, ...] = ()
    best_by: str = "min loss"
    baseline: Baseline | None = None
    stop_message: str | None = None
    programs: int = 0
    batch_shapes: int = 0
    programs_seconds: float = 0.0
    checkpoints: Path | None = None

    @property
    def best_step(self) -> int | None:
        """Number of steps of the state with the best evaluation; None without an evaluation."""
        return None if self.best is None else self.best.step

    @property
    def best_state(self) -> Any:
        """The state with the best evaluation, restored from its checkpoint.

        `state` itself, if that is the best. With several processes, read it in all of them.

        Raises:
            InvalidArgumentError: There was no evaluation, or there is no checkpoint of that state.
            InvalidFileError: The checkpoint cannot be read.
        """
        if self.best is None:
            raise InvalidArgumentError(
                "there is no best state, because no evaluation has a finite metric",
                hint="pass `eval_step` and `eval_data`, and see `result.evaluations`",
            )
        if self.best.step == self.steps:
            return self.state
        if self.checkpoints is None:
            raise InvalidArgumentError(
                f"the state of step {self.best.step} was not saved, because the run had no "
                "checkpoints",
                hint="pass `directory` to `fit`, and not `checkpoints=None`",
            )
        from vramfit.train.checkpoint.reader import CheckpointReader

        reader = CheckpointReader(self.checkpoints)
        return reader.restore(reader.find_step(self.best.step), self.state)

    @property
    def beats_baseline(self) -> bool | None:
        """Whether the best evaluation, or without one the last epoch, is better than `baseline`.

        By the metric of `best_by`; None if that is not known of both.
        """
        if self.baseline is None:
            return None
        found: Mapping[str, float] | None = None
        if self.evaluations:
            found = None if self.best is None else self.best.metrics
        elif self.epochs:
            found = self.epochs[-1].train
        best_by = BestBy.parse(self.best_by)
        if best_by.metric not in self.baseline.metrics or found is None:
            return None
        cost, constant = best_by.cost(found), best_by.cost(self.baseline.metrics)
        return None if cost is None or constant is None else cost < constant

    def __str__(self) -> str:
        from vramfit.train.output.summary import final_report

        return final_report(self)
