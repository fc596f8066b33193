"""Copies a directory of checkpoints without its data."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

_MAX_COPIED_BYTES = 64 << 10
"""Smaller files are copied, and metadata is, because they may be rewritten in place. Larger ones
are data, which is only ever replaced, and are linked to."""

_METADATA = ("_", "manifest")
"""How the names of files begin that are copied whatever their size."""

_CHECKPOINT_FILES = (
    "_CHECKPOINT_METADATA",
    "_METADATA",
    "_sharding",
    "manifest.ocdbt",
    "commit_success.txt",
    "checkpoint",
    ".zarray",
    "zarr.json",
)
"""Files of which a directory that is a checkpoint has at least one."""


def is_checkpoint(directory: Path) -> bool:
    """Say whether a directory is itself a checkpoint, and not one that has checkpoints in it."""
    return any((directory / name).exists() for name in _CHECKPOINT_FILES)


def is_step(name: str) -> bool:
    """Say whether an entry of a directory may be a checkpoint, or Orbax's metadata of several."""
    return name[-1:].isdigit() or name.startswith("_") or "checkpoint" in name or name == "metadata"


def copy_entries(
    source: Path, target: Path, *, takes_all: bool, is_left_out: Callable[[str], bool]
) -> None:
    """Add to a directory what another one has: small files, and links to large ones.

    Args:
        source: The directory, or a file.
        target: Where it goes. What is there already stays.
        takes_all: Whether entries are copied that cannot be checkpoints.
        is_left_out: Says of a real path whether it is not copied.
    """
    _Copy(source, target, takes_all=takes_all, is_left_out=is_left_out).run()


class _Copy:
    def __init__(
        self, source: Path, target: Path, *, takes_all: bool, is_left_out: Callable[[str], bool]
    ) -> None:
        self._source = source
        self._target = target
        self._takes_all = takes_all
        self._is_left_out = is_left_out
        self._open: list[str] = []

    def run(self) -> None:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._copy(str(self._source), self._target)

    def _copy(self, real: str, target: Path) -> None:
        """Copy what a real path names; files that vanish or cannot be read are left out."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = os.stat(real)
            if stat.S_ISDIR(status.st_mode):
                self._copy_directory(real, target, status)
            elif stat.S_ISREG(status.st_mode) and not os.path.lexists(target):
                name = os.path.basename(real)
                if status.st_size <= _MAX_COPIED_BYTES or name.startswith(_METADATA):
                    shutil.copy2(real, target)
                else:
                    target.symlink_to(real)

    def _copy_directory(self, real: str, target: Path, status: os.stat_result) -> None:
        if real in self._open:  # a link to a directory that it is in
            return
        target.mkdir(exist_ok=True)
        self._open.append(real)
        with contextlib.suppress(PermissionError):
            for entry in os.scandir(real):
                path = os.path.join(real, entry.name)
                is_top = real == str(self._source)
                if is_top and not (self._takes_all or is_step(entry.name)):
                    continue
                if self._is_left_out(path):
                    continue
                counterpart = self._counterpart(path) if entry.is_symlink() else None
                if counterpart is None:
                    self._copy(os.path.realpath(path), target / entry.name)
                elif not os.path.lexists(target / entry.name):
                    (target / entry.name).symlink_to(os.path.relpath(counterpart, target))
        self._open.pop()
        target.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _counterpart(self, link: str) -> Path | None:
        """Return where the copy of what a link names is; None if that is elsewhere."""
        path = Path(os.path.realpath(link))
        if path == self._source or not path.is_relative_to(self._source):
            return None
        relative = path.relative_to(self._source)
        return self._target / relative if self._takes_all or is_step(relative.parts[0]) else None
