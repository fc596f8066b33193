"""The training loop: epochs of steps, evaluation, checkpoints, and reasons to stop."""

from __future__ import annotations

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
from vramfit.train.events import CheckpointSaved, EpochEnd, Event, RunEnd, RunStart
from vramfit.train.loop.callbacks import Callbacks
from vramfit.train.loop.dispatch import StepDispatch
from vramfit.train.loop.evaluations import Evaluations
from vramfit.train.loop.in_flight import StepsInFlight, max_steps_in_flight
from vramfit.train.loop.log_points import LogPoints
from vramfit.train.loop.memory import is_out_of_memory, out_of_memory_error
from vramfit.train.loop.session_end import build_result
from vramfit.train.loop.signals import StopSignals
from vramfit.train.messages import during_training
from vramfit.train.options import FitOptions
from vramfit.train.output.run_directory import RunDirectory
from vramfit.train.output.telemetry import Telemetry
from vramfit.train.process_group import ProcessGroup
from vramfit.train.result import NanCause, Result, StopReason, Timing
from vramfit.train.run_record import RunRecord
from vramfit.train.train_progress import TrainProgress
from vramfit.train.training_run import TrainingRun

_END = object()


@dataclass(kw_only=True, eq=False)
class TrainLoop:
    """One session of a run: from the first step, or a checkpoint, to a reason to stop.

    Attributes:
        options: The options of the run.
        config: The user's values for checkpoints, as JSON has them.
        state: The state on the devices, after the last step that was dispatched.
        dispatch: Runs the user's step.
        source: The batches.
        evaluations: Evaluates the state, if it is to be evaluated.
        callbacks: What is called with the events of the run.
        placement: The devices.
        processes: The processes of the run.
        telemetry: What the run reports to.
        directory: The directory of the run, or None.
        checkpoints: The checkpoints of the run, or None.
        signals: Requests to stop.
        record: What is recorded of the run.
        progress: How far the run has come.
        epoch_number: The current epoch, counted from 1.
        stop_message: Why a callback has requested to stop, or None.
        is_save_requested: Whether a callback has requested a checkpoint.
        resumed_at: The step that the session resumed from, or 0.
        nan: The likely cause of a loss that is not finite, or None.
        last_epoch_timing: Where the time of the latest epoch went, which may not be finished.
    """

    options: FitOptions
    config: Mapping[str, Any] | None
    state: Any
    dispatch: StepDispatch
    source: BatchSource
    evaluations: Evaluations
    callbacks: Callbacks
    placement: Placement
    processes: ProcessGroup
    telemetry: Telemetry
    directory: RunDirectory | None
    checkpoints: CheckpointManager | None
    signals: StopSignals
    record: RunRecord
    progress: TrainProgress = field(init=False, default_factory=TrainProgress)
    epoch_number: int = field(init=False, default=1)
    stop_message: str | None = field(init=False, default=None)
    is_save_requested: bool = field(init=False, default=False)
    resumed_at: int = field(init=False, default=0)
    nan: NanCause | None = field(init=False, default=None)
    last_epoch_timing: Timing = field(init=False, default_factory=Timing)

    def __post_init__(self) -> None:
        self._log_points = LogPoints(self)
        self._saved_step: int | None = None
        self._stop_reason: StopReason = "finished"
        self._run = TrainingRun(self)

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
        self.resumed_at = self._saved_step = self.progress.step
        self.evaluations.restore(self.progress, self.checkpoints)
        self.callbacks.restore(restored.callbacks, self.progress.step, self.telemetry.note)
        epoch = self.progress.epoch
        self.epoch_number = epoch + 1
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
            self.progress.log_windows.delivered,
            self.record,
            device=self.placement.name,
            config=self.config,
            versions=versions(),
            best_by=self.options.best_by,
        )
        if self.directory is not None:
            self.directory.is_used = True
        self.signals.install()
        with during_training():
            self._stop_reason = self._run_session(batches)
        with self.telemetry.timers.section("checkpoint"):
            if self.checkpoints is not None:
                self.checkpoints.close()

    def finish(self) -> Result:
        """Report the end of the session, and return its result."""
        result = build_result(self, self._stop_reason)
        self.telemetry.log_end(result)
        return result

    def deliver(self, event: Event) -> None:
        """Call the callbacks with an event."""
        self.callbacks.deliver(event, self._run)

    def evaluate_for_callback(self, state: Any, data: Any) -> dict[str, float]:
        """Evaluate a state on some batches, by default those of the run, and record nothing."""
        return self.evaluations.evaluate_once(
            self.state if state is None else state, data, self.placement
        )

    def _run_session(self, batches: Iterator[Any] | None) -> StopReason:
        import jax

        try:
            self.deliver(RunStart(self.progress.step, self.epoch_number))
            return self._end_session(self._run_epochs(batches))
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error) or self.callbacks.failed is not None:
                raise
            raise out_of_memory_error(
                error,
                step=self.progress.step + 1,
                rows=self.dispatch.batch_rows,
                memory_plan=self.dispatch.program.memory_plan,
                device=self.placement.devices[0],
            ) from error
        finally:
            self.source.stop()

    def _run_epochs(self, batches: Iterator[Any] | None) -> StopReason:
        if self.poll_requests(log_point=True, wait=True)[0] == "callback":
            return "callback"
        while (reason := self._reason_to_end()) is None:
            if batches is None:
                batches = self.source.start(self.progress.epoch)
            reason, batches = self.run_epoch(batches), None
            if reason is not None:
                return reason
        return reason

    def _reason_to_end(self) -> StopReason | None:
        """Return why no further epoch or step is started, or None."""
        progress, options = self.progress, self.options
        if options.max_epochs is not None and progress.epoch >= options.max_epochs:
            return "finished"
        if self._has_all_steps():
            return "finished"
        return "early" if self.evaluations.is_patience_exhausted(progress) else None

    def _has_all_steps(self) -> bool:
        return self.options.steps is not None and self.progress.step >= self.options.steps

    def run_epoch(self, batches: Iterator[Any]) -> StopReason | None:
        """Run an epoch, or the rest of one, and return a reason to stop, if any."""
        progress, timers = self.progress, self.telemetry.timers
        timers.start_epoch()
        self.epoch_number = progress.epoch + 1
        self.telemetry.progress_bar.start_epoch(
            self.epoch_number, progress.steps_of_epoch, progress.step
        )
        reason = self._run_steps(batches) or self._log_points.finish()
        timers.end_steps()
        self.last_epoch_timing = timers.epoch_timing()
        if reason is not None:
            return reason
        is_last = self._has_all_steps() or progress.epoch + 1 == self.options.max_epochs
        if not is_last:
            # Evaluation and a checkpoint take longer than filling a shuffle window.
            self.source.read_ahead(progress.epoch + 1)
        is_scheduled = self.evaluations.is_due_after_epoch()
        is_due = is_scheduled or (is_last and self.evaluations.is_due_at_end(progress))
        if is_due and not self.evaluate(scheduled=is_scheduled):
            return "signal"  # the evaluation is repeated after a resume
        epoch = progress.finish_epoch(timers.epoch_timing())
        self.deliver(EpochEnd(epoch, progress.step))
        stop, save = self.poll_requests(log_point=True, wait=True)
        if save or progress.is_current_best():
            reason = self.save_checkpoint()
        epoch = progress.epochs[-1] = replace(epoch, timing=timers.epoch_timing())
        elapsed = progress.elapsed + timers.total_timing().wall
        self.telemetry.log_epoch(progress.step, epoch, elapsed)
        return reason or (stop if self._reason_to_end() is None else None)

    def evaluate(self, *, scheduled: bool) -> bool:
        """Evaluate the state, and return whether that was not interrupted by a signal."""
        metrics = self.evaluations.run(self.state, self.progress, self._should_stop_evaluation)
        if metrics is None:
            return False
        evaluation = self.evaluations.record(
            metrics, self.progress, self.checkpoints, scheduled=scheduled
        )
        if evaluation is not None:
            self.telemetry.log_evaluation(evaluation)
            self.deliver(evaluation)
        return True

    def _should_stop_evaluation(self) -> bool:
        # Several processes would stop at different batches.
        return not self.processes.is_distributed and self.signals.received is not None

    def _run_steps(self, batches: Iterator[Any]) -> StopReason | None:
        """Run the steps of an epoch; return a reason to stop, or None after the last one.

        Waits for the device only where that is meant to happen.
        """
        progress, log_points = self.progress, self._log_points
        seconds, now = self.telemetry.timers.seconds, time.perf_counter
        update_bar, dispatch = self.telemetry.progress_bar.update, self.dispatch.run
        stacked = self.options.steps_per_dispatch
        rows_left = self.source.rows_left()
        batch_count = self.source.batches_per_epoch()
        total = None if batch_count is None else batch_count * stacked
        in_flight: StepsInFlight | None = None
        waited_before = seconds["data_wait"]
        reason = None
        if progress.steps_of_epoch > 0 and self.evaluations.is_due(progress):
            # It was interrupted before a resume.
            reason = self._between_steps(batch_count, log_point=False)
        if reason is not None:
            return reason
        while True:
            start = now()
            batch = next(batches, _END)
            # While the device computes, nothing waits for data, however long a batch takes.
            if in_flight is None or in_flight.is_device_idle():
                seconds["data_wait"] += now() - start
            if batch is _END:
                _ensure_steps(progress.steps_of_epoch)
                return None
            if self._has_all_steps():  # the length of the user's batches was too small
                return "finished"
            steps = 1
            if stacked > 1:
                batch, steps, rows_left = drop_padding(batch, rows_left)
            if in_flight is None:
                in_flight = StepsInFlight(self._max_steps_in_flight(batch))
            self.state, metrics = dispatch(self.state, batch, steps)
            # The loader needs its memory back.
            del batch
            progress.add_steps(steps)
            log_points.add(metrics, steps, stacked=stacked > 1)
            seconds["device_wait"] += in_flight.add(next(iter(metrics.values())))
            log_point = log_points.is_due()
            if log_point and (reason := log_points.advance()) is not None:
                return reason
            if (reason := self._between_steps(batch_count, log_point=log_point)) is not None:
                return reason
            update_bar(progress.steps_of_epoch, total, seconds["data_wait"] - waited_before)

    def _between_steps(self, batch_count: int | None, *, log_point: bool) -> StopReason | None:
        """Evaluate and save where that is due, and return a reason to stop, if any.

        Args:
            batch_count: Number of batches of the epoch, if known.
            log_point: Whether the latest step is a log point.
        """
        progress = self.progress
        if is_evaluation_due := self.evaluations.is_due(progress):
            self._wait_for_device()
            if not self.evaluate(scheduled=True):
                return "signal"
        # After the events of the step, so that a checkpoint has what callbacks did.
        stop, save = self.poll_requests(log_point=log_point)
        if stop is not None:
            return stop
        if save or (is_evaluation_due and progress.is_current_best()):
            self._wait_for_device()
            if (reason := self.save_checkpoint()) is not None:
                return reason
        if batch_count is not None and progress.batches_of_epoch >= batch_count:
            return None  # the epoch is finished first
        if self._has_all_steps():
            return "finished"
        if is_evaluation_due and self.evaluations.is_patience_exhausted(progress):
            return "early"
        return None

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

    def poll_requests(
        self, *, log_point: bool, wait: bool = False
    ) -> tuple[StopReason | None, bool]:
        """Return why to stop, or None, and whether to save a checkpoint.

        Args:
            log_point: Whether this is a log point, where several processes exchange requests.
            wait: Wait for the requests of other processes.
        """
        if self.processes.is_distributed and not log_point:
            return None, False
        manager = self.checkpoints
        by_signal, by_callback, save = self.processes.any(
            self.signals.received is not None,
            self.stop_message is not None,
            manager is not None
            and (self.is_save_requested or manager.should_save(self.progress.step)),
            wait=wait,
        )
        return "signal" if by_signal else "callback" if by_callback else None, save

    def save_checkpoint(self) -> StopReason | None:
        """Start to save a checkpoint; return `nan` instead if the loss is not finite."""
        progress, manager = self.progress, self.checkpoints
        self.is_save_requested = False
        if manager is None:
            return None
        if self._saved_step == progress.step and manager.error(progress.step) is None:
            return None
        timers = self.telemetry.timers
        with timers.section("checkpoint"):
            # Reads all losses so far: a state after a NaN is not saved.
            if (reason := self._log_points.read_all()) is not None:
                return reason
            position = self.source.position(progress.batches_of_epoch)
            saved = replace(progress, elapsed=progress.elapsed + timers.total_timing().wall)
            metadata = build_metadata(
                saved, position, self.config, self.state, self.callbacks.states()
            )
            if not manager.save(progress.step, self.state, metadata):
                return None
        self._saved_step = progress.step
        self.telemetry.log_checkpoint(progress.step, self.epoch_number)
        self.deliver(CheckpointSaved(progress.step, self.epoch_number))
        return None

    def _end_session(self, reason: StopReason) -> StopReason:
        """Evaluate and save what the last step has left, and tell the callbacks."""
        progress = self.progress
        is_within_epoch = reason == "finished" and progress.steps_of_epoch > 0
        if is_within_epoch and self.evaluations.is_due_at_end(progress):
            is_scheduled = self.evaluations.is_due(progress)
            reason = reason if self.evaluate(scheduled=is_scheduled) else "signal"
        # A state after a NaN is useless; after any other reason the run can be resumed.
        if reason != "nan":
            reason = self.save_checkpoint() or reason
        if reason != "nan":
            # A session that resumes delivers these, when they are due. So what callbacks change
            # now is not part of the run.
            state = self.state
            reason = self._log_points.finish() or reason
            self.state = state
        self.deliver(RunEnd(reason, progress.step))
        return reason


def _ensure_steps(count: int) -> None:
    if count == 0:
        raise InvalidArgumentError(
            "`data` has no batches: an epoch ended before its first step",
            hint="pass batches that can be iterated over repeatedly",
        )
