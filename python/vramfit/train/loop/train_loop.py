"""The training loop: epochs of steps, evaluation, checkpoints, and reasons to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.checkpoint.manager import CheckpointManager
from vramfit.train.checkpoint.metadata import build_metadata, versions
from vramfit.train.checkpoint.restore import restore_requested
from vramfit.train.data.batch_source import BatchSource, drop_padding
from vramfit.train.devices import Placement
from vramfit.train.loop.compiled_step import CompiledStep, by_name, check_metrics
from vramfit.train.loop.evaluator import Evaluator
from vramfit.train.loop.in_flight import StepsInFlight, max_steps_in_flight
from vramfit.train.loop.memory import (
    batch_rows,
    is_out_of_memory,
    out_of_memory_error,
    peak_memory,
)
from vramfit.train.loop.metrics import MetricsBuffer, first_not_finite
from vramfit.train.loop.nan_diagnosis import diagnose
from vramfit.train.loop.signals import StopSignals
from vramfit.train.messages import during_training
from vramfit.train.options import FitOptions
from vramfit.train.output.run_directory import RunDirectory
from vramfit.train.output.telemetry import Telemetry
from vramfit.train.process_group import ProcessGroup
from vramfit.train.result import NanCause, Result, StopReason
from vramfit.train.train_progress import TrainProgress

_END = object()


@dataclass(kw_only=True, eq=False)
class TrainLoop:
    """One session of a run: from the first step, or a checkpoint, to a reason to stop.

    Attributes:
        options: The options of the run.
        config: The user's values for checkpoints, as JSON has them.
        state: The state on the devices, after the last step that was dispatched.
        compiled_step: The user's step.
        source: The batches.
        evaluator: Evaluates the state after each epoch, or None.
        placement: The devices.
        processes: The processes of the run.
        telemetry: What the run reports to.
        directory: The directory of the run, or None.
        checkpoints: The checkpoints of the run, or None.
        signals: Requests to stop.
        progress: How far the run has come.
    """

    options: FitOptions
    config: Mapping[str, Any] | None
    state: Any
    compiled_step: CompiledStep
    source: BatchSource
    evaluator: Evaluator | None
    placement: Placement
    processes: ProcessGroup
    telemetry: Telemetry
    directory: RunDirectory | None
    checkpoints: CheckpointManager | None
    signals: StopSignals
    progress: TrainProgress = field(init=False, default_factory=TrainProgress)

    def __post_init__(self) -> None:
        self._metrics = MetricsBuffer(
            self.options.log_every,
            self.telemetry.timers,
            values_known=not self.placement.is_virtual,
        )
        self._resumed_at = 0
        self._saved_step: int | None = None
        self._batch_rows: int | None = None
        self._nan: NanCause | None = None
        self._stop_reason: StopReason = "finished"

    def restore(self) -> Iterator[Any] | None:
        """Resume from a checkpoint, if there is one to resume from.

        Returns:
            The rest of the epoch that it was saved in; None for a new run.
        """
        restored = restore_requested(
            self.checkpoints,
            self.state,
            self.config,
            resume=self.options.resume,
            force=self.options.force_resume,
            note=self.telemetry.note,
            processes=self.processes,
        )
        if restored is None:
            return None
        self.state, self.progress = restored.state, restored.progress
        self._resumed_at = self._saved_step = self.progress.step
        epoch = self.progress.epoch
        resume = partial(
            self.source.resume,
            restored.position,
            epoch,
            force=self.options.force_resume,
            note=self.telemetry.note,
        )
        batches = self.processes.run_on_all(resume)
        self.telemetry.progress_bar.print(
            f"resuming from step {self.progress.step} (epoch {epoch + 1})"
        )
        return batches

    def run(self, batches: Iterator[Any] | None) -> None:
        """Train until there is a reason to stop.

        Args:
            batches: The rest of the epoch that a checkpoint was saved in, or None.

        Raises:
            InsufficientMemoryError: Device memory was not enough.
        """
        self.telemetry.start(
            self.progress.step,
            device=self.placement.name,
            config=self.config,
            versions=versions(),
        )
        if self.directory is not None:
            self.directory.is_used = True
        self.signals.install()
        with during_training():
            self._stop_reason = self._run_epochs(batches)
        with self.telemetry.timers.section("checkpoint"):
            if self.checkpoints is not None:
                self.checkpoints.close()

    def finish(self) -> Result:
        """Report the end of the session, and return its result."""
        progress, reason = self.progress, self._stop_reason
        save_error = None
        if self.checkpoints is not None:
            if errors := self.checkpoints.error_summary():
                self.telemetry.notes.append(errors)
            if reason != "nan":
                save_error = self.checkpoints.error(progress.step)
        timing = self.telemetry.timers.total_timing()
        host_bytes, device_bytes, unknown = peak_memory(self.placement.devices)
        result = Result(
            state=self.state,
            epochs=progress.epochs,
            best=progress.best_epoch(),
            stop_reason=reason,
            steps=progress.step,
            timing=timing,
            device=self.placement.name,
            peak_host_bytes=host_bytes,
            peak_device_bytes=device_bytes,
            peak_device_unknown=unknown,
            signal=self.signals.received if reason == "signal" else None,
            elapsed=progress.elapsed + timing.wall,
            resumed_at=self._resumed_at,
            notes=tuple(self.telemetry.notes),
            save_error=save_error,
            nan=self._nan,
        )
        self.telemetry.log_end(result)
        return result

    def _run_epochs(self, batches: Iterator[Any] | None) -> StopReason:
        import jax

        try:
            while (reason := self._reason_to_end()) is None:
                if batches is None:
                    batches = self.source.start(self.progress.epoch)
                reason, batches = self.run_epoch(batches), None
                if reason is not None:
                    break
            # A state after a NaN is useless; after any other reason the run can be resumed.
            return reason if reason == "nan" else self.save_checkpoint() or reason
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory_error(
                error,
                step=self.progress.step + 1,
                rows=self._batch_rows,
                memory_plan=self.compiled_step.memory_plan,
                device=self.placement.devices[0],
            ) from error
        finally:
            self.source.stop()

    def _reason_to_end(self) -> StopReason | None:
        """Return why no further epoch is started, or None."""
        if self.progress.epoch >= self.options.epochs:
            return "finished"
        patience = self.options.stop_after
        if patience is not None and self.progress.epochs_without_improvement >= patience:
            return "early"
        return None

    def run_epoch(self, batches: Iterator[Any]) -> StopReason | None:
        """Run an epoch, or the rest of one, and return a reason to stop, if any."""
        progress, timers = self.progress, self.telemetry.timers
        timers.start_epoch()
        self.telemetry.progress_bar.start_epoch(progress.epoch + 1, progress.steps_of_epoch)
        reason = self._run_steps(batches) or self.consume_metrics(self._metrics.flush())
        timers.end_steps()
        if reason is not None:
            return reason
        if progress.epoch + 1 < self.options.epochs:
            # Evaluation and a checkpoint take longer than filling a shuffle window.
            self.source.read_ahead(progress.epoch + 1)
        validation: dict[str, float] | None = None
        if self.evaluator is not None:
            with timers.section("eval"):
                validation = self.evaluator.run(self.state, self._should_stop_evaluation)
            if validation is None:
                return "signal"  # the evaluation is repeated after a resume
        epoch = progress.finish_epoch(validation or None, timers.epoch_timing())
        if self.checkpoints is not None and epoch.validation is not None:
            self.checkpoints.record_loss(progress.step, epoch.validation["loss"])
        stop, save = self.poll_requests(log_point=True, wait=True)
        if save or epoch.best:
            reason = self.save_checkpoint()
            epoch = progress.epochs[-1] = replace(epoch, timing=timers.epoch_timing())
        elapsed = progress.elapsed + timers.total_timing().wall
        self.telemetry.log_epoch(progress.step, epoch, elapsed)
        return reason or ("signal" if stop and self._reason_to_end() is None else None)

    def _should_stop_evaluation(self) -> bool:
        # Several processes would stop at different batches.
        return not self.processes.is_distributed and self.signals.received is not None

    def _run_steps(self, batches: Iterator[Any]) -> StopReason | None:
        """Run the steps of an epoch; return a reason to stop, or None after the last one.

        Waits for the device only where that is meant to happen.
        """
        progress, metrics_buffer = self.progress, self._metrics
        seconds, now = self.telemetry.timers.seconds, time.perf_counter
        update_bar = self.telemetry.progress_bar.update
        stacked = self.options.steps_per_dispatch
        rows_left = self.source.rows_left()
        batch_count = self.source.batches_per_epoch()
        total = None if batch_count is None else batch_count * stacked
        in_flight: StepsInFlight | None = None
        waited_before = seconds["data_wait"]
        while True:
            start = now()
            batch = next(batches, _END)
            # While the device computes, nothing waits for data, however long a batch takes.
            if in_flight is None or in_flight.is_device_idle():
                seconds["data_wait"] += now() - start
            if batch is _END:
                _ensure_steps(progress.steps_of_epoch)
                return None
            steps = 1
            if stacked > 1:
                batch, steps, rows_left = drop_padding(batch, rows_left)
            if in_flight is None:
                in_flight = StepsInFlight(self._max_steps_in_flight(batch))
            metrics = self.step(batch, steps)
            # The loader needs its memory back.
            del batch
            progress.add_steps(steps)
            metrics_buffer.add(metrics, steps, stacked=stacked > 1)
            seconds["device_wait"] += in_flight.add(next(iter(metrics.values())))
            log_point = metrics_buffer.should_read()
            if log_point:
                reason = self.consume_metrics(metrics_buffer.rotate())
                if reason is not None:
                    return reason
            stop, save = self.poll_requests(log_point=log_point)
            if stop:
                return "signal"
            if save:
                self._wait_for_device()
                if (reason := self.save_checkpoint()) is not None:
                    return reason
            update_bar(progress.steps_of_epoch, total, seconds["data_wait"] - waited_before)

    def step(self, batch: Any, steps: int) -> Mapping[str, Any]:
        """Dispatch a step, or a stack of steps, and return its metrics."""
        program = self.compiled_step
        before = program.count
        if before == 0:
            self._batch_rows = batch_rows(batch, self.options.steps_per_dispatch)
            self.telemetry.progress_bar.compiling("training step")
        self.state, metrics = program(self.state, batch)
        if program.count != before:
            compile_seconds = program.take_compile_seconds()
            self.telemetry.timers.seconds["compile"] += compile_seconds
            self.telemetry.progress_bar.skip(compile_seconds)
            check_metrics(metrics, stacked=0 if self.options.steps_per_dispatch == 1 else steps)
        return by_name(metrics)

    def _max_steps_in_flight(self, batch: Any) -> int:
        on_cpu = self.placement.devices[0].platform == "cpu"
        return max_steps_in_flight(batch, on_cpu=on_cpu, max_held=self.source.max_held())

    def _wait_for_device(self) -> None:
        """Wait for the steps in flight, which count as steps: not as time of a checkpoint."""
        import jax

        start = time.perf_counter()
        jax.block_until_ready(self.state)
        self.telemetry.timers.seconds["device_wait"] += time.perf_counter() - start
        self.telemetry.timers.end_steps()

    def poll_requests(self, *, log_point: bool, wait: bool = False) -> tuple[bool, bool]:
        """Return whether to stop, and whether to save a checkpoint.

        Args:
            log_point: Whether this is a log point, where several processes exchange requests.
            wait: Wait for the requests of other processes.
        """
        if self.processes.is_distributed and not log_point:
            return False, False
        stop = self.signals.received is not None
        save = self.checkpoints is not None and self.checkpoints.should_save(self.progress.step)
        return self.processes.any(stop, save, wait=wait)

    def consume_metrics(self, chunks: list[dict[str, Any]]) -> StopReason | None:
        """Add metrics that were read, and return `nan` if a loss is not finite."""
        progress = self.progress
        for chunk in chunks:
            progress.metric_sums.add(chunk)
            losses = chunk["loss"]
            step = progress.step - progress.steps_of_epoch + int(progress.metric_sums.weight)
            index = first_not_finite(losses) if self.options.stop_on_nan else None
            if index is not None:
                self._report_nan(step - len(losses) + index + 1, float(losses[index]))
                return "nan"
            means = {name: math.fsum(values) / len(values) for name, values in chunk.items()}
            self.telemetry.log_metrics(step, progress.epoch + 1, means)
        return None

    def _report_nan(self, step: int, loss: float) -> None:
        progress, stacked = self.progress, self.options.steps_per_dispatch
        step_of_epoch = step - (progress.step - progress.steps_of_epoch)
        batch, index = divmod(step_of_epoch - 1, stacked)
        step_in_stack = index if stacked > 1 else None
        self._nan = diagnose(self.source, progress.epoch, batch, step_in_stack)
        steps = [] if self.checkpoints is None else self.checkpoints.all_steps()
        self.telemetry.log_nan(
            step=step,
            epoch=progress.epoch + 1,
            step_of_epoch=step_of_epoch,
            loss=loss,
            cause=self._nan.text,
            checkpoint=steps[0] if steps else None,
        )

    def save_checkpoint(self) -> StopReason | None:
        """Start to save a checkpoint; return `nan` instead if the loss is not finite."""
        progress, manager = self.progress, self.checkpoints
        if manager is None:
            return None
        if self._saved_step == progress.step and manager.error(progress.step) is None:
            return None
        timers = self.telemetry.timers
        with timers.section("checkpoint"):
            # Reads all losses so far: a state after a NaN is not saved.
            if (reason := self.consume_metrics(self._metrics.flush())) is not None:
                return reason
            position = self.source.position(progress.batches_of_epoch)
            saved = replace(progress, elapsed=progress.elapsed + timers.total_timing().wall)
            metadata = build_metadata(saved, position, self.config, self.state)
            if manager.save(progress.step, self.state, metadata):
                self._saved_step = progress.step
                self.telemetry.log_checkpoint(progress.step, progress.epoch + 1)
        return None


def _ensure_steps(count: int) -> None:
    if count == 0:
        raise InvalidArgumentError(
            "`data` has no batches: an epoch ended before its first step",
            hint="pass batches that can be iterated over repeatedly",
        )
