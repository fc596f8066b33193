"""`metrics.jsonl`: what happened in a run, one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from vramfit._errors import IoError
from vramfit.train.board import Board


class Journal:
    """Writes the file, and beside it curves; or nothing, where there is no directory.

    Args:
        directory: The directory of the run, or None.
        tell: Takes a sentence for the person who runs it.
        tensorboard: Whether TensorBoard is to show the same.
    """

    def __init__(
        self, directory: Path | None, tell: Callable[[str], None], *, tensorboard: bool = False
    ) -> None:
        self._file: TextIO | None = None
        self._tell = tell
        self._has_failed = False
        self._path = None if directory is None else directory / "metrics.jsonl"
        self._curves = directory / "tensorboard" if directory is not None and tensorboard else None
        self._board: Board | None = None

    def open(self, step: int) -> None:
        """Begin with what a run that goes on from `step` has behind it.

        Steps behind that one will be done again, and a line about each would be there twice.

        Raises:
            IoError: The file cannot be read or written.
        """
        if self._path is None:
            return
        try:
            self._file = _reopened(self._path, step)
        except OSError as error:
            raise IoError(
                f"cannot write `{self._path}`",
                cause=error.strerror or str(error),
                hint="free space there, or name another `directory`",
            ) from error
        if self._curves is not None:
            self._board = Board(self._curves, step)

    def write(self, event: str, **facts: Any) -> None:
        """Add a line; one that cannot be written is reported, the first time, and does no more."""
        if self._file is not None:
            try:
                self._file.write(json.dumps({"event": event, **_finite(facts)}) + "\n")
            except OSError as error:
                self._report_failure(error)
        if self._board is not None:
            self._board.write(event, facts)

    def close(self) -> None:
        """End the files."""
        if self._board is not None:
            self._board.close()
            self._board = None
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._report_failure(error)
            self._file = None

    def _report_failure(self, error: OSError) -> None:
        if not self._has_failed:
            self._tell(f"`metrics.jsonl` is incomplete: {error.strerror or error}")
        self._has_failed = True


def _reopened(path: Path, step: int) -> TextIO:
    """Return the file, open for more lines behind those up to a step."""
    kept: list[bytes] = []
    with contextlib.suppress(FileNotFoundError):
        # Bytes, because a file that something else has written to need not be text.
        kept = [line for line in path.read_bytes().splitlines() if _until(line, step)]
    beside = path.with_suffix(".jsonl.new")
    beside.write_bytes(b"".join(line + b"\n" for line in kept))
    os.replace(beside, path)
    return path.open("a", buffering=1)


def _until(line: bytes, step: int) -> bool:
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
