"""Lets `vramfit` be imported in a Python that lacks it: the command line that started it has it."""

from __future__ import annotations

import importlib.util
import os
import sys


def make_importable() -> None:
    """Make `import vramfit` work, with the package this file belongs to where there is no other."""
    if importlib.util.find_spec("vramfit") is not None:
        return
    package = os.path.abspath(__file__)
    for _ in range(3):
        package = os.path.dirname(package)
    spec = importlib.util.spec_from_file_location(
        "vramfit", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vramfit"] = module
    spec.loader.exec_module(module)
