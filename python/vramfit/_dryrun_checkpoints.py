"""Keeps the checkpoints that a program saves during a dry run apart from its real ones.

On a virtual GPU most values are placeholders. The next run would resume from a checkpoint of them,
and saving it may delete an older, real one (`max_to_keep`). So Orbax, and Flax's older functions,
are given a private directory for each directory of the program: it begins as a view of that one,
and is removed after the dry run. Each dry run of `vramfit plan`, and each host, begins alike.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_MAX_COPIED_BYTES = 1 << 20
"""Smaller files are copied, because metadata may be rewritten in place; larger ones, which are data
that is only ever replaced, are linked to."""

_PARAMETERS = ("directory", "path", "ckpt_dir")
"""What functions that take the directory of a checkpoint call it."""


class PrivateDirectories:
    """The private directories of one dry run, which its processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complete = folder / ".complete"

    def for_writing(self, directory: Any) -> Any:
        """Return the private directory in which a checkpoint is saved, listed or deleted.

        Args:
            directory: What the program passes: a path, possibly of a remote file system. Whatever
                Orbax rejects, such as a relative path, is returned as it is.
        """
        private = self._private_path(directory)
        if private is None:
            return directory
        with self._lock():
            if not _is_remote(directory) and not self._is_copied(Path(directory)):
                _copy_tree(Path(directory), private)
                self._mark_copied(Path(directory))
            private.parent.mkdir(parents=True, exist_ok=True)
        return _like(directory, private)

    def for_reading(self, directory: Any) -> Any:
        """Return from where a checkpoint is restored: the private directory where it has it."""
        private = self._private_path(directory)
        if private is None:
            return directory
        is_private = private.exists() or (
            not _is_remote(directory) and self._is_copied(Path(directory))
        )
        return _like(directory, private) if is_private else directory

    def _private_path(self, directory: Any) -> Path | None:
        if not isinstance(directory, (str, os.PathLike)):
            return None
        path = os.fspath(directory)
        if _is_remote(path):
            return self._folder / "remote" / path.replace("://", "/", 1)
        if not os.path.isabs(path) or self._folder in Path(path).parents:
            return None
        return self._folder / "local" / os.path.normpath(path).lstrip("/")

    def _is_copied(self, directory: Path) -> bool:
        return any(self._mark(each).exists() for each in (directory, *directory.parents))

    def _mark_copied(self, directory: Path) -> None:
        if directory.exists():
            self._mark(directory).touch()

    def _mark(self, directory: Path) -> Path:
        name = hashlib.sha1(os.path.normpath(directory).encode(), usedforsecurity=False)
        return self._complete / name.hexdigest()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self._complete.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def install_in_orbax(orbax: ModuleType) -> None:
    """Give private directories to the classes of `orbax.checkpoint`."""
    directories = _directories()
    _replace(orbax.CheckpointManager, "__init__", directories.for_writing)
    _replace(orbax.CheckpointManager, "restore", directories.for_reading)
    for name in ("Checkpointer", "AsyncCheckpointer"):
        _replace(getattr(orbax, name), "save", directories.for_writing)
    for name in ("restore", "metadata"):
        _replace(orbax.Checkpointer, name, directories.for_reading)


def install_in_orbax_v1(v1: ModuleType) -> None:
    """Give private directories to the functions of `orbax.checkpoint.experimental.v1`."""
    directories = _directories()
    for name, function in list(vars(v1).items()):
        if inspect.isfunction(function):
            is_writing = name.startswith(("save", "delete"))
            _replace(v1, name, directories.for_writing if is_writing else directories.for_reading)


def install_in_flax(checkpoints: ModuleType) -> None:
    """Give private directories to the functions of `flax.training.checkpoints`."""
    for name in (
        "save_checkpoint",
        "save_checkpoint_multiprocess",
        "latest_checkpoint",
        "available_steps",
        "restore_checkpoint",
    ):
        if hasattr(checkpoints, name):
            _replace(checkpoints, name, _directories().for_writing)


@functools.cache
def _directories() -> PrivateDirectories:
    return PrivateDirectories(Path(os.environ["VRAMFIT_CHECKPOINTS"]))


def _replace(owner: Any, name: str, choose: Callable[[Any], Any]) -> None:
    """Have a function called with another directory, chosen by the one it is given."""
    function = getattr(owner, name)
    parameters = list(inspect.signature(function).parameters)
    found = [parameters.index(known) for known in _PARAMETERS if known in parameters]
    # Deprecated names pass on whatever they are given.
    position = found[0] if found else 0

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if len(arguments) > position:
            changed = list(arguments)
            changed[position] = choose(changed[position])
            arguments = tuple(changed)
        named |= {key: choose(named[key]) for key in _PARAMETERS if key in named}
        return function(*arguments, **named)

    setattr(owner, name, call)


def _is_remote(path: Any) -> bool:
    return "://" in os.fspath(path)


def _like(given: Any, private: Path) -> Any:
    return str(private) if isinstance(given, str) else private


def _copy_tree(source: Path, target: Path) -> None:
    """Add to a directory what is only in another one, without copying data."""
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        copy = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            _copy_tree(Path(entry.path), copy)
        elif os.path.lexists(copy):
            continue
        elif entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))
        elif entry.stat().st_size <= _MAX_COPIED_BYTES:
            shutil.copy2(entry.path, copy)
        else:
            copy.symlink_to(entry.path)
    shutil.copystat(source, target)
