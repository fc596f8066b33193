"""Syntax trees of the user's source files, and the functions and classes that they define."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType
from typing import Any

from vramfit._inprogram._frames import is_library

# Files of the user's that are searched for a function, at most.
_MAX_FILES = 256

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.Module)


class Source:
    """A file's syntax tree, with what leads from a position and from a node upwards."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        # By name: functions and classes, calls, reads of variables and of attributes (`.name`).
        self.definitions: dict[str, list[ast.AST]] = defaultdict(list)
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.loads: dict[str, list[ast.AST]] = defaultdict(list)
        # What a variable or an attribute (`.name`) is assigned.
        self.assigned: dict[str, list[ast.expr]] = defaultdict(list)
        # Modules, by the variable that they are imported as; and what is imported from which.
        self.modules: dict[str, str] = {}
        self.imported_from: dict[str, str] = {}
        self._at: dict[tuple[int | None, ...], ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            self._index(node)

    def _index(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self._at[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definitions[node.name].append(node)
            case ast.Call():
                self.calls[called_name(node)].append(node)
            case ast.Name() | ast.Attribute() if isinstance(node.ctx, ast.Load):
                self.loads[variable_name(node)].append(node)
            case ast.Assign():
                for target in node.targets:
                    self.assigned[variable_name(target)].append(node.value)
            case ast.AnnAssign(value=ast.expr() as value):
                self.assigned[variable_name(node.target)].append(value)
            case ast.withitem(optional_vars=ast.expr() as target):
                self.assigned[variable_name(target)].append(node.context_expr)
            case ast.Import():
                for each in node.names:
                    name = each.asname or each.name.partition(".")[0]
                    self.modules[name] = each.name if each.asname else name
            case ast.ImportFrom(module=str() as module, level=0):
                for each in node.names:
                    self.imported_from[each.asname or each.name] = module

    def at(self, position: tuple[int | None, ...]) -> ast.AST | None:
        """Return the expression that lies exactly there."""
        return self._at.get(position)

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the function that a node is in, or the module."""
        while not isinstance(node, SCOPES):
            node = self.parents[node]
        return node

    def binding_scope(self, name: ast.Name) -> ast.AST:
        """Return the function that a variable belongs to, or the module."""
        scope = self.scope_of(name)
        while not isinstance(scope, ast.Module) and name.id not in _bound_names(scope):
            scope = self.scope_of(self.parents[scope])
        return scope

    def is_method(self, function: ast.AST) -> bool:
        """Return whether a function is defined in a class."""
        return isinstance(self.parents.get(function), ast.ClassDef)

    def functions_at(self, code: CodeType) -> list[ast.AST]:
        """Return the functions that begin where a code object does: several lambdas of a line."""
        kinds = (ast.Lambda,) if code.co_name == "<lambda>" else FUNCTIONS
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return [node for node in nodes if first_line(node) == code.co_firstlineno]


def called_name(node: ast.AST) -> str:
    """Return the last name of the function that a node calls; empty if it calls none by a name."""
    return variable_name(node.func).lstrip(".") if isinstance(node, ast.Call) else ""


def variable_name(node: ast.AST) -> str:
    """Return the name of a variable, or of an attribute behind a dot; empty for all else."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def source_of(code: CodeType, module: dict[str, Any]) -> Source | None:
    """Return the source of the file that a code object comes from.

    Args:
        code: The code object.
        module: The global variables of its module, by which files in archives are found.
    """
    return _parse("".join(linecache.getlines(code.co_filename, module)))


def parameters(function: Any) -> list[str]:
    """Return the names of a function's parameters that a position reaches, in their order."""
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]


def all_parameters(function: Any) -> list[str]:
    """Return the names of all of a function's parameters."""
    rest = (each for each in (function.args.vararg, function.args.kwarg) if each is not None)
    return [*parameters(function), *(each.arg for each in (*function.args.kwonlyargs, *rest))]


def first_line(function: Any) -> int:
    """Return the line that Python takes for a function's first: that of its first decorator."""
    decorators = getattr(function, "decorator_list", [])
    return int(min(each.lineno for each in [function, *decorators]))


def find_definitions(name: str, first: Source) -> Iterator[tuple[ast.AST, Source]]:
    """Yield the functions and classes of that name in the user's modules; in `first`, if any are.

    Args:
        name: Of the function or class.
        first: The file that uses the name.
    """
    here = first.definitions.get(name, [])
    yield from ((each, first) for each in here)
    if here:
        return
    words = (f"def {name}(", f"class {name}(", f"class {name}:")
    for text in _user_texts():
        if any(word in text for word in words) and (source := _parse(text)) is not None:
            yield from ((each, source) for each in source.definitions.get(name, []))


def is_library_module(name: str) -> bool:
    """Return whether a module is of an installed package, or of Python."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return module is not None and (file is None or is_library(file))


def is_module(node: ast.AST, source: Source) -> bool:
    """Return whether an expression is a module, or something in one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and (
        node.id in source.modules or node.id in source.imported_from
    )


def is_python_module(name: str) -> bool:
    """Return whether a module is one of Python's own."""
    return name.partition(".")[0] in sys.stdlib_module_names


def _user_texts() -> Iterator[str]:
    found = 0
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_library(file):
            continue
        found += 1
        if found > _MAX_FILES:
            return
        yield _text_of(file)


@functools.lru_cache(maxsize=_MAX_FILES)
def _text_of(file: str) -> str:
    return "".join(linecache.getlines(file))


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> Source | None:
    try:
        return Source(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@functools.lru_cache(maxsize=1024)
def _bound_names(scope: Any) -> frozenset[str]:
    """Return the variables that belong to a function: its parameters, and what it assigns."""
    names = set(all_parameters(scope))
    if isinstance(scope, ast.Lambda):
        return frozenset(names)
    outer: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
    return frozenset(names - outer)
