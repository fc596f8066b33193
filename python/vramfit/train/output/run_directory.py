"""The directory of a run: created only if it is used, locked, and cleared of an earlier run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from vramfit.errors import InvalidArgumentError, IoError
from vramfit.train.messages import rephrase
from vramfit.train.output.run_lock import LOCK_NAME, RunLock
from vramfit.train.process_group import ProcessGroup
from vramfit.train.run_record import CODE, RUN_RECORD

CHECKPOINTS = "checkpoints"
_RUN_FILES = (
    CHECKPOINTS,
    "damaged-checkpoints",
    "metrics.jsonl",
    "report.html",
    "tensorboard",
    RUN_RECORD,
    CODE,
)


class RunDirectory:
    """A directory that exists from :meth:`open` on.

    Args:
        path: Where it is, or will be.

    Attributes:
        is_used: Whether a run has started in it; if not, :meth:`close` removes what was created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_used = False
        self._created: list[Path] = []
        self._lock = RunLock(path)

    def open(
        self, processes: ProcessGroup, note: Callable[[str], None], *, start_over: bool
    ) -> None:
        """Create and lock the directory.

        Args:
            processes: The processes of the run; the first one locks it.
            note: Called with a sentence for the user.
            start_over: Whether to move the files of an earlier run out of the way.

        Raises:
            InvalidArgumentError: It is a file, or in one.
            DirectoryInUseError: Another run has locked it.
            IoError: The system does not permit it.
        """
        self._create()
        no_lock_reason = processes.run_on_primary(self._lock.acquire)
        if no_lock_reason is not None:
            note(f"`{self.path}` is not protected against a second run: {no_lock_reason}")
        if start_over:
            moved = processes.run_on_primary(self._move_previous)
            if moved is not None:
                note(moved)

    def close(self) -> None:
        """Unlock it, after removing what was created for a run that never started."""
        if self._lock.is_held and not self.is_used:
            self._remove_created()
        self._lock.release()

    def _create(self) -> None:
        existing = self.path
        missing = []
        # Not by `Path.exists`, which raises an error for a name that is too long.
        while not os.path.exists(existing) and existing != existing.parent:
            missing.append(existing)
            existing = existing.parent
        if not existing.is_dir():
            raise InvalidArgumentError(
                f"the directory of the run is `{self.path}`, but `{existing}` is a file",
                hint="choose a directory for checkpoints and metrics with "
                + rephrase(program="`directory`", command="`training.directory`"),
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IoError(
                f"cannot create the directory `{self.path}`",
                cause=error.strerror or str(error),
                hint="choose another one with "
                + rephrase(program="`directory`", command="`training.directory`"),
            ) from error
        # Orbax creates an empty directory of checkpoints when it looks for some.
        own = [self.path / LOCK_NAME, self.path / CHECKPOINTS]
        self._created = [path for path in own if not path.exists()] + missing

    def _move_previous(self) -> str | None:
        """Move the files of an earlier run to `previous-1` (or 2, ...), and return a note on it."""
        found = [self.path / name for name in _RUN_FILES if _has_content(self.path / name)]
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
                hint="fix the permissions of the directory, or choose another one",
            ) from error
        names = ", ".join(f"`{path.name}`" for path in found)
        return f"moved the earlier run in `{self.path}` ({names}) to `{target}`"

    def _remove_created(self) -> None:
        for path in self._created:
            with contextlib.suppress(OSError):  # not there, or no longer empty
                if path.name == LOCK_NAME:
                    path.unlink()
                else:
                    path.rmdir()


def _has_content(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()
