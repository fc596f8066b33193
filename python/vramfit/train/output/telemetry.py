"""Everything that a run reports while it trains: progress, metrics log, timers, notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramfit.train.events import Evaluation
from vramfit.train.options import FitOptions
from vramfit.train.output.metrics_log import MetricsLog
from vramfit.train.output.progress_bar import ProgressBar
from vramfit.train.output.summary import evaluation_line
from vramfit.train.output.timers import Stopwatch
from vramfit.train.result import Epoch, Result
from vramfit.train.run_record import RUN_RECORD, RunRecord


class Telemetry:
    """Reports to the terminal and to `metrics.jsonl`.

    Args:
        options: The options of the run.
        directory: The directory of the run, or None.
        timers: The timers, which may be running already.
        is_primary: Whether this process reports; one of several does.

    Attributes:
        timers: How long each activity took.
        progress_bar: Progress on standard error.
        notes: What was reported along the way, one sentence each.
    """

    def __init__(
        self, options: FitOptions, directory: Path | None, timers: Stopwatch, *, is_primary: bool
    ) -> None:
        self.timers = timers
        self.progress_bar = ProgressBar(
            options.progress, options.max_epochs, options.steps, quiet=not is_primary
        )
        self._prints_evaluations = options.eval_every is not None
        self.notes: list[str] = []
        self._directory = directory if is_primary else None
        self._metrics_log = MetricsLog(self._directory, self.note)

    def note(self, text: str) -> None:
        """Print a note, and keep it for the final report."""
        self.notes.append(text)
        self.print_note(text)

    def print_note(self, text: str) -> None:
        """Print a note now; what it is about is in the final report in other words."""
        self.progress_bar.print(f"note: {text}")

    def start(self, step: int, log_point: int, record: RunRecord, **facts: Any) -> None:
        """Open the metrics log of a run that starts or resumes at a step, and write its record.

        Args:
            step: The step.
            log_point: The last log point that is not reported again.
            record: The record of the run.
            **facts: What else the line of the start has.
        """
        self._metrics_log.open(step, log_point)
        self._metrics_log.write("start", step=step, **facts)
        if self._directory is not None:
            try:
                record.write(self._directory)
            except OSError as error:
                self.note(f"`{RUN_RECORD}` could not be written: {error.strerror or error}")

    def log_metrics(self, step: int, epoch: int, means: Mapping[str, float]) -> None:
        """Report the means of the steps up to one; epochs are counted from 1."""
        self.progress_bar.loss = means["loss"]
        self._metrics_log.write("steps", step=step, epoch=epoch, **means)

    def log_checkpoint(self, step: int, epoch: int) -> None:
        """Report that a checkpoint is being saved."""
        self._metrics_log.write("checkpoint", step=step, epoch=epoch)

    def log_evaluation(self, evaluation: Evaluation) -> None:
        """Report an evaluation; one after an epoch is printed with the epoch."""
        self._metrics_log.write("evaluation", **asdict(evaluation))
        if self._prints_evaluations:
            self.progress_bar.print(evaluation_line(evaluation))

    def log_epoch(self, step: int, epoch: Epoch, elapsed: float) -> None:
        """Report a finished epoch."""
        self.progress_bar.end_epoch(epoch, elapsed)
        self._metrics_log.write(
            "epoch",
            step=step,
            epoch=epoch.number,
            train=epoch.train,
            validation=epoch.validation,
            best=epoch.best,
            seconds=epoch.timing.wall,
            timing=asdict(epoch.timing),
            elapsed=elapsed,
        )

    def log_nan(
        self,
        step: int,
        epoch: int,
        step_of_epoch: int,
        loss: float,
        cause: str,
        checkpoint: int | None,
    ) -> None:
        """Report a loss that is not finite, and the latest checkpoint before it."""
        self._metrics_log.write(
            "nan", step=step, epoch=epoch, step_of_epoch=step_of_epoch, loss=loss, cause=cause
        )
        saved = (
            "there is no checkpoint"
            if checkpoint is None
            else f"the latest checkpoint is that of step {checkpoint}, before it"
        )
        self.progress_bar.print(
            f"the loss of step {step} (step {step_of_epoch} of epoch {epoch}) is {loss:g}, "
            f"so training stops; {cause}; {saved}"
        )

    def log_end(self, result: Result) -> None:
        """Report the end of a session."""
        self._metrics_log.write(
            "end",
            step=result.steps,
            stop_reason=result.stop_reason,
            stop_message=result.stop_message,
            elapsed=result.elapsed,
            timing=asdict(result.timing),
            peak_host_bytes=result.peak_host_bytes,
            peak_device_bytes=result.peak_device_bytes,
        )
        self.progress_bar.print_report(str(result))

    def close(self) -> None:
        """Close the files, and leave the terminal as it was."""
        self._metrics_log.close()
        self.progress_bar.close()
