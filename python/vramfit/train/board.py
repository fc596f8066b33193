"""Curves for TensorBoard: the lines of `metrics.jsonl` again, as scalars in an event file."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramfit._errors import PackageMissingError


def require() -> None:
    """Refuse to begin without the package that writes event files.

    Raises:
        PackageMissingError: It is not installed.
    """
    if importlib.util.find_spec("tensorboardX") is None:
        raise PackageMissingError(
            f"`{sys.executable}` has no `tensorboardX`, which writes curves for TensorBoard",
            hint=f"install it: `{sys.executable} -m pip install 'vramfit[tensorboard]'`",
        )


class Board:
    """Writes event files into a directory, one for each sitting.

    Args:
        directory: Where they go.
        step: What a run that goes on has behind it. TensorBoard passes over what earlier files
            have of later steps, which will be done again.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(
            str(directory),
            purge_step=step + 1 if step else None,
            # Names have the time in seconds, and a second file of one name would replace the first.
            filename_suffix=f".{step}.{os.getpid()}",
        )
        self._epoch_began = step

    def write(self, event: str, facts: Mapping[str, Any]) -> None:
        """Take a line of the journal; those without curves are passed over."""
        step = int(facts.get("step", 0))
        if event == "steps":
            means = {name: value for name, value in facts.items() if name not in ("step", "epoch")}
            self._scalars("train", means, step)
        elif event == "epoch":
            self._scalars("validation", facts["validation"] or {}, step)
            self._scalars("epoch", _rates(facts, step - self._epoch_began), step)
            self._epoch_began = step
            # An epoch may be the last thing that someone sees of a run.
            self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def _scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)


def _rates(facts: Mapping[str, Any], steps: int) -> dict[str, float]:
    """Return how fast an epoch was, of which this sitting made so many steps."""
    timing = facts["timing"]
    training = timing["data_wait"] + timing["step"]
    rates = {"seconds": facts["seconds"]}
    # A sitting that goes on behind the last step of an epoch makes none of it.
    if training > 0 and steps > 0:
        rates["steps_per_second"] = steps / training
        rates["waiting_for_data"] = timing["data_wait"] / training
    return rates
