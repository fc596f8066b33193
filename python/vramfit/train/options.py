"""The options of a training run, with their defaults and what is checked of each by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from vramfit.errors import InvalidArgumentError
from vramfit.train.baseline import Baseline
from vramfit.train.best_by import BestBy

ProgressMode = Literal["auto", "plain", "compact", "none"]
Resume = bool | Literal["auto"]


@dataclass(frozen=True)
class Checkpoints:
    """When checkpoints are saved, and how many are kept.

    One is also saved at the end of a run, and after each evaluation that is the best so far.

    Attributes:
        every_steps: Steps between two checkpoints; None to save by time only.
        every_seconds: Seconds between two checkpoints; None to save by steps only.
        keep_last: Number of most recent checkpoints to keep.
        keep_best: Number of checkpoints with the best evaluations to keep.
    """

    every_steps: int | None = None
    every_seconds: float | None = 600
    keep_last: int = 2
    keep_best: int = 1

    def __post_init__(self) -> None:
        for name, number, minimum in (
            ("every_steps", self.every_steps, 1),
            ("every_seconds", self.every_seconds, 0),
            ("keep_last", self.keep_last, 1),
            ("keep_best", self.keep_best, 0),
        ):
            if number is not None and number < minimum:
                raise InvalidArgumentError(
                    f"`{name}` is {number}, but must be at least {minimum}",
                    hint=f"pass `Checkpoints({name}={minimum})` or more"
                    + ("; None for never" if name.startswith("every") else ""),
                )


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of :func:`vramfit.train.fit`; each is a keyword argument of it, too.

    Attributes:
        epochs: Number of passes over the data, those before a resume included; None for one, or
            for any number if `steps` is given.
        steps: Number of training steps, those before a resume included; None for no limit. The run
            may end within an epoch, which a run with more steps continues. With
            `steps_per_dispatch` it ends with the dispatch that reaches them.
        directory: Where `metrics.jsonl`, `checkpoints/` and `tensorboard/` are written; None to
            write nothing.
        checkpoints: When checkpoints are saved and how many are kept; None for no checkpoints.
        resume: `"auto"` resumes from the latest checkpoint if there is one, True requires one,
            False starts over: the files of an earlier run in `directory` are moved to
            `previous-1` in it.
        config: Values saved with each checkpoint. Resuming with other values is an error.
        force_resume: Resume even though `config` or the data has changed since the checkpoint.
        steps_per_dispatch: Steps per call into XLA, run by `jax.lax.scan`; the loader must have
            the same `stacked_batches`.
        log_every: Steps between two lines in `metrics.jsonl`, and between two reads of metrics
            from the device.
        eval_every: Steps between two evaluations, which come then at their multiples and at the
            end of the run; None to evaluate after each epoch.
        best_by: Which evaluation is the best: `"min NAME"` or `"max NAME"` with one of its metrics.
            This decides about `Result.best`, the checkpoints that are kept, and `stop_after`. A
            value that is not finite is never the best.
        baseline: The metrics of a constant prediction, which the final report compares with those
            of the run; None to compare with nothing.
        stop_after: Stop after this many evaluations that are not better than an earlier one; None
            to run all. Without `eval_every` these are epochs.
        stop_on_nan: Stop when the loss is NaN or infinite.
        device: `"cpu"`, `"gpu"` or `"cuda"` (required), `"cuda?"` (a GPU if available), `"metal"`
            (experimental), or None for JAX's default. All devices of that kind are used, and each
            batch is split among them.
        prefetch: Number of batches that are transferred to the device ahead of the step.
        progress: `"auto"` (a bar on a terminal, lines elsewhere, a summary of each epoch),
            `"plain"` (no bar), `"compact"` (one line per epoch) or `"none"`.
        donate: Donate the state, so that XLA reuses its memory for the new state.
        tensorboard: Write TensorBoard event files to `tensorboard/` in `directory`; needs
            `vramfit[tensorboard]`.
    """

    epochs: int | None = None
    steps: int | None = None
    directory: str | os.PathLike[str] | None = None
    checkpoints: Checkpoints | None = Checkpoints()
    resume: Resume = "auto"
    config: Mapping[str, Any] | None = None
    force_resume: bool = False
    steps_per_dispatch: int = 1
    log_every: int = 50
    eval_every: int | None = None
    best_by: str = "min loss"
    baseline: Baseline | None = None
    stop_after: int | None = None
    stop_on_nan: bool = True
    device: str | None = None
    prefetch: int = 2
    progress: ProgressMode = "auto"
    donate: bool = True
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "steps",
            "steps_per_dispatch",
            "log_every",
            "eval_every",
            "prefetch",
        ):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InvalidArgumentError(
                    f"`{name}` is {number}, but must be at least 1",
                    hint=f"pass `{name}=1` or more",
                )
        BestBy.parse(self.best_by)
        if self.resume not in ("auto", True, False):
            raise InvalidArgumentError(
                f"unknown value `resume={self.resume!r}`", hint="use `'auto'`, True or False"
            )
        if self.progress not in get_args(ProgressMode):
            *others, last = (f"`{mode}`" for mode in get_args(ProgressMode))
            raise InvalidArgumentError(
                f"unknown value `progress={self.progress!r}`",
                hint=f"use {', '.join(others)} or {last}",
            )
        if self.tensorboard and self.directory is None:
            raise InvalidArgumentError(
                "`tensorboard=True` needs a directory for its event files", hint="pass `directory`"
            )

    @property
    def max_epochs(self) -> int | None:
        """Number of epochs after which the run ends; None where only steps are limited."""
        if self.epochs is None and self.steps is None:
            return 1
        return self.epochs


class FitKeywords(TypedDict, total=False):
    """The fields of :class:`FitOptions` as type checkers see them in a call of ``fit``."""

    epochs: int | None
    steps: int | None
    directory: str | os.PathLike[str] | None
    checkpoints: Checkpoints | None
    resume: Resume
    config: Mapping[str, Any] | None
    force_resume: bool
    steps_per_dispatch: int
    log_every: int
    eval_every: int | None
    best_by: str
    baseline: Baseline | None
    stop_after: int | None
    stop_on_nan: bool
    device: str | None
    prefetch: int
    progress: ProgressMode
    donate: bool
    tensorboard: bool
