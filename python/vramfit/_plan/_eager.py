"""Tracing of functions that are called outside of ``jax.jit``.

There JAX computes at once what does not depend on the arguments that are differentiated, and the
program may look at it: at its values, its devices, whether it is a tracer. A trace of such a
function contains only what depends on its arguments; the rest are its constants. JAX knows the
values of the arguments, too, and a trace does not, so that it has to notice who asks for them.
Relies on the traces of ``jax._src``; seen to work with JAX 0.6.2, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import partial_eval

from vramfit._inprogram._frames import site_of, user_frame
from vramfit._plan._rules import SiteTrace

# What a tracer is asked for by those who need its value, or print it. That it does not have some
# attributes is no different for the tracers of a derivative.
_ASKED = ("_origin_msg", "_short_repr", "_pretty_print")
_ATTRIBUTES = ("sharding", "device")
# Of each function that this thread traces: the lines that asked for a value (`lines`).
_reads = threading.local()


def is_eager() -> bool:
    """Return whether JAX computes at once what is called now with arrays."""
    trace = core.trace_ctx.trace
    while not isinstance(trace, partial_eval.DynamicJaxprTrace) and hasattr(trace, "parent_trace"):
        trace = trace.parent_trace
    return isinstance(trace, (core.EvalTrace, EagerTrace))


@contextlib.contextmanager
def noting_reads() -> Iterator[list[str]]:
    """Note the lines that ask for a value which only JAX's own tracers know, even in vain."""
    lines: list[str] = []
    active = _reads.__dict__.setdefault("lines", [])
    active.append(lines)
    try:
        yield lines
    finally:
        active.pop()  # not by `remove`: an equal list may be that of a function around it


def _noting(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of tracers that notes who asks an `EagerTrace`."""

    @functools.wraps(ask)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked_by = sys._getframe(1).f_code.co_name
        if isinstance(self._trace, EagerTrace) and asked_by not in _ATTRIBUTES:
            frame = user_frame()
            line = "" if frame is None else site_of(frame.f_code, frame.f_lineno)
            for lines in getattr(_reads, "lines", ()):
                lines.append(line)
        return ask(self, *args, **kwargs)

    return noting


for _name in _ASKED:
    if hasattr(partial_eval.DynamicJaxprTracer, _name):
        _method = _noting(getattr(partial_eval.DynamicJaxprTracer, _name))
        setattr(partial_eval.DynamicJaxprTracer, _name, _method)


def _unless_traced(name: str) -> Callable[..., Any]:
    """Return a method that leaves what has no traced operand to the one of `EvalTrace`."""

    def process(self: EagerTrace, *args: Any, **kwargs: Any) -> Any:
        lists = [each if isinstance(each, (list, tuple)) else [each] for each in args]
        is_traced = any(isinstance(one, core.Tracer) for each in lists for one in each)
        if is_traced or (name == "process_primitive" and _has_effect(*args)):
            return getattr(super(EagerTrace, self), name)(*args, **kwargs)
        with core.set_current_trace(core.eval_trace):
            return getattr(core.eval_trace, name)(*args, **kwargs)

    return process


def _has_effect(primitive: Any, operands: Any, parameters: dict[str, Any]) -> bool:
    """Return whether something has an effect, which stays in the order of the others."""
    if getattr(primitive, "ref_allocating", False):
        return True
    _, effects = primitive.abstract_eval(*map(jax.typeof, operands), **parameters)
    return bool(effects)


class EagerTrace(partial_eval.DynamicJaxprTrace):  # type: ignore[misc]
    """A trace to a jaxpr of what depends on the arguments."""

    # No other ones: JAX's trace becomes one of this class.
    __slots__ = ()


for _name in (
    *("process_primitive", "process_custom_jvp_call", "process_custom_vjp_call"),
    *("process_map", "process_shard_map", "stage_value"),
):
    if hasattr(EagerTrace, _name):  # it depends on the release
        setattr(EagerTrace, _name, _unless_traced(_name))


class EagerSiteTrace(EagerTrace, SiteTrace):
    """Both."""

    __slots__ = ()
    of_rules = EagerTrace
