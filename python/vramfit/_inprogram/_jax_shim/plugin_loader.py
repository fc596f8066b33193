"""Puts vramfit's plugin in the place of JAX's CUDA plugin, inside the user's process, or before it.

In a dry run the GPU is a virtual one. In any other process, whatever is set, it is the real one:
nobody is to compute on a GPU that is not there because of a variable that was lost on the way.

JAX finds plugins as modules of the namespace package ``jax_plugins``; the first one on the path
wins. This file runs in the user's own interpreter, which need not have vramfit installed: the
package is loaded from where this file lies.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


def initializer_of(name: str) -> Callable[[], None]:
    """Return the ``initialize`` that JAX calls for the plugin module `name`."""

    def initialize() -> None:
        real = _load_real(name)
        if real is None:
            return  # the wheel is not installed; JAX tries the next module
        if os.environ.get("VRAMFIT_RUN_CONFIG"):
            _module("_plugin").install(real)
        else:
            _initialize_real(real)

    return initialize


def _initialize_real(real: ModuleType) -> None:
    """Start the real plugin, watched if that is asked for and possible."""
    try:
        install = _module("_publisher").install
    except Exception:  # a Python that vramfit does not know; the program is not to suffer from it
        real.initialize()
    else:
        install(real)


def _load_real(name: str) -> ModuleType | None:
    """Load the real plugin module from after the shim on the path, or None if there is none."""
    for directory in sys.path:
        folder = os.path.join(directory or os.curdir, "jax_plugins")
        file = os.path.join(folder, name, "__init__.py")
        if os.path.isfile(file) and not os.path.samefile(folder, os.path.join(HERE, "jax_plugins")):
            return _load(f"_vramfit_real_{name}", file)
    return None


def _module(name: str) -> ModuleType:
    """Import a module for the inside of programs, of the package this file belongs to."""
    if "vramfit" not in sys.modules:
        _load("vramfit", os.path.join(PACKAGE, "__init__.py"))
    return importlib.import_module(f"vramfit._inprogram.{name}")


def _load(name: str, file: str) -> ModuleType:
    """Load a package from its ``__init__.py`` under a name of our choice."""
    folder = os.path.dirname(file)
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
