"""Dispatching steps: with what is compiled for a new shape of batch, reported and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramfit.train.loop.compiled_step import CompiledStep, by_name, check_metrics
from vramfit.train.loop.memory import batch_rows
from vramfit.train.output.telemetry import Telemetry


class StepDispatch:
    """Runs the user's step.

    Args:
        program: The user's step.
        stacked: Steps in one dispatch.
        telemetry: What the run reports to.

    Attributes:
        program: The user's step.
        batch_rows: Number of rows of the first batch; None before it, or if unknown.
    """

    def __init__(self, program: CompiledStep, stacked: int, telemetry: Telemetry) -> None:
        self.program = program
        self.batch_rows: int | None = None
        self._stacked = stacked
        self._telemetry = telemetry

    def run(self, state: Any, batch: Any, steps: int) -> tuple[Any, Mapping[str, Any]]:
        """Dispatch a step, or a stack of steps, and return the new state and the metrics."""
        program, bar = self.program, self._telemetry.progress_bar
        before = program.count
        if before == 0:
            self.batch_rows = batch_rows(batch, self._stacked)
            bar.compiling("training step")
        state, metrics = program(state, batch)
        if program.count != before:
            compile_seconds = program.take_compile_seconds()
            self._telemetry.timers.seconds["compile"] += compile_seconds
            bar.skip(compile_seconds)
            check_metrics(metrics, stacked=0 if self._stacked == 1 else steps)
        return state, by_name(metrics)
