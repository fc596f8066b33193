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

_UNREADABLE = "unreadable"  # the end of the name of a file


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
            left_out = _rewrite(self._path, step)
            self._file = self._path.open("a", buffering=1)
        except OSError as error:
            raise IoError(
                f"cannot write `{self._path}`",
                cause=error.strerror or str(error),
                hint="free space there, or name another `directory`",
            ) from error
        if left_out:
            lines = "1 line" if left_out == 1 else f"{left_out} lines"
            self._tell(
                f"{lines} of `{self._path.name}` could not be read and went to "
                f"`{_beside(self._path, _UNREADABLE).name}`"
            )
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


def _rewrite(path: Path, step: int) -> int:
    """Keep the lines up to a step; return how many were no lines of a run, and are kept apart."""
    kept, foreign = [], []
    with contextlib.suppress(FileNotFoundError):
        # Bytes, because a file that something else has written to need not be text.
        for line in path.read_bytes().split(b"\n"):
            # Where the power went, file systems leave zeros of what was not written.
            content = line.strip(b"\0 \t\r")
            if not content:
                continue
            if (at := _step_of(content)) is None:
                foreign.append(line)
            elif 0 < step >= at:
                kept.append(content)
    if foreign:
        with _beside(path, _UNREADABLE).open("ab") as apart:
            apart.write(b"".join(line + b"\n" for line in foreign))
    new = _beside(path, "new")
    try:
        new.write_bytes(b"".join(line + b"\n" for line in kept))
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return len(foreign)


def _beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}")


def _step_of(line: bytes) -> int | None:
    """Return the step of a line; None where it is not one of a run: damaged, cut off, foreign."""
    try:
        found = json.loads(line)
        return int(found.get("step", 0)) if isinstance(found["event"], str) else None
    except (ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _finite(value: Any) -> Any:
    """Return a value that JSON has: NaN and infinities become their names."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
