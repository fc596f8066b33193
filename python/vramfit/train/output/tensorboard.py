"""The content of `metrics.jsonl` as scalars in TensorBoard event files."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramfit.errors import PackageMissingError


def ensure_installed() -> None:
    """Raise an error unless the package that writes event files is installed.

    Raises:
        PackageMissingError: It is not installed.
    """
    if importlib.util.find_spec("tensorboardX") is None:
        raise PackageMissingError(
            f"`{sys.executable}` has no `tensorboardX`, which writes TensorBoard files",
            hint=f"install it: `{sys.executable} -m pip install 'vramfit[tensorboard]'`",
        )


class TensorBoardWriter:
    """Writes event files into a directory, one for each session of a run.

    Args:
        directory: Where they go.
        step: The step that the session resumes from. TensorBoard ignores what earlier files have
            of later steps, which are run again.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(
            str(directory),
            purge_step=step + 1 if step else None,
            # Names have the time in seconds, and a second file of one name would replace the first.
            filename_suffix=f".{step}.{os.getpid()}",
        )
        self._epoch_start = step

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write the scalars of a line of the metrics log; most kinds of lines have none."""
        step = int(fields.get("step", 0))
        if event == "steps":
            means = {name: value for name, value in fields.items() if name not in ("step", "epoch")}
            self._write_scalars("train", means, step)
        elif event == "epoch":
            self._write_scalars("validation", fields["validation"] or {}, step)
            self._write_scalars("epoch", _rates(fields, step - self._epoch_start), step)
            self._epoch_start = step
            # An epoch may be the last thing that someone sees of a run.
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write_scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)


def _rates(fields: Mapping[str, Any], steps: int) -> dict[str, float]:
    """Return the rates of an epoch, of which this session has run so many steps."""
    timing = fields["timing"]
    training = timing["data_wait"] + timing["step"]
    rates = {"seconds": fields["seconds"]}
    # A session that resumes after the last step of an epoch runs none of it.
    if training > 0 and steps > 0:
        rates["steps_per_second"] = steps / training
        rates["waiting_for_data"] = timing["data_wait"] / training
    return rates
