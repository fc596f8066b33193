"""What a script does with a value that it reads: only shows it, or lets it decide what runs next.

A dry run gives placeholders for values that it did not compute. A loss that is printed changes
nothing; a position that ends a loop, chooses a branch or becomes a size decides what the dry run
measures. The reading expression is found in the source by the position of the instruction that
runs, and followed from there to the tests of its function, and through ``return`` to the caller's.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from vramfit._inprogram._frames import is_library

MAX_EXPRESSION_CHARACTERS = 60

# Of reads that are asked for again and again, as in a loop that waits.
MAX_KNOWN = 1024
_known: dict[tuple[CodeType, int, str], tuple[bool, str]] = {}

# Methods of an array by which Python reads it as a truth value, a size, or a whole number.
_DISCRETE = {"__bool__", "__index__", "__int__"}
# Functions that give a number made of a number.
_CONVERSIONS = {"abs", "bool", "complex", "float", "index", "int", "item", "round", "tolist"}
# What is handed to a function or a method of such a name is shown or stored.
_SINKS = {
    "add_histogram", "add_scalar", "add_scalars", "critical", "debug", "dump", "dumps", "echo",
    "error", "exception", "format", "hist", "imshow", "info", "isinstance", "len", "log",
    "log_metrics", "plot", "print", "record", "repr", "save", "savefig", "savetxt", "savez",
    "scalar", "scatter", "set_description", "set_description_str", "set_postfix",
    "set_postfix_str", "str", "title", "type", "warn", "warning", "write", "writerow",
    "writerows",
}  # fmt: skip
# Methods that put a value into the object that they belong to.
_COLLECTORS = {"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"}
# Attributes that say nothing of the values.
_SHAPES = {"dtype", "itemsize", "nbytes", "ndim", "shape", "size"}
# What makes as many elements, or arrays as large, as a number says.
_SIZED = {"arange", "empty", "eye", "full", "linspace", "ones", "range", "zeros"}


def use_of(frame: FrameType, method: str) -> tuple[bool, str]:
    """Return whether a read decides what the program does next, and the expression that reads.

    Args:
        frame: That of the user's that reads.
        method: The function of JAX's that it called, such as ``__bool__``; empty if none.

    Returns:
        Whether it decides. Where that cannot be followed: true for truth values and whole
        numbers, which rarely serve another end. And the source of the expression, shortened;
        empty without source.
    """
    key = (frame.f_code, frame.f_lasti, method)
    if key in _known:
        return _known[key]
    flow = _Flow(is_discrete=method in _DISCRETE)
    use = _use_of(frame, method, flow)
    if not flow.has_asked_caller and len(_known) < MAX_KNOWN:
        _known[key] = use
    return use


def _use_of(frame: FrameType, method: str, flow: _Flow) -> tuple[bool, str]:
    node, source = _expression(frame)
    if source is None or node is None:
        return method in _DISCRETE, ""
    text = " ".join((ast.get_source_segment(source.text, node) or "").split())
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        text = text[: MAX_EXPRESSION_CHARACTERS - 1] + "…"
    if method in ("__bool__", "__index__") and _called_name(node) not in _CONVERSIONS | _SINKS:
        return True, text
    return flow.decides(node, source, frame), text


class _Source:
    """A file's syntax tree, with what leads from a position and from a node upwards."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._at: dict[tuple[int | None, ...], ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.expr):
                self._at[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node

    def at(self, position: tuple[int | None, ...]) -> ast.AST | None:
        """Return the expression that lies exactly there."""
        return self._at.get(position)

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the function that a node is in, or the module."""
        scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
        while not isinstance(node, scopes):
            node = self.parents[node]
        return node


@functools.lru_cache(maxsize=64)
def _source_of(text: str) -> _Source | None:
    try:
        return _Source(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _expression(frame: FrameType) -> tuple[ast.AST | None, _Source | None]:
    """Return the expression that a frame evaluates."""
    code = frame.f_code
    source = _source_of("".join(linecache.getlines(code.co_filename, frame.f_globals)))
    if source is None or frame.f_lasti < 0:
        return None, source
    positions = list(code.co_positions())[frame.f_lasti // 2]
    return source.at(positions), source


def _called_name(node: ast.AST) -> str:
    """Return the last name of the function that a node calls; empty if it calls none by a name."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class _Flow:
    """Follows a value from the expression that reads it to where it decides something."""

    def __init__(self, is_discrete: bool) -> None:
        # What is supposed where it cannot be followed any further.
        self._otherwise = is_discrete
        # Then the answer is the caller's, not the instruction's.
        self.has_asked_caller = False
        self._seen: set[ast.AST] = set()
        self._names: set[tuple[ast.AST, str]] = set()

    def decides(self, node: ast.AST, source: _Source, frame: FrameType | None) -> bool:
        """Return whether the value of an expression decides what runs, or how large it is."""
        while True:
            if node in self._seen or node not in source.parents:
                return False
            self._seen.add(node)
            parent = source.parents[node]
            verdict = self._step(node, parent, source, frame)
            if verdict is not None:
                return verdict
            node = parent

    def _step(
        self, node: ast.AST, parent: ast.AST, source: _Source, frame: FrameType | None
    ) -> bool | None:
        """Return the answer where it ends at a parent; None where the value flows through it."""
        match parent:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                # In the branches of a conditional expression it is the expression's value.
                return True if node is parent.test else None
            case ast.Match() | ast.Slice():
                return True
            case ast.comprehension():
                if node in parent.ifs:
                    return True
                return self._named(parent.target, source, frame)
            case ast.For() | ast.AsyncFor():
                return self._named(parent.target, source, frame)
            case ast.Call():
                return self._argument(node, parent, source, frame)
            case ast.Attribute():
                return False if parent.attr in _SHAPES else None
            case ast.FormattedValue() | ast.JoinedStr() | ast.Expr():
                return False
            case ast.Assign():
                return any(self._named(target, source, frame) for target in parent.targets)
            case ast.AnnAssign() | ast.AugAssign():
                return self._named(parent.target, source, frame)
            case ast.NamedExpr():
                return True if self._named(parent.target, source, frame) else None
            case ast.Return():
                return self._returned(parent, source, frame)
            case ast.Lambda() | ast.Yield() | ast.YieldFrom():
                return self._otherwise
            case ast.expr() | ast.keyword():
                return None
        return self._otherwise

    def _argument(
        self, node: ast.AST, call: ast.Call, source: _Source, frame: FrameType | None
    ) -> bool | None:
        name = _called_name(call)
        if node is call.func:
            return None  # a method of the value
        if name in _SINKS:
            return False
        if name in _SIZED or name.startswith("assert"):
            return True
        if name in _COLLECTORS and isinstance(call.func, ast.Attribute):
            return self._named(call.func.value, source, frame)
        if name in _CONVERSIONS or self._is_of_numpy(call.func) or name in _BUILTIN_FLOWS:
            return None
        return self._otherwise

    def _is_of_numpy(self, function: ast.AST) -> bool:
        """Return whether a function is one of a module for numbers."""
        while isinstance(function, ast.Attribute):
            function = function.value
        return isinstance(function, ast.Name) and function.id in (
            "np",
            "numpy",
            "math",
            "jnp",
            "jax",
        )

    def _returned(self, node: ast.AST, source: _Source, frame: FrameType | None) -> bool:
        """Return whether what a function returns decides anything for those who call it."""
        function = source.scope_of(node)
        name = getattr(function, "name", "")
        if frame is None or (frame.f_code.co_name, frame.f_code.co_firstlineno) != (
            name,
            _first_line(function),
        ):
            calls = (each for each in ast.walk(source.tree) if _called_name(each) == name)
            return any(self.decides(call, source, None) for call in calls)
        self.has_asked_caller = True
        caller = frame.f_back
        if caller is None or is_library(caller.f_code.co_filename):
            return self._otherwise
        call, caller_source = _expression(caller)
        if call is None or caller_source is None:
            return self._otherwise
        return self.decides(call, caller_source, caller)

    def _named(self, target: ast.AST, source: _Source, frame: FrameType | None) -> bool:
        """Return whether a variable, an attribute or an element decides anything in its scope."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return any(self._named(element, source, frame) for element in target.elts)
        if isinstance(target, ast.Starred):
            return self._named(target.value, source, frame)
        if isinstance(target, ast.Subscript):
            return self._named(target.value, source, frame)
        if isinstance(target, ast.Attribute):
            scope: ast.AST = source.tree
            name = target.attr
        elif isinstance(target, ast.Name):
            scope = source.scope_of(target)
            name = target.id
        else:
            return self._otherwise
        if (scope, name) in self._names:
            return False
        self._names.add((scope, name))
        return any(
            self.decides(load, source, frame)
            for load in _loads(scope, name, is_attribute=isinstance(target, ast.Attribute))
        )


def _first_line(function: Any) -> int:
    """Return the line that Python takes for a function's first: that of its first decorator."""
    decorators = getattr(function, "decorator_list", [])
    return int(min(each.lineno for each in [function, *decorators]))


# Functions of Python that hand on what they are given.
_BUILTIN_FLOWS = {
    "all", "any", "dict", "divmod", "enumerate", "filter", "list", "map", "max", "min", "next",
    "pow", "reversed", "set", "sorted", "sum", "tuple", "zip",
}  # fmt: skip


def _loads(scope: ast.AST, name: str, is_attribute: bool) -> Iterator[ast.AST]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute):
            own = node.attr if is_attribute else ""
        elif isinstance(node, ast.Name):
            own = "" if is_attribute else node.id
        else:
            continue
        if own == name and isinstance(node.ctx, ast.Load):
            yield node
