"""Copies a directory of checkpoints without its data."""

from __future__ import annotations

import contextlib
import dataclasses
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


def is_checkpoint_name(name: str) -> bool:
    """Say whether an entry of a directory may be a checkpoint, or Orbax's metadata of several."""
    return name[-1:].isdigit() or name.startswith("_") or "checkpoint" in name or name == "metadata"


@dataclasses.dataclass(frozen=True)
class CheckpointCopier:
    """Adds to a directory what another one has: small files, and links to large ones.

    Attributes:
        source: The directory, or a file; without links in its path.
        target: Where it goes. What is there already stays.
        takes_all: Whether entries are copied that cannot be checkpoints.
        is_excluded: Says of a path below the source whether it is not copied.
    """

    source: Path
    target: Path
    takes_all: bool
    is_excluded: Callable[[str], bool]

    def copy(self) -> None:
        """Copy; files that vanish or cannot be read are left out."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._copy(str(self.source), self.target, ())

    def _copy(self, real: str, target: Path, parents: tuple[str, ...]) -> None:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = os.stat(real)
            if stat.S_ISDIR(status.st_mode):
                if real not in parents:  # as for a link to a directory that it is in
                    self._copy_directory(real, target, status, (*parents, real))
            elif stat.S_ISREG(status.st_mode) and not os.path.lexists(target):
                name = os.path.basename(real)
                if status.st_size <= _MAX_COPIED_BYTES or name.startswith(_METADATA):
                    shutil.copy2(real, target)
                else:
                    target.symlink_to(real)

    def _copy_directory(
        self, real: str, target: Path, status: os.stat_result, parents: tuple[str, ...]
    ) -> None:
        target.mkdir(exist_ok=True)
        takes_all = self.takes_all or real != str(self.source)
        with contextlib.suppress(PermissionError):
            for entry in os.scandir(real):
                if not (takes_all or is_checkpoint_name(entry.name)):
                    continue
                if self.is_excluded(entry.path):
                    continue
                copy = target / entry.name
                linked = self._find_linked_copy(entry.path) if entry.is_symlink() else None
                if linked is None:
                    self._copy(os.path.realpath(entry.path), copy, parents)
                elif not os.path.lexists(copy):
                    copy.symlink_to(os.path.relpath(linked, target))
        target.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _find_linked_copy(self, link: str) -> Path | None:
        """Return where the copy is of what a link names; None if there is none."""
        path = Path(os.path.realpath(link))
        if path == self.source or not path.is_relative_to(self.source):
            return None
        relative = path.relative_to(self.source)
        is_copied = self.takes_all or is_checkpoint_name(relative.parts[0])
        return self.target / relative if is_copied else None
