"""The result of a training run: plain values, and the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

StopReason = Literal["finished", "early", "signal", "nan"]


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
        number: Its number, from 1.
        steps: Number of training steps.
        train: Means of the metrics over its steps, `loss` among them. None on a virtual GPU,
            where values are unknown.
        validation: Means over the batches of `eval_data`, weighted by their real rows where they
            have a mask; None without an evaluation.
        timing: Where its time went.
        best: Whether no earlier epoch had a smaller validation loss.
    """

    number: int
    steps: int
    train: dict[str, float] | None
    validation: dict[str, float] | None
    timing: Timing
    best: bool = False


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
        epochs: The finished epochs, those of earlier sessions included.
        best: The epoch with the smallest validation loss, or None without an evaluation.
        stop_reason: Why training ended: `finished`, `early`, `signal` or `nan`.
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
    """

    state: Any = field(repr=False)
    epochs: list[Epoch]
    best: Epoch | None
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

    def __str__(self) -> str:
        from vramfit.train.output.summary import final_report

        return final_report(self)
