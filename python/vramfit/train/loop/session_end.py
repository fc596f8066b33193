"""The result of a session, from what its loop has left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramfit.train.loop.memory import peak_memory
from vramfit.train.result import Result, StopReason

if TYPE_CHECKING:
    from vramfit.train.loop.train_loop import TrainLoop


def build_result(loop: TrainLoop, reason: StopReason) -> Result:
    """Return the result of a session that ended for a reason."""
    progress, notes = loop.progress, loop.telemetry.notes
    save_error = None
    if loop.checkpoints is not None:
        if errors := loop.checkpoints.error_summary():
            notes.append(errors)
        if reason != "nan":
            save_error = loop.checkpoints.error(progress.step)
    epochs = list(progress.epochs)
    if progress.steps_of_epoch > 0 and reason != "nan":
        epochs.append(progress.epoch_so_far(loop.last_epoch_timing, complete=False))
    timing = loop.telemetry.timers.total_timing()
    host_bytes, device_bytes, unknown = peak_memory(loop.placement.devices)
    programs = [loop.dispatch.program]
    if loop.evaluations.evaluator is not None:
        programs.append(loop.evaluations.evaluator.step)
    return Result(
        state=loop.state,
        epochs=epochs,
        best=progress.best_evaluation(),
        stop_reason=reason,
        steps=progress.step,
        timing=timing,
        device=loop.placement.name,
        peak_host_bytes=host_bytes,
        peak_device_bytes=device_bytes,
        peak_device_unknown=unknown,
        signal=loop.signals.received if reason == "signal" else None,
        elapsed=progress.elapsed + timing.wall,
        resumed_at=loop.resumed_at,
        notes=tuple(notes),
        save_error=save_error,
        nan=loop.nan,
        evaluations=tuple(progress.evaluations),
        best_by=loop.options.best_by,
        baseline=loop.options.baseline,
        stop_message=loop.stop_message if reason == "callback" else None,
        programs=sum(program.count for program in programs),
        batch_shapes=sum(len(program.batch_shapes) for program in programs),
        programs_seconds=sum(program.seconds for program in programs),
        checkpoints=None if loop.checkpoints is None else loop.checkpoints.directory,
    )
