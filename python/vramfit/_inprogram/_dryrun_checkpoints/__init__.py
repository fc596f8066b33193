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

from vramfit._inprogram._dryrun_checkpoints._directories import PrivateDirectories
from vramfit._inprogram._jax_shim.run_config import run_config

_PARAMETERS = ("directory", "path", "ckpt_dir", "checkpoint_dir", "base_path", "checkpoint_path")
"""What functions that take the directory of a checkpoint call it."""

_WRITING = ("save", "delete", "finalize", "checkpoints_iterator", "wait_for_new_checkpoint")
"""How the names of functions begin that change a directory."""


def install_in_orbax(orbax: ModuleType) -> None:
    """Give private directories to the classes and functions of `orbax.checkpoint`."""
    directories = _directories()
    _replace(orbax.CheckpointManager, "__init__", directories.resolve_for_writing)
    _replace(orbax.CheckpointManager, "restore", directories.resolve_for_reading)
    for name, owner in list(vars(orbax).items()):
        if not inspect.isclass(owner) or not name.endswith(("Checkpointer", "CheckpointHandler")):
            continue
        for method in {"save", "restore", "metadata", "finalize"} & vars(owner).keys():
            # A handler removes nothing before it saves, as a checkpointer does.
            overwrites = method == "save" and name.endswith("CheckpointHandler")
            _replace(
                owner,
                method,
                directories.resolve_for_overwriting if overwrites else _resolve_for(method),
            )
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

    def resolve(directory: Any) -> Any:
        # Its own format may have a relative directory; Orbax rejects one.
        if isinstance(directory, (str, os.PathLike)) and not _uses_orbax():
            directory = os.path.abspath(directory)
        return directories.resolve_for_writing(directory)

    for name, function in list(vars(checkpoints).items()):
        if inspect.isfunction(function) and "ckpt_dir" in inspect.signature(function).parameters:
            _replace(checkpoints, name, resolve)


@functools.cache
def _directories() -> PrivateDirectories:
    return PrivateDirectories(Path(run_config()["checkpoints"]))


def _uses_orbax() -> bool:
    import flax

    return bool(flax.config.flax_use_orbax_checkpointing)


def _resolve_for(function: str) -> Callable[[Any], Any]:
    """Return what finds the private directory for a function of this name."""
    directories = _directories()
    is_writing = function.startswith(_WRITING)
    return directories.resolve_for_writing if is_writing else directories.resolve_for_reading


def _replace_functions(module: ModuleType) -> None:
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            _replace(module, name, _resolve_for(name))


def _replace(owner: Any, name: str, resolve: Callable[[Any], Any]) -> None:
    """Have a function called with the directories that those it is given resolve to."""
    function = getattr(owner, name)
    parameters = list(inspect.signature(function).parameters)
    positions = [index for index, known in enumerate(parameters) if known in _PARAMETERS]
    if not positions:
        if parameters != ["args", "kwargs"]:
            return
        positions = [0]  # deprecated names, which pass on whatever they are given

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        resolved = [
            resolve(argument) if index in positions else argument
            for index, argument in enumerate(arguments)
        ]
        named |= {key: resolve(named[key]) for key in _PARAMETERS if key in named}
        return function(*resolved, **named)

    setattr(owner, name, call)
    # It is pickled by the name that it has in the module that defines it.
    module, defined_name = sys.modules.get(function.__module__), call.__qualname__
    if module is not None and getattr(module, defined_name, None) is function:
        setattr(module, defined_name, call)
