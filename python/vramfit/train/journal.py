"""`metrics.jsonl`: what happened in a run, one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any, TextIO

from vramfit.train.board import Board


class Journal:
    """Writes the file, and beside it curves; or nothing, where there is no directory.

    Args:
        directory: The directory of the run, or None.
        tensorboard: Whether TensorBoard is to show the same.
    """

    def __init__(self, directory: Path | None, *, tensorboard: bool = False) -> None:
        self._file: TextIO | None = None
        self._path = None if directory is None else directory / "metrics.jsonl"
        self._curves = directory / "tensorboard" if directory is not None and tensorboard else None
        self._board: Board | None = None

    def open(self, step: int) -> None:
        """Begin with what a run that goes on from `step` has behind it.

        Steps behind that one will be done again, and a line about each would be there twice.
        """
        if self._path is None:
            return
        kept: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            kept = [line for line in self._path.read_text().splitlines() if _until(line, step)]
        beside = self._path.with_suffix(".jsonl.new")
        beside.write_text("".join(f"{line}\n" for line in kept))
        os.replace(beside, self._path)
        self._file = self._path.open("a", buffering=1)
        if self._curves is not None:
            self._board = Board(self._curves, step)

    def write(self, event: str, **facts: Any) -> None:
        """Add a line."""
        if self._file is not None:
            self._file.write(json.dumps({"event": event, **_finite(facts)}) + "\n")
        if self._board is not None:
            self._board.write(event, facts)

    def close(self) -> None:
        """End the files."""
        if self._board is not None:
            self._board.close()
            self._board = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _until(line: str, step: int) -> bool:
    try:
        return step > 0 and int(json.loads(line).get("step", 0)) <= step
    except (ValueError, AttributeError, TypeError):  # cut off by a kill
        return False


def _finite(value: Any) -> Any:
    """Return a value that JSON has: NaN and infinities become their names."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
