"""Finds the file and line that imported JAX first, as far as the interpreter still knows."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from vramfit._inprogram._frames import file_name, is_ours

# The user's line that called a function of this package which imported JAX first, and the function.
_own_import: tuple[str, str] | None = None


def import_jax() -> Any:
    """Import JAX for a function of this package, and record the caller if it is the first import.

    Raises:
        ImportError: If it is not installed.
    """
    global _own_import
    is_first = "jax" not in sys.modules
    import jax

    if is_first:
        _own_import = _caller()
    return jax


def _caller() -> tuple[str, str] | None:
    """Return the calling line outside of this package, and the function that it calls."""
    called = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            return f"{file_name(code.co_filename)}:{frame.f_lineno}", called
        called = code.co_qualname.partition(".")[0]
        frame = frame.f_back
    return None


def first_import_site() -> str:
    """Describe what imported JAX, as a clause: ``JAX was imported by train.py:3, `import flax```.

    Python keeps no record of it. But one of the files on the stack has an import above its current
    line that loads JAX, or a package that does; and a notebook keeps its cells.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return "JAX was not imported"
    if _own_import is not None:
        place, called = _own_import
        return f"JAX was imported by {place}, which calls `{called}` of vramfit"
    for name, lines, at in _sources():
        found = _first_import(lines, at, jax)
        if found is not None:
            line, statement = found
            return f"JAX was imported by {name}:{line}, `{statement}`"
    return "JAX was imported by code whose lines cannot be read, or in an earlier input"


def _sources() -> Iterator[tuple[str, str, int]]:
    """Yield name, text and the line that is being executed, in the order of execution."""
    cells = getattr(sys.modules.get("__main__"), "In", None)
    if isinstance(cells, list):
        # The last cell is the one that runs now, and its lines are those of a frame, too.
        for number, cell in enumerate(cells):
            if number and isinstance(cell, str):
                yield f"cell [{number}]", cell, sys.maxsize
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        if is_ours(file) or file.startswith("<frozen"):
            continue
        text = "".join(linecache.getlines(file, frame.f_globals))
        if text:
            yield file_name(file), text, frame.f_lineno


def _first_import(text: str, before: int, jax: ModuleType) -> tuple[int, str] | None:
    """Return the first import above line `before` that loads JAX: its line and text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported = [node.module]
        else:
            continue
        if node.lineno < before and any(_uses_jax(name, jax) for name in imported):
            found.append((node.lineno, ast.unparse(node)))
    return min(found) if found else None


def _uses_jax(name: str, jax: ModuleType) -> bool:
    """Return whether a module, or one of its package, uses JAX."""
    package = name.partition(".")[0]
    if package in ("jax", "jaxlib"):
        return package == "jax"
    if package == "vramfit" and not name.startswith("vramfit.train"):
        return False  # its functions import JAX on demand, and record it
    for other, module in list(sys.modules.items()):
        if other.partition(".")[0] == package and module is not None:
            values = list(vars(module).values())
            if any(value is jax or _belongs_to_jax(value) for value in values):
                return True
    return False


def _belongs_to_jax(value: object) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] == "jax"
