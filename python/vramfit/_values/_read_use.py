"""What a script does with a value that it reads: only shows it, or lets it decide what runs next.

A dry run gives placeholders for values that it did not compute. A loss that is printed changes
nothing; a position that ends a loop, chooses a branch or becomes a size decides what the dry run
measures. The reading expression is found in the source by the position of the instruction that
runs, and followed from there (`_value_flow`).
"""

from __future__ import annotations

import ast
from types import CodeType, FrameType
from typing import Any

from vramfit._values import _value_flow
from vramfit._values._user_source import all_parameters, called_name, source_of

MAX_EXPRESSION_CHARACTERS = 60

# Of reads that are asked for again and again, as in a loop that waits.
MAX_KNOWN = 1024
# By an instruction: how many callers its answer depends on.
_depths: dict[tuple[CodeType, int, str], int] = {}
_known: dict[tuple[Any, ...], tuple[bool, str]] = {}

# Methods of an array by which Python reads it as a truth value, a size, or a whole number.
_DISCRETE = {"__bool__", "__index__", "__int__"}


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
    place = (frame.f_code, frame.f_lasti, method)
    if place in _depths and (use := _known.get((place, *_callers(frame, _depths[place])))):
        return use
    flow = _value_flow.Flow(is_discrete=method in _DISCRETE)
    use = _use_of(frame, method, flow)
    if len(_known) < MAX_KNOWN:
        _depths[place] = max(flow.callers, _depths.get(place, 0))
        _known[place, *_callers(frame, _depths[place])] = use
    return use


def deciding_parameter(function: Any) -> str | None:
    """Return the parameter of a function that decides what the program does next, if one does.

    Args:
        function: One of the user's, which a program calls back.
    """
    source = source_of(function.__code__, function.__globals__)
    if source is None:
        return None
    for node in source.functions_at(function.__code__):
        flow = _value_flow.Flow(is_discrete=False)
        for name in all_parameters(node):
            if flow.variable_decides(node, name, source):
                return name
    return None


def deciding_call(function: Any) -> str | None:
    """Return a call of a function as a text, if what it does decides what the program does next.

    Args:
        function: One of the user's, which a program would have called back.
    """
    source = source_of(function.__code__, function.__globals__)
    if source is None:
        return None
    for node in source.functions_at(function.__code__):
        if _value_flow.Flow(is_discrete=False).effects_decide(node, source):
            return f"{function.__name__}({', '.join(all_parameters(node))})"
    return None


def _callers(frame: FrameType, count: int) -> list[tuple[CodeType, int]]:
    places: list[tuple[CodeType, int]] = []
    caller = frame.f_back
    while caller is not None and len(places) < count:
        places.append((caller.f_code, caller.f_lasti))
        caller = caller.f_back
    return places


def _use_of(frame: FrameType, method: str, flow: _value_flow.Flow) -> tuple[bool, str]:
    node, source = _value_flow.expression_of(frame)
    if source is None or node is None:
        return method in _DISCRETE, ""
    name = called_name(node)
    is_plain = name in _value_flow.CONVERSIONS | _value_flow.SINKS | _value_flow.TEXTS
    if isinstance(node, ast.Call) and not is_plain and len(node.args) == 1 and not node.keywords:
        # A function of C, such as `math.log10`, reads its argument.
        text = _shortened(source.text, node.args[0])
    else:
        text = _shortened(source.text, node)
    if method in ("__bool__", "__index__") and not is_plain:
        return True, text
    # What is read inside of `queue.extend(map(float, losses))` goes into the queue.
    is_kept = isinstance(node, ast.Call) and flow.kept_decides(node, source)
    return is_kept or flow.decides(node, source, frame), text


def _shortened(source: str, node: ast.AST) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        text = text[: MAX_EXPRESSION_CHARACTERS - 1] + "…"
    return text
