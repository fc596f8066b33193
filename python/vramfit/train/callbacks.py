"""Callbacks for :func:`vramfit.train.fit` that come with the package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vramfit.train.events import EpochEnd, Evaluation, Event, LogPoint, RunStart
from vramfit.train.output.tensorboard import ensure_installed
from vramfit.train.result import Epoch
from vramfit.train.training_run import TrainingRun

__all__ = ["TensorBoard"]


class TensorBoard:
    """Writes TensorBoard event files into a directory, one for each session of a run.

    Metrics of steps are in the group `train`, those of evaluations in `validation`, and the rates
    of each epoch in `epoch`. Of several processes, the first one writes.

    Args:
        directory: Where the files go; created if missing.

    Raises:
        PackageMissingError: tensorboardX is not installed: `pip install 'vramfit[tensorboard]'`.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        ensure_installed()
        self._directory = directory
        self._writer: Any = None
        self._epoch_start = 0

    def __call__(self, event: Event, run: TrainingRun) -> None:
        """Write what an event has."""
        if isinstance(event, RunStart):
            self._open(event.step)
        elif self._writer is None:
            return
        elif isinstance(event, LogPoint):
            self._write("train", event.metrics, event.step)
        elif isinstance(event, Evaluation):
            self._write("validation", event.metrics, event.step)
        elif isinstance(event, EpochEnd):
            self._write("epoch", _rates(event.epoch, event.step - self._epoch_start), event.step)
            self._epoch_start = event.step
            # An epoch may be the last thing that someone sees of a run.
            self._writer.flush()

    def save_state(self) -> None:
        """Return nothing: what belongs to a run is in its files."""

    def restore_state(self, state: None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, step: int) -> None:
        import jax
        from tensorboardX import SummaryWriter

        self._epoch_start = step
        if jax.process_index() == 0:
            self._writer = SummaryWriter(
                str(self._directory),
                # TensorBoard ignores what earlier files have of steps that are run again.
                purge_step=step + 1 if step else None,
                # Names have the time in seconds, and a second file of one name would replace the
                # first.
                filename_suffix=f".{step}.{os.getpid()}",
            )

    def _write(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)


def _rates(epoch: Epoch, steps: int) -> dict[str, float]:
    """Return the rates of an epoch, of which this session has run so many steps."""
    timing = epoch.timing
    training = timing.data_wait + timing.step
    rates = {"seconds": timing.wall}
    # A session that resumes after the last step of an epoch runs none of it.
    if training > 0 and steps > 0:
        rates["steps_per_second"] = steps / training
        rates["waiting_for_data"] = timing.data_wait / training
    return rates
