"""`metrics.jsonl`: what happened in a run, one JSON object per line."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from vramfit.errors import IoError

_UNREADABLE = "unreadable"  # the end of the name of a file


class MetricsLog:
    """Writes `metrics.jsonl`; nothing without a directory.

    Args:
        directory: The directory of the run, or None.
        note: Called with a sentence for the user.
    """

    def __init__(self, directory: Path | None, note: Callable[[str], None]) -> None:
        self._file: TextIO | None = None
        self._note = note
        self._has_failed = False
        self._path = None if directory is None else directory / "metrics.jsonl"

    def open(self, step: int, log_point: int) -> None:
        """Open the file of a run that starts or resumes at `step`.

        Lines of later steps are removed: those steps are run, and logged, again.

        Args:
            step: The step.
            log_point: The last log point that is not reported again.

        Raises:
            IoError: The file cannot be read or written.
        """
        if self._path is None:
            return
        try:
            unreadable = _truncate_after(self._path, step, log_point)
            self._file = self._path.open("a", buffering=1)
        except OSError as error:
            raise IoError(
                f"cannot write `{self._path}`",
                cause=error.strerror or str(error),
                hint="free space there, or choose another `directory`",
            ) from error
        if unreadable:
            lines = "1 line" if unreadable == 1 else f"{unreadable} lines"
            self._note(
                f"{lines} of `{self._path.name}` could not be read, moved to "
                f"`{_sibling_path(self._path, _UNREADABLE).name}`"
            )

    def write(self, event: str, **fields: Any) -> None:
        """Add a line. The first one that cannot be written is reported; training continues."""
        if self._file is not None:
            try:
                self._file.write(json.dumps({"event": event, **_as_json(fields)}) + "\n")
            except OSError as error:
                self._report_failure(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._report_failure(error)
            self._file = None

    def _report_failure(self, error: OSError) -> None:
        if not self._has_failed:
            self._note(f"`metrics.jsonl` is incomplete: {error.strerror or error}")
        self._has_failed = True


def _truncate_after(path: Path, step: int, log_point: int) -> int:
    """Keep the lines up to a step, and those of log points up to another one.

    Returns how many could not be read, which are kept apart.
    """
    kept, unreadable = [], []
    with contextlib.suppress(FileNotFoundError):
        # Bytes, because a file that something else has written to need not be text.
        for line in path.read_bytes().split(b"\n"):
            # After a power failure, file systems leave zeros for what was not written.
            content = line.strip(b"\0 \t\r")
            if not content:
                continue
            if (found := _event_of(content)) is None:
                unreadable.append(line)
                continue
            event, line_step = found
            if step > 0 and line_step <= (log_point if event == "steps" else step):
                kept.append(content)
    if unreadable:
        with _sibling_path(path, _UNREADABLE).open("ab") as file:
            file.write(b"".join(line + b"\n" for line in unreadable))
    new = _sibling_path(path, "new")
    try:
        new.write_bytes(b"".join(line + b"\n" for line in kept))
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return len(unreadable)


def _sibling_path(path: Path, extension: str) -> Path:
    return path.with_name(f"{path.name}.{extension}")


def _event_of(line: bytes) -> tuple[str, int] | None:
    """Return event and step of a line; None if it is none of a run: damaged or truncated."""
    try:
        found = json.loads(line)
        event, step = found["event"], int(found.get("step", 0))
        return (event, step) if isinstance(event, str) else None
    except (ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _as_json(value: Any) -> Any:
    """Return a value that JSON has: NaN and infinities become their names."""
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
