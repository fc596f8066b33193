"""Calls functions of vramfit as soon as a module is imported, before it is used."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _CallingLoader(importlib.machinery.SourceFileLoader):
    """Loads a module as usual, and then calls functions with it, the first time."""

    def __init__(self, name: str, path: str, functions: dict[str, list[str]]) -> None:
        super().__init__(name, path)
        self._functions = functions

    def exec_module(self, module: ModuleType) -> None:
        # Not before: who only asks whether the package is installed has the module found, too.
        functions = self._functions.pop(self.name, [])
        super().exec_module(module)
        if functions:
            runpy.run_path(os.path.join(_HERE, "package_import.py"))["make_importable"]()
        for function in functions:
            owner, name = function.rsplit(".", 1)
            getattr(importlib.import_module(owner), name)(module)


class ModuleFinder(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and calls functions with each when it was loaded."""

    def __init__(self, functions: dict[str, list[str]]) -> None:
        """Name the functions of each module, with the modules that they are in."""
        self._functions = functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual spec with a loader that calls, or None for other modules."""
        if fullname not in self._functions:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _CallingLoader(spec.loader.name, spec.loader.path, self._functions)
        return spec
