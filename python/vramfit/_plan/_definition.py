"""Definitions: where the user wrote a function, whatever a library has wrapped around it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

from vramfit._inprogram._frames import file_name, is_library, user_frame
from vramfit._plan._jaxpr import user_line

# How many wrappers a library puts around a function, at most.
_MAX_WRAPPERS = 6
# How JAX names the function of a jaxpr.
_SOURCE = re.compile(r"(?P<name>.*) at (?P<file>.*):(?P<line>\d+)")


def function_definition(function: Any) -> str:
    """Return where a function is defined, as ``file.py:line (function)``.

    Of a library's wrapper it is the user's function in it, else the user's line that called it.
    """
    seen: set[int] = set()
    ring = [function]
    for _ in range(_MAX_WRAPPERS):
        for each in ring:
            code = _code(each)
            if code is not None and not is_library(code.co_filename):
                return _describe(each, code)
        ring = [part for each in ring for part in _wrapped_callables(each, seen)]
    return _calling_line() or getattr(function, "__qualname__", type(function).__qualname__)


def nested_definition(jaxpr: Any, eqn: Any) -> str:
    """Return where a function in a jaxpr is defined, as ``file.py:line (function)``.

    Of a library's function it is the user's line that led to it.

    Args:
        jaxpr: That of the function.
        eqn: The equation that has it.
    """
    source = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    found = _SOURCE.fullmatch(source)
    if found and not is_library(found["file"]):
        return f"{file_name(found['file'])}:{found['line']} ({found['name']})"
    return user_line(eqn) or source


def _describe(function: Any, code: CodeType) -> str:
    name = getattr(function, "__qualname__", code.co_name).replace("<locals>.", "")
    return f"{file_name(code.co_filename)}:{code.co_firstlineno} ({name})"


def _code(function: Any) -> CodeType | None:
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, (type, functools.partial)):
        code = getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _wrapped_callables(function: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the callables that a wrapper holds: attributes, closure, fields of an object."""
    parts = [getattr(function, name, None) for name in ("func", "__wrapped__", "__func__")]
    cells = getattr(function, "__closure__", None) or ()
    with_value = [cell for cell in cells if _has_value(cell)]
    parts += [cell.cell_contents for cell in with_value]
    for holder in (function, getattr(function, "__self__", None), *parts):
        parts += getattr(holder, "__dict__", {}).values() if not _is_module(holder) else ()
    for part in parts:
        if callable(part) and not isinstance(part, type) and id(part) not in seen:
            seen.add(id(part))
            yield part


def _is_module(value: Any) -> bool:
    return isinstance(value, (type, type(os)))


def _has_value(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _calling_line() -> str:
    """Return the user's innermost line on the stack, as ``file.py:line (function)``."""
    frame = user_frame()
    if frame is None:
        return ""
    code = frame.f_code
    return f"{file_name(code.co_filename)}:{frame.f_lineno} ({code.co_qualname})"
