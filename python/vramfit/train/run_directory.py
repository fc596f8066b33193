"""The directory of a run: made only where it is used, and what an earlier run has left in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vramfit._errors import InvalidArgumentError, IoError
from vramfit.train.run_lock import NAME as LOCK
from vramfit.train.wording import worded

CHECKPOINTS = "checkpoints"
_OF_A_RUN = (CHECKPOINTS, "damaged-checkpoints", "metrics.jsonl", "report.html", "tensorboard")


class RunDirectory:
    """A directory that is there from :meth:`make` on.

    Args:
        path: Where it is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []

    def make(self) -> None:
        """Make the directory, and those that it is in.

        Raises:
            InvalidArgumentError: It is a file, or in one.
            IoError: The system refuses.
        """
        there = self.path
        missing = []
        # Not by `Path.exists`, which raises an error for a name that is too long.
        while not os.path.exists(there) and there != there.parent:
            missing.append(there)
            there = there.parent
        if not there.is_dir():
            raise InvalidArgumentError(
                f"the directory of the run is `{self.path}`, and `{there}` is a file",
                hint="name a directory for checkpoints and metrics as "
                + worded(program="`directory`", command="`training.directory`"),
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IoError(
                f"cannot make the directory `{self.path}`",
                cause=error.strerror or str(error),
                hint="name another one as "
                + worded(program="`directory`", command="`training.directory`"),
            ) from error
        # An empty directory of checkpoints is made by whoever looks for some.
        ours = [self.path / LOCK, self.path / CHECKPOINTS]
        self._made = [path for path in ours if not path.exists()] + missing

    def move_previous(self) -> str | None:
        """Move what an earlier run has left to `previous-1` (or 2, ...), and say so in a sentence.

        Raises:
            IoError: The system refuses.
        """
        found = [self.path / name for name in _OF_A_RUN if _has_content(self.path / name)]
        if not found:
            return None
        number = 1
        while (target := self.path / f"previous-{number}").exists():
            number += 1
        try:
            target.mkdir()
            for path in found:
                path.rename(target / path.name)
        except OSError as error:
            raise IoError(
                f"cannot move the earlier run in `{self.path}` to `{target.name}`",
                cause=error.strerror or str(error),
                hint="restore access to the directory, or name another one",
            ) from error
        names = ", ".join(f"`{path.name}`" for path in found)
        return f"the earlier run in `{self.path}` ({names}) is kept in `{target}`"

    def discard(self) -> None:
        """Remove what :meth:`make` brought about, as far as it is empty; the lock is held."""
        for path in self._made:
            with contextlib.suppress(OSError):  # not there, or no longer empty
                if path.name == LOCK:
                    path.unlink()
                else:
                    path.rmdir()


def _has_content(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()
