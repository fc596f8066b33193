"""Follows a value through the user's source to where it decides something.

From an expression upwards to the tests of its function; through variables and attributes; through
``return`` and ``yield`` to those who call; and into functions and methods of the user's that it is
passed to. Names are enough where types are not known: of several methods of a name, each is looked
at. What a library does with a value is not known: what it returns is taken to depend on the value,
and so is the object whose method it is; a function that returns nothing shows or stores it. What is
stored in a file is followed to where the program reads that file.
"""

from __future__ import annotations

import ast
import dis
from types import FrameType
from typing import Any

from vramfit._inprogram._frames import is_library
from vramfit._values import _user_files
from vramfit._values._user_calls import (
    COMPILED,
    called_functions,
    decorators,
    is_compiled,
    is_numeric,
    may_change,
    reached_parameters,
)
from vramfit._values._user_source import (
    FUNCTIONS,
    Source,
    all_parameters,
    called_name,
    first_line,
    is_module,
    parameters,
    source_of,
    variable_name,
)

# Functions that give a number made of a number.
CONVERSIONS = {"abs", "bool", "complex", "float", "index", "int", "item", "round", "tolist"}
# What is handed to a function or a method of such a name is shown or stored.
SINKS = {
    "add_histogram", "add_scalar", "add_scalars", "critical", "debug", "dump", "echo",
    "error", "exception", "hist", "imshow", "info", "isinstance", "len", "log", "log_metrics",
    "plot", "print", "record", "save", "savefig", "savetxt", "savez", "scalar", "scatter",
    "set_description", "set_description_str", "set_postfix", "set_postfix_str", "title", "type",
    "warn", "warning", "write", "writerow", "writerows",
}  # fmt: skip
# Functions that return an object with other attributes, named as their keywords.
_REPLACING = {"_replace", "evolve", "replace"}
# Methods that put a value into the object that they belong to.
_COLLECTORS = {"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"}
# Attributes that say nothing of the values.
_SHAPES = {"dtype", "itemsize", "nbytes", "ndim", "shape", "size"}
# What makes as many elements, or arrays as large, as a number says.
_SIZED = {"arange", "empty", "eye", "full", "linspace", "ones", "range", "zeros"}
# Functions that make a text of a value, which may be shown or compared.
TEXTS = {"dumps", "format", "repr", "str"}
# Functions of Python that hand on what they are given.
_BUILTIN_FLOWS = TEXTS | {
    "all", "any", "dict", "divmod", "enumerate", "filter", "list", "loads", "map", "max", "min",
    "next", "pow", "reversed", "set", "sorted", "sum", "tuple", "zip",
}  # fmt: skip

# Instructions that read a truth value to choose what runs next.
_TESTS = {name for name in dis.opname if "JUMP_IF" in name or name == "TO_BOOL"}
# Functions of NumPy whose result has as many elements as its argument has of some kind.
_SIZED_BY_VALUES = {
    "argwhere", "compress", "extract", "flatnonzero", "intersect1d", "nonzero", "setdiff1d",
    "setxor1d", "trim_zeros", "union1d", "unique",
}  # fmt: skip
# A value that reaches more expressions is taken for one that decides nothing.
_MAX_EXPRESSIONS = 20_000


