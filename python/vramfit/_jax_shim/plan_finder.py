"""Applies a plan as soon as JAX is imported, before anything else can use it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _PlanLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        runpy.run_path(os.path.join(_HERE, "package_import.py"))["make_importable"]()
        from vramfit._plan import _apply

        _apply.install(module)


class PlanFinder(importlib.abc.MetaPathFinder):
    """Finds `jax` as usual, and applies the plan when it was loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual spec with a loader that applies the plan, or None for other modules."""
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _PlanLoader(spec.loader.name, spec.loader.path)
        return spec
