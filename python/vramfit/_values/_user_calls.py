"""Calls in the user's source: which functions a call may run, and what it does with its arguments.

Names are enough where types are not known: of several methods of a name, each is meant.
"""

from __future__ import annotations

import ast
from typing import Any

from vramfit._values._user_source import (
    FUNCTIONS,
    Source,
    called_name,
    find_definitions,
    is_library_module,
    is_python_module,
    variable_name,
)

# Classes of Python that hold values.
_CONTAINERS = {"Counter", "OrderedDict", "Queue", "defaultdict", "deque", "dict", "list", "set"}
# Decorators under which a function computes arrays: another read of those is needed to decide.
COMPILED = {"filter_jit", "filter_pmap", "jit", "pmap", "shard_map"}
_NUMERIC_MODULES = ("np", "numpy", "math", "jnp", "jax")


def called_functions(call: ast.Call, source: Source) -> list[tuple[ast.AST, Source]]:
    """Return the functions of the user's that a call may run, and the classes that it may make."""
    function = call.func
    name = called_name(call)
    if isinstance(function, ast.Lambda):
        return [(function, source)]
    if not name:
        return []
    if isinstance(function, ast.Name):
        made = source.assigned.get(name)
        if made is not None:
            lambdas: list[tuple[ast.AST, Source]]
            lambdas = [(each, source) for each in made if isinstance(each, ast.Lambda)]
            if lambdas:
                return lambdas
            # An object, or another function, under a name of its own.
            kinds = [each for value in made for each in _classes_of(value, source)]
            return [each for kind in kinds for each in _methods(*kind, "__call__")]
        found = find_definitions(name, source)
        return [each for each in found if not each[1].is_method(each[0])]
    if not isinstance(function, ast.Attribute) or is_numeric(function):
        return []
    owner = function.value
    if isinstance(owner, ast.Name) and (module := source.modules.get(owner.id)):
        if is_library_module(module):
            return []
        return [each for each in find_definitions(name, source) if not each[1].is_method(each[0])]
    values = source.assigned.get(variable_name(owner), [])
    if values and all(map(_is_container, values)):
        return []
    kinds = [each for value in values for each in _classes_of(value, source)]
    methods = [each for kind in kinds for each in _methods(*kind, name)]
    if methods:
        return methods
    found = find_definitions(name, source)
    return [each for each in found if isinstance(each[0], FUNCTIONS)]


def reached_parameters(
    node: ast.AST, call: ast.Call, positional: list[str], every: list[str]
) -> list[str]:
    """Return the parameters, or fields of a class, that an argument becomes."""
    if isinstance(node, ast.keyword):
        return [node.arg] if node.arg in every else every
    place = next((at for at, each in enumerate(call.args) if each is node), len(positional))
    if any(isinstance(each, ast.Starred) for each in call.args[: place + 1]):
        return every
    # What has no place of its own is one of the rest (`*args`).
    return [positional[place]] if place < len(positional) else every[len(positional) :]


def is_compiled(function: ast.AST, source: Source) -> bool:
    """Return whether a function that a call names is one that JAX compiles."""
    made = [function, *source.assigned.get(variable_name(function), ())]
    return any(called_name(each) in COMPILED for each in made)


def is_numeric(function: ast.AST) -> bool:
    """Return whether a function is one of a module for numbers."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _NUMERIC_MODULES


def may_change(first: ast.AST, call: ast.Call, source: Source) -> bool:
    """Return whether a function may put its other arguments into its first one.

    One of Python's or NumPy's may: where it returns nothing, or is given a container.
    """
    function = call.func
    name = function
    while isinstance(name, ast.Attribute):
        name = name.value
    if not isinstance(name, ast.Name):
        return False
    origins = source.modules if name is not function else source.imported_from
    module = origins.get(name.id, "")
    if not is_python_module(module) and not (is_numeric(function) and name is not function):
        return False
    contents = source.assigned.get(variable_name(first), ())
    return isinstance(source.parents[call], ast.Expr) or any(map(_is_container, contents))


def decorators(function: Any) -> list[str]:
    """Return the names of the decorators, and of what their calls are given (`partial(jit)`)."""
    listed = getattr(function, "decorator_list", ())
    calls = [each for each in listed if isinstance(each, ast.Call)]
    parts = [*listed, *(part for call in calls for part in (call.func, *call.args))]
    return [variable_name(part).lstrip(".") for part in parts]


def _is_container(value: ast.expr) -> bool:
    made = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    return isinstance(value, made) or called_name(value) in _CONTAINERS


def _classes_of(value: ast.expr, source: Source) -> list[tuple[ast.AST, Source]]:
    """Return the classes of the user's that an expression may make an object of."""
    name = called_name(value)
    found = find_definitions(name, source) if name else ()
    return [each for each in found if isinstance(each[0], ast.ClassDef)]


def _methods(kind: Any, source: Source, name: str) -> list[tuple[ast.AST, Source]]:
    return [(each, source) for each in kind.body if getattr(each, "name", "") == name]
