"""The private directories that stand for those of the program."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from vramfit._inprogram._dryrun_checkpoints._copy import (
    CheckpointCopier,
    is_checkpoint,
    is_checkpoint_name,
)

_WHOLE = "whole"
"""Everything below a directory has its private counterpart."""

_STEPS = "steps"
"""Only what may be a checkpoint does, of a directory that has other files, too."""


class PrivateDirectories:
    """The private directories of one dry run, which its processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._marks = self._folder / ".copied"

    def resolve_for_writing(self, directory: Any) -> Any:
        """Return the private directory in which a checkpoint is saved, listed or deleted.

        Args:
            directory: What the program passes: a path, possibly of a remote file system. What is
                no absolute path is returned as it is, and Orbax rejects it.
        """
        if (real := self._real_path(directory)) is None:
            return directory
        private = self._private_path(real)
        with self._lock():
            if not self._is_private(real):
                self._copy(real, private)
            private.parent.mkdir(parents=True, exist_ok=True)
        return _convert_path(directory, private)

    def resolve_for_overwriting(self, directory: Any) -> Any:
        """Return the private directory to whose files Orbax writes without removing them first."""
        private = self.resolve_for_writing(directory)
        if private is not directory:
            for folder, _, names in os.walk(private):
                for path in (os.path.join(folder, name) for name in names):
                    if os.path.islink(path):
                        os.unlink(path)
        return private

    def resolve_for_reading(self, directory: Any) -> Any:
        """Return from where a checkpoint is read: from the private directory where there is one."""
        real = self._real_path(directory)
        if real is None or not self._is_private(real):
            return directory
        return _convert_path(directory, self._private_path(real))

    def _real_path(self, directory: Any) -> str | None:
        """Return what identifies a directory; None for what is private already, or no directory."""
        if not isinstance(directory, (str, os.PathLike)):
            return None
        path = os.fspath(directory)
        if _is_remote(path):
            return path.rstrip("/")
        if not isinstance(path, str) or not os.path.isabs(path):
            return None
        path = os.path.realpath(path)
        return None if Path(path).is_relative_to(self._folder) else path

    def _private_path(self, real: str) -> Path:
        if _is_remote(real):
            return self._folder / "remote" / real.replace("://", "/", 1)
        return self._folder / "local" / real.lstrip("/")

    def _is_private(self, real: str) -> bool:
        """Say whether a directory, or one that it is in, has its private counterpart."""
        if self._mark_file(real).exists():
            return True
        parent = os.path.dirname(real)
        while parent and parent != os.path.dirname(parent):
            with contextlib.suppress(FileNotFoundError):
                if self._mark_file(parent).read_text() == _WHOLE:
                    return True
                return is_checkpoint_name(real.removeprefix(parent).lstrip("/").split("/")[0])
            parent = os.path.dirname(parent)
        return False

    def _copy(self, real: str, private: Path) -> None:
        source = Path(real)
        kind = _WHOLE
        if not _is_remote(real) and os.path.lexists(real):
            if source.is_dir() and not is_checkpoint(source):
                kind = _STEPS
            CheckpointCopier(
                source,
                private,
                takes_all=kind == _WHOLE,
                is_excluded=lambda path: (
                    self._mark_file(path).exists() or self._folder.is_relative_to(path)
                ),
            ).copy()
        self._mark_file(real).write_text(kind)

    def _mark_file(self, real: str) -> Path:
        name = hashlib.sha1(real.encode("utf-8", "surrogateescape"), usedforsecurity=False)
        return self._marks / name.hexdigest()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self._marks.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _is_remote(path: Any) -> bool:
    return "://" in str(path)


def _convert_path(given: Any, private: Path) -> Any:
    """Return a path of the type that was given, `epath.Path` among them."""
    if isinstance(given, str):
        return str(private)
    return type(given)(str(private)) if isinstance(given, PurePath) else private
