"""Keeps the checkpoints that a program saves during a dry run apart from its real ones.

On a virtual GPU most values are placeholders. The next run would resume from a checkpoint of them,
and saving it may delete an older, real one (`max_to_keep`). So Orbax, and Flax's older functions,
are given a private directory for each directory of the program: it begins as a view of that one,
and is removed after the dry run. Each dry run of `vramfit plan`, and each host, begins alike.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from vramfit._dryrun_checkpoints._directories import PrivateDirectories

_PARAMETERS = ("directory", "path", "ckpt_dir", "checkpoint_dir", "base_path", "checkpoint_path")
"""What functions that take the directory of a checkpoint call it."""

_WRITING = ("save", "delete", "finalize", "checkpoints_iterator", "wait_for_new_checkpoint")
"""How the names of functions begin that change a directory."""


def install_in_orbax(orbax: ModuleType) -> None:
    """Give private directories to the classes and functions of `orbax.checkpoint`."""
    directories = _directories()
    _replace(orbax.CheckpointManager, "__init__", directories.for_writing)
    _replace(orbax.CheckpointManager, "restore", directories.for_reading)
    for name, owner in list(vars(orbax).items()):
        if not inspect.isclass(owner):
            continue
        if name.endswith("Checkpointer"):
            _replace_methods(owner, save=directories.for_writing)
        elif name.endswith("CheckpointHandler"):
            _replace_methods(owner, save=directories.for_overwriting)
    for module in (orbax.utils, orbax.checkpoint_utils, getattr(orbax.path, "step", None)):
        if module is not None:
            _replace_functions(module)


def install_in_orbax_v1(v1: ModuleType) -> None:
    """Give private directories to the functions of `orbax.checkpoint.experimental.v1`."""
    for module in (v1, getattr(v1, "partial", None)):
        if module is not None:
            _replace_functions(module)


def install_in_flax(checkpoints: ModuleType) -> None:
    """Give private directories to the functions of `flax.training.checkpoints`."""
    directories = _directories()

    def choose(directory: Any) -> Any:
        # Its own format may have a relative directory; Orbax rejects one.
        if isinstance(directory, (str, os.PathLike)) and not _uses_orbax():
            directory = os.path.abspath(directory)
        return directories.for_writing(directory)

    for name, function in list(vars(checkpoints).items()):
        if inspect.isfunction(function) and "ckpt_dir" in inspect.signature(function).parameters:
            _replace(checkpoints, name, choose)


@functools.cache
def _directories() -> PrivateDirectories:
    return PrivateDirectories(Path(os.environ["VRAMFIT_CHECKPOINTS"]))


def _uses_orbax() -> bool:
    import flax

    return bool(flax.config.flax_use_orbax_checkpointing)


def _replace_methods(owner: type, save: Callable[[Any], Any]) -> None:
    for name in ("save", "restore", "metadata", "finalize"):
        if name in vars(owner):
            is_writing = name.startswith(_WRITING)
            _replace(owner, name, save if is_writing else _directories().for_reading)


def _replace_functions(module: ModuleType) -> None:
    directories = _directories()
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            is_writing = name.startswith(_WRITING)
            _replace(
                module, name, directories.for_writing if is_writing else directories.for_reading
            )


def _replace(owner: Any, name: str, choose: Callable[[Any], Any]) -> None:
    """Have a function called with other directories, chosen by those that it is given."""
    function = getattr(owner, name)
    parameters = list(inspect.signature(function).parameters)
    positions = [index for index, known in enumerate(parameters) if known in _PARAMETERS]
    if not positions:
        if parameters != ["args", "kwargs"]:
            return
        positions = [0]  # deprecated names, which pass on whatever they are given

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        chosen = [
            choose(argument) if index in positions else argument
            for index, argument in enumerate(arguments)
        ]
        named |= {key: choose(named[key]) for key in _PARAMETERS if key in named}
        return function(*chosen, **named)

    setattr(owner, name, call)
    # It is pickled by the name that it has in the module that defines it.
    module, defined_name = sys.modules.get(function.__module__), call.__qualname__
    if module is not None and getattr(module, defined_name, None) is function:
        setattr(module, defined_name, call)
