"""What a training run comes to: plain values, without arrays but the state itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramfit.train.nan_diagnosis import NanCause


@dataclass(frozen=True)
class Timing:
    """Where the time went, in seconds of the clock on the wall.

    Attributes:
        wall: All of it. What the others do not explain is start-up, and texts.
        compile: Tracing and compiling the step, the evaluation and their helpers.
        data_wait: Waiting for batches with no step left to compute: reading, and the copy to the
            device. What the device still computes meanwhile is no waiting for data.
        step: Training steps, without waiting for batches.
        eval: Evaluation, with its batches.
        checkpoint: How long training stood still for checkpoints, and the wait for the last one.
        device_wait: The part of `step` in which the program waited for the device. Where it is
            small, the device waits for the program.
    """

    wall: float = 0.0
    compile: float = 0.0
    data_wait: float = 0.0
    step: float = 0.0
    eval: float = 0.0
    checkpoint: float = 0.0
    device_wait: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """One pass over the data.

    Attributes:
        number: Which, from 1.
        steps: Training steps in it.
        train: Means over its steps; `loss` among them. None where values are not known, on a
            virtual GPU.
        validation: Means over the batches of `eval_data`, weighted by their real rows where they
            have a mask; None without an evaluation.
        timing: Where its time went.
        best: Whether no epoch before had a smaller validation loss.
    """

    number: int
    steps: int
    train: dict[str, float] | None
    validation: dict[str, float] | None
    timing: Timing
    best: bool = False


@dataclass(frozen=True)
class Result:
    """What :func:`vramfit.train.fit` returns; ``str()`` of it is the final report.

    Attributes:
        state: The state after the last step.
        epochs: The finished epochs, those of earlier sittings included.
        best: The epoch with the smallest validation loss, or None without an evaluation.
        stopped: Why it ended: `finished`, `early`, `signal` or `nan`.
        steps: Training steps, those of earlier sittings included.
        timing: Where the time of this sitting went.
        device: Where it ran, in words.
        peak_host_bytes: Most that the process ever held in memory, or None where it is not told.
        peak_device_bytes: Most that JAX held on a device, or None where it is not counted.
        peak_device_unknown: Why not, or None.
        signal: The number of the signal that ended it, or None.
        elapsed: Seconds of all sittings together.
        resumed_at: The step that this sitting went on from; 0 when it began anew.
        notes: What was worth a word on the way, one sentence each.
        unsaved: Why the checkpoint of the final state is not on disk, although one was to be
            made; None if it is, or if none was wanted. A state whose loss is NaN is never kept.
        nan: What the data of the step says whose loss is NaN or infinite; None without one.
    """

    state: Any = field(repr=False)
    epochs: list[Epoch]
    best: Epoch | None
    stopped: str
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
    unsaved: str | None = None
    nan: NanCause | None = None

    def __str__(self) -> str:
        from vramfit.train.summary import final_report

        return final_report(self)