def expression_of(frame: FrameType) -> tuple[ast.AST | None, Source | None]:
    """Return the expression that a frame evaluates, and the source that it stands in."""
    source = source_of(frame.f_code, frame.f_globals)
    if source is None or frame.f_lasti < 0:
        return None, source
    positions = list(frame.f_code.co_positions())
    at = frame.f_lasti // 2
    if dis.opname[frame.f_code.co_code[frame.f_lasti]] in _TESTS:
        # All tests of `a and b` have the place of the first; what was evaluated last is tested.
        while at > 0 and positions[at - 1] == positions[at]:
            at -= 1
        tested = source.at(positions[at - 1]) if at > 0 else None
        if tested is not None:
            return tested, source
    return source.at(positions[frame.f_lasti // 2]), source


class Flow:
    """Where a value goes."""

    def __init__(self, is_discrete: bool) -> None:
        # What is supposed where it cannot be followed any further.
        self._otherwise = is_discrete
        # Whether it has become the number of elements of something.
        self._is_length = False
        # How many callers were asked: the answer is theirs as well.
        self.callers = 0
        self._sources: list[Source] = []
        self._seen: set[ast.AST] = set()
        # Each with the attribute that is meant, if one is.
        self._variables: set[tuple[ast.AST | None, str, str | None]] = set()

    def decides(
        self,
        node: ast.AST,
        source: Source,
        frame: FrameType | None,
        element: int | str | None = None,
    ) -> bool:
        """Return whether the value of an expression decides what runs, or how large it is.

        Args:
            node: The expression.
            source: Where it stands.
            frame: That which evaluates it now, if one does.
            element: If only one element of a tuple, or attribute of an object, is meant, which.
        """
        if source not in self._sources:
            self._sources.append(source)
        while len(self._seen) < _MAX_EXPRESSIONS:
            if node in self._seen or node not in source.parents:
                return False
            self._seen.add(node)
            parent = source.parents[node]
            verdict = self._step(node, parent, source, frame, element)
            if verdict is not None:
                return verdict
            if isinstance(parent, ast.Tuple) and node in parent.elts:
                has_place = not any(isinstance(each, ast.Starred) for each in parent.elts)
                element = parent.elts.index(node) if has_place else None
            elif isinstance(node, ast.keyword) and called_name(parent) in _REPLACING:
                element = node.arg
            elif not isinstance(parent, (ast.IfExp, ast.NamedExpr, ast.Await)):
                element = None
            node = parent
        return self._otherwise

    def variable_decides(
        self, scope: ast.AST, name: str, source: Source, field: str | None = None
    ) -> bool:
        """Return whether a variable of a function, or of the module, decides anything.

        Args:
            scope: The function, or the module.
            name: The variable.
            source: Where it stands.
            field: If only one attribute of its object is meant, which.
        """
        if {(scope, name, None), (scope, name, field)} & self._variables:
            return False
        self._variables.add((scope, name, field))
        loads = [each for each in source.loads.get(name, ()) if _is_within(each, scope, source)]
        return self._any_load_decides([(load, source) for load in loads], field)

    def _attribute_decides(self, name: str, field: str | None = None) -> bool:
        """Return whether an attribute decides anything, whatever object it is of."""
        if {(None, name, None), (None, name, field)} & self._variables:
            return False
        self._variables.add((None, name, field))
        loads = [(each, source) for source in self._sources for each in source.loads.get(name, ())]
        return self._any_load_decides(loads, field)

    def _any_load_decides(self, loads: list[tuple[ast.AST, Source]], field: str | None) -> bool:
        if field is None:
            return any(self.decides(load, source, None) for load, source in loads)
        # Also where the methods and properties of the object read it.
        if loads and self._attribute_decides(f".{field}"):
            return True
        for load, source in loads:
            user = source.parents[load]
            if not isinstance(user, ast.Attribute):
                if self.decides(load, source, None):
                    return True
                continue
            call = source.parents[user]
            if isinstance(call, ast.Call) and call.func is user:
                kept = field if user.attr in _REPLACING else None
                if self.decides(call, source, None, kept):
                    return True
        return False

    def kept_decides(self, call: ast.Call, source: Source, value: ast.AST | None = None) -> bool:
        """Return whether what a call keeps of its arguments decides anything.

        In the object whose method it is, in the first of its arguments, or in a file.

        Args:
            call: The call, of a function that is none of the user's.
            source: Where it stands.
            value: Which of its arguments is meant, if it is one.
        """
        if source not in self._sources:
            self._sources.append(source)
        name, function = called_name(call), call.func
        if name in _user_files.WRITERS:
            return self._file_decides(call, source, value)
        if name in SINKS | TEXTS | CONVERSIONS:
            return False
        if isinstance(function, ast.Attribute) and name in _COLLECTORS:
            return self._assigned(function.value, source, None)
        if isinstance(function, ast.Attribute) and not is_module(function.value, source):
            return self._object_decides(function, source)
        first = call.args[0] if call.args else None
        if first is None or first is value or not may_change(first, call, source):
            return False
        return self._assigned(first, source, None)

    def effects_decide(self, function: ast.AST, source: Source) -> bool:
        """Return whether what a function of the user's does, beside returning, decides anything."""
        if (function, "", None) in self._variables:
            return False
        self._variables.add((function, "", None))
        self._is_length = True  # how often it is called is how many elements a list has
        if source not in self._sources:
            self._sources.append(source)
        return any(self._effect_decides(each, function, source) for each in ast.walk(function))

    def _effect_decides(self, node: ast.AST, function: ast.AST, source: Source) -> bool:
        match node:
            case ast.Name(ctx=ast.Store()):
                is_own = _is_within(source.binding_scope(node), function, source)
                return not is_own and self._assigned(node, source, None)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                return self._assigned(node, source, None)
            case ast.Call():
                called = called_functions(node, source)
                made = [each for each in called if isinstance(each[0], FUNCTIONS)]
                return self.kept_decides(node, source) or any(
                    self.effects_decide(*each) for each in made
                )
        return False

    def _object_decides(self, method: ast.Attribute, source: Source) -> bool:
        """Return whether an object that a method has changed decides anything by what it says."""
        owner, name = method.value, variable_name(method.value)
        if (owner, name, method.attr) in self._variables or not name:
            return False
        self._variables.add((owner, name, method.attr))
        scope = source.binding_scope(owner) if isinstance(owner, ast.Name) else source.tree
        for load in source.loads.get(name, ()):
            user = source.parents[load]
            is_other = isinstance(user, ast.Attribute) and user is not method
            if is_other and _is_within(load, scope, source) and self.decides(user, source, None):
                return True
        return False

    def _file_decides(self, call: ast.Call, source: Source, value: ast.AST | None) -> bool:
        """Return whether what a call writes into a file decides anything where that is read."""
        readings = list(_user_files.readings_of(call, value, source, self._sources))
        return any(self.decides(reading, other, None) for reading, other in readings)

    def _step(
        self,
        node: ast.AST,
        parent: ast.AST,
        source: Source,
        frame: FrameType | None,
        element: int | str | None,
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
                return self._assigned(parent.target, source, element)
            case ast.For() | ast.AsyncFor():
                return self._assigned(parent.target, source, element)
            case ast.Call():
                return self._argument(node, parent, source)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(None)]):
                return False  # whether there is a value, whichever it is
            case ast.withitem():
                target = parent.optional_vars
                return target is not None and self._assigned(target, source, element)
            case ast.Attribute():
                return False if parent.attr in _SHAPES and not self._is_length else None
            case ast.Expr():
                return False
            case ast.Assign():
                return any(self._assigned(each, source, element) for each in parent.targets)
            case ast.AnnAssign() | ast.AugAssign():
                return self._assigned(parent.target, source, element)
            case ast.NamedExpr():
                return True if self._assigned(parent.target, source, element) else None
            case ast.Return():
                return self._returned(parent, source, frame, element)
            case ast.Yield():
                return self._yielded(parent, source, frame, element)
            case ast.Lambda():
                return self._lambda_result_decides(parent, source)
            case ast.YieldFrom():
                return self._otherwise
            case ast.expr() | ast.keyword():
                return None
        return self._otherwise

    def _argument(self, node: ast.AST, call: ast.Call, source: Source) -> bool | None:
        name = called_name(call)
        if node is call.func:
            return None  # a method of the value
        functions = called_functions(call, source)
        if functions and isinstance(call.func, (ast.Name, ast.Lambda)):
            return any(self._passed(node, call, *each) for each in functions)
        is_of_numbers = is_numeric(call.func)
        if name == "len" and self._is_length:
            return None
        # A logarithm is none of those who log.
        is_sink = name in SINKS | _user_files.WRITERS and not (name == "log" and is_of_numbers)
        if is_of_numbers and name in _SIZED_BY_VALUES:
            self._is_length = True
        if name in _SIZED or name == "setattr" or name.startswith("assert"):
            return True  # of an attribute without a name, who knows
        if any(self._passed(node, call, *each) for each in functions):
            return True
        if self.kept_decides(call, source, node):
            return True
        is_method = isinstance(call.func, ast.Attribute)
        if functions or is_sink or (is_method and name in _COLLECTORS):
            return False
        if name in CONVERSIONS or is_of_numbers or name in _BUILTIN_FLOWS:
            return None
        # Of a compiled function, it is another read that decides. Of any other one that is not
        # known, the result may; and what is as good as always read to decide does.
        return self._otherwise if self._otherwise or is_compiled(call.func, source) else None

    def _passed(self, node: ast.AST, call: ast.Call, definition: ast.AST, source: Source) -> bool:
        """Return whether an argument decides anything in a function of the user's."""
        if source not in self._sources:
            self._sources.append(source)
        function: Any = definition
        if isinstance(definition, ast.ClassDef):
            methods = (each for each in definition.body if getattr(each, "name", "") == "__init__")
            function = next(methods, None)
        if function is None:
            fields = [
                each.target.id
                for each in getattr(definition, "body", ())
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            ]
            names = reached_parameters(node, call, fields, fields)
            return any(self._attribute_decides(f".{name}") for name in names)
        if COMPILED & set(decorators(function)):
            return self._otherwise
        positional = parameters(function)
        if source.is_method(function) and "staticmethod" not in decorators(function):
            positional = positional[1:]
        names = reached_parameters(node, call, positional, all_parameters(function))
        return any(self.variable_decides(function, name, source) for name in names)

    def _returned(
        self, node: ast.AST, source: Source, frame: FrameType | None, element: int | str | None
    ) -> bool:
        """Return whether what a function returns decides anything for those who call it."""
        function: Any = source.scope_of(node)
        name = getattr(function, "name", "")
        here = (name, first_line(function)) if name else None
        if frame is None or (frame.f_code.co_name, frame.f_code.co_firstlineno) != here:
            return self._used(function, element)
        self.callers += 1
        caller = frame.f_back
        if caller is None or is_library(caller.f_code.co_filename):
            # A thread, or an event loop: what it returns goes to whoever has handed it there.
            return self._otherwise or self._used(function, element)
        call, caller_source = expression_of(caller)
        if call is None or caller_source is None:
            return self._otherwise
        return self.decides(call, caller_source, caller, element)

    def _lambda_result_decides(self, function: ast.AST, source: Source) -> bool:
        """Return whether what a lambda returns decides anything where it is called."""
        parent = source.parents[function]
        is_keyword = isinstance(parent, ast.keyword)
        user = source.parents[parent] if is_keyword else parent
        if isinstance(user, ast.Call):
            if called_name(user) in COMPILED:
                return self._otherwise
            functions = [] if user.func is function else called_functions(user, source)
            if functions:
                return any(
                    self._passed(parent if is_keyword else function, user, *each)
                    for each in functions
                )
            return self._otherwise or self.decides(user, source, None)
        if isinstance(user, ast.Assign):
            names = [variable_name(each).lstrip(".") for each in user.targets]
            calls = [call for name in names for call in source.calls.get(name, ())]
            return any(self.decides(call, source, None) for call in calls)
        return self._otherwise

    def _yielded(
        self, node: ast.AST, source: Source, frame: FrameType | None, element: int | str | None
    ) -> bool:
        """Return whether what a generator yields decides anything for those who iterate over it."""
        if frame is not None and frame.f_back is not None:
            self.callers += 1
            consumer = source_of(frame.f_back.f_code, frame.f_back.f_globals)
            if consumer is not None and not is_library(frame.f_back.f_code.co_filename):
                self._sources.append(consumer)
        return self._used(source.scope_of(node), element)

    def _used(self, function: Any, element: int | str | None) -> bool:
        """Return whether what a function returns decides anything wherever it is called."""
        name = getattr(function, "name", "")
        if any(each.endswith("property") for each in decorators(function)):
            return self._attribute_decides(f".{name}")
        if not name:
            return False
        calls = [(call, source) for source in self._sources for call in source.calls.get(name, ())]
        if any(self.decides(call, source, None, element) for call, source in calls):
            return True
        # What the function is handed to calls it, as a thread does.
        handed = [
            (load, source)
            for source in self._sources
            for load in (*source.loads.get(name, ()), *source.loads.get(f".{name}", ()))
            if getattr(source.parents[load], "func", None) is not load
        ]
        return any(self.decides(load, source, None) for load, source in handed)

    def _assigned(self, target: ast.AST, source: Source, element: int | str | None) -> bool:
        """Return whether a variable, an attribute or an element decides anything in its scope."""
        match target:
            case ast.Tuple() | ast.List():
                has_place = not any(isinstance(each, ast.Starred) for each in target.elts)
                if has_place and isinstance(element, int) and element < len(target.elts):
                    return self._assigned(target.elts[element], source, None)
                return any(self._assigned(each, source, None) for each in target.elts)
            case ast.Starred() | ast.Subscript():
                return self._assigned(target.value, source, None)
            case ast.Attribute():
                return self._attribute_decides(variable_name(target), _field(element))
            case ast.Name():
                scope = source.binding_scope(target)
                return self.variable_decides(scope, target.id, source, _field(element))
        return self._otherwise


def _field(element: int | str | None) -> str | None:
    return element if isinstance(element, str) else None


def _is_within(node: ast.AST, scope: ast.AST, source: Source) -> bool:
    inner: ast.AST | None = node
    while inner is not None and inner is not scope:
        inner = source.parents.get(inner)
    return inner is scope
