"""Building a training loop from the arguments of `fit`: what is checked, opened and compiled."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from vramfit.train import devices
from vramfit.train.accumulators import Accumulator
from vramfit.train.callbacks import TensorBoard
from vramfit.train.checkpoint.manager import CheckpointManager
from vramfit.train.checkpoint.metadata import as_json
from vramfit.train.data.batch_source import open_source
from vramfit.train.events import Callback
from vramfit.train.loop.callbacks import Callbacks
from vramfit.train.loop.compiled_step import CompiledStep, eval_function, train_function
from vramfit.train.loop.dispatch import StepDispatch
from vramfit.train.loop.evaluations import Evaluations
from vramfit.train.loop.evaluator import Evaluator
from vramfit.train.loop.signals import StopSignals
from vramfit.train.loop.train_loop import TrainLoop
from vramfit.train.options import FitOptions
from vramfit.train.output.run_directory import CHECKPOINTS, RunDirectory
from vramfit.train.output.telemetry import Telemetry
from vramfit.train.output.tensorboard import ensure_installed
from vramfit.train.output.timers import Stopwatch
from vramfit.train.process_group import ProcessGroup
from vramfit.train.run_record import current_record, describe_run


def build_loop(
    step: Any,
    state: Any,
    data: Any,
    eval_step: Any,
    eval_data: Any,
    callbacks: Sequence[Callback],
    accumulators: Mapping[str, Accumulator],
    options: FitOptions,
    cleanup: ExitStack,
) -> TrainLoop:
    """Return the loop; everything that it opens is closed with `cleanup`.

    Args:
        step: The user's step.
        state: The user's state.
        data: The user's batches.
        eval_step: The user's evaluation, or None.
        eval_data: Its batches, or None.
        callbacks: The user's callbacks.
        accumulators: What merges metrics of the evaluation that are no scalars.
        options: The options of the run.
        cleanup: Is to be closed after the run.
    """
    if options.tensorboard:
        ensure_installed()
    config = as_json(options.config)
    # Left last: a checkpoint that is being saved is waited for, whatever else has failed.
    signals = cleanup.enter_context(StopSignals())
    timers = Stopwatch()
    placement = devices.select_devices(options.device)
    directory = None
    if options.directory is not None and not placement.is_virtual:
        directory = RunDirectory(Path(options.directory))
        cleanup.callback(directory.close)
    telemetry = _open_telemetry(options, directory, timers, placement, cleanup)
    placement = devices.adopt_sharding(placement, state, data)
    processes = ProcessGroup(placement.mesh, values_known=not placement.is_virtual)
    stacked = options.steps_per_dispatch
    source = open_source(
        data,
        depth=options.prefetch,
        stacked=stacked,
        target=placement.batch_target(stacked=stacked > 1),
        role="data",
    )
    state = devices.place_state(state, placement)
    compiled = CompiledStep(
        train_function(step, stacked),
        donate=options.donate,
        out_shardings=devices.result_shardings(state, placement),
        returns_state=True,
    )
    evaluator = None
    if eval_step is not None:
        evaluator = Evaluator(
            CompiledStep(eval_function(eval_step)),
            open_source(
                eval_data,
                depth=options.prefetch,
                stacked=1,
                target=placement.batch_target(),
                role="eval_data",
            ),
            accumulators,
            timers,
            values_known=not placement.is_virtual,
        )
    if options.tensorboard and directory is not None:
        callbacks = [TensorBoard(directory.path / "tensorboard"), *callbacks]
    opened_callbacks = Callbacks(callbacks, timers)
    cleanup.callback(opened_callbacks.close)
    checkpoints = None
    if directory is not None:
        # Locked before orbax opens it, which removes checkpoints that are being saved.
        directory.open(processes, telemetry.note, start_over=options.resume is False)
        if options.checkpoints is not None:
            on_cpu = placement.devices[0].platform == "cpu"
            checkpoints = CheckpointManager(
                directory.path / CHECKPOINTS,
                options.checkpoints,
                telemetry.print_note,
                in_background=on_cpu and not processes.is_distributed,
            )
            cleanup.callback(_close_checkpoints, checkpoints)
    record = current_record(config)
    for remark in record.remarks:
        telemetry.note(remark)
    if directory is not None:
        record = describe_run(record, placement.name, data=data, eval_data=eval_data)
    return TrainLoop(
        options=options,
        config=config,
        state=state,
        dispatch=StepDispatch(compiled, stacked, telemetry),
        source=source,
        evaluations=Evaluations(evaluator, options, timers, data=data, eval_data=eval_data),
        callbacks=opened_callbacks,
        placement=placement,
        processes=processes,
        telemetry=telemetry,
        directory=directory,
        checkpoints=checkpoints,
        signals=signals,
        record=record,
    )


def _open_telemetry(
    options: FitOptions,
    directory: RunDirectory | None,
    timers: Stopwatch,
    placement: devices.Placement,
    cleanup: ExitStack,
) -> Telemetry:
    import jax

    path = None if directory is None else directory.path
    telemetry = Telemetry(options, path, timers, is_primary=jax.process_index() == 0)
    cleanup.callback(telemetry.close)
    for note in placement.notes:
        telemetry.note(note)
    if options.directory is not None and directory is None:
        telemetry.note("on a virtual GPU nothing is written: values are unknown")
    return telemetry


def _close_checkpoints(checkpoints: CheckpointManager) -> None:
    # A checkpoint being saved is waited for, or it would be lost; but not after a second Ctrl-C.
    if not isinstance(sys.exception(), KeyboardInterrupt):
        checkpoints.close()
