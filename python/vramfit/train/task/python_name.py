"""Classes and functions of the user's that a configuration names: `file.py:name`, `module:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from vramfit.errors import InvalidArgumentError, first_line


def is_python_name(text: str) -> bool:
    """Return whether a value names something in Python, and is none of vramfit's own words."""
    return ":" in text


def load_object(text: str, key: str) -> Any:
    """Return what a value of a configuration names.

    Args:
        text: `file.py:name` or `module:name`.
        key: The key with that value, for messages.

    Raises:
        InvalidArgumentError: There is no such file or name, or the code of the file fails.
    """
    location, name = text.rsplit(":", 1)
    module = _load_file(Path(location), key) if location.endswith(".py") else _import(location, key)
    try:
        return getattr(module, name)
    except AttributeError:
        others = [word for word, value in vars(module).items() if _is_own(value, module)]
        raise InvalidArgumentError(
            f"`{key}` is `{text}`, but `{location}` has no `{name}`",
            hint=f"it has {', '.join(f'`{word}`' for word in others)}" if others else None,
        ) from None


def call_with(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    offered: Mapping[str, Any],
    name: str,
) -> Any:
    """Call a function with arguments, and with those offered that it has parameters for.

    Args:
        function: The class or function.
        arguments: Keyword arguments of the configuration, which take precedence.
        offered: More values, passed where the function has a parameter of that name.
        name: What the function is called in messages.

    Raises:
        InvalidArgumentError: It has no such parameter, or one without a value.
    """
    parameters = _parameters(function)
    named = {
        word: one
        for word, one in parameters.items()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if unknown := [word for word in arguments if word not in named and not takes_any]:
        raise InvalidArgumentError(
            f"`{name}` has no parameter `{unknown[0]}`, which `model.arguments` sets",
            hint=f"its parameters are {', '.join(f'`{word}`' for word in named)}"
            if named
            else "it has no parameters: remove `model.arguments`",
        )
    values = {word: value for word, value in offered.items() if word in named} | dict(arguments)
    missing = [
        word for word, one in named.items() if one.default is one.empty and word not in values
    ]
    if missing:
        raise InvalidArgumentError(
            f"`{name}` needs a value for `{missing[0]}`",
            hint=f"set `model.arguments = {{ {missing[0]} = … }}`; passed by themselves are "
            + ", ".join(f"`{word}`" for word in offered),
        )
    positional = [values.pop(w) for w, one in named.items() if one.kind is one.POSITIONAL_ONLY]
    return function(*positional, **values)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, or of the constructor of a class."""
    parameters = inspect.signature(function).parameters
    kinds = {one.kind for one in parameters.values()}
    if inspect.isclass(function) and not kinds - {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }:
        # What the metaclass of `nnx.Module` takes, whatever its `__init__` does.
        own = list(inspect.signature(function.__init__).parameters.items())
        return dict(own[1:])
    return parameters


_loaded: dict[str, ModuleType] = {}
"""The files that were loaded, by path."""


def _load_file(path: Path, key: str) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        raise InvalidArgumentError(
            f"`{key}` names the file `{path}`, which does not exist",
            hint="a path in the configuration file is relative to that file",
        )
    if str(path) in _loaded:
        return _loaded[str(path)]
    name = re.sub(r"\W", "_", path.stem)
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        name = f"_vramfit_user_{name}_{len(_loaded)}"
    # What stands beside it can be imported, but does not hide packages that are installed.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure_in_code(f"`{path}` cannot be loaded", error, path.parent) from error
    _loaded[str(path)] = module
    return module


def failure_in_code(
    message: str, error: BaseException, folder: Path | None = None
) -> InvalidArgumentError:
    """Return the error for code of the user's that has raised one.

    Args:
        message: What has failed.
        error: What was raised.
        folder: Where the code is; None for the folders of all files that were loaded.
    """
    folders = [Path(path).parent for path in _loaded] if folder is None else [folder]
    where = None
    if isinstance(error, SyntaxError) and error.filename is not None:
        where = f"{Path(error.filename).name}:{error.lineno}"
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if any(file.is_relative_to(one) for one in folders):
            where = f"{file.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    text = first_line(error)
    cause = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return InvalidArgumentError(message, cause=f"{cause} ({where})" if where else cause)


def _import(location: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(location)
    except ImportError as error:
        raise InvalidArgumentError(
            f"`{key}` names the module `{location}`, which cannot be imported",
            cause=str(error),
            hint="install it, set `PYTHONPATH`, or name a file: `my_model.py:Net`",
        ) from error


def _is_own(value: Any, module: ModuleType) -> bool:
    """Return whether a module defines a class or function, and has not imported it."""
    return callable(value) and getattr(value, "__module__", None) == module.__name__
