"""What vramfit imports while a program is traced leaves the keys of JAX's caches as they are.

A module of JAX that defines configuration makes every key longer, and a program whose key changes
while it is traced is traced once more: it draws other numbers, and its effects come twice.
"""

import ast
import contextlib
import importlib
import pathlib

import jax
from jax._src import config

PACKAGE = pathlib.Path(__file__).parents[2] / "python" / "vramfit"


def imported_modules():
    """Yield the modules of JAX that a source file of vramfit names in an import."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


key = config.trace_context()
names = sorted({name for name in imported_modules() if name.split(".")[0] == "jax"})
assert "jax._src.core" in names
lengthening = []
for name in names:
    # It may be a name inside of a module, or a module of another release.
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
    if config.trace_context() != key:
        key = config.trace_context()
        lengthening.append(name)
assert jax.jit(lambda x: x + 1)(1) is not None
assert lengthening == [], lengthening
