"""Tracing of functions that are called outside of ``jax.jit``.

There JAX computes at once what does not depend on the arguments that are differentiated, and the
program may look at it: at its values, its devices, whether it is a tracer. A trace of such a
function contains only what depends on its arguments; the rest are its constants.
Relies on the traces of ``jax._src``; seen to work with JAX 0.6.2, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import partial_eval


def is_eager() -> bool:
    """Return whether JAX computes at once what is called now with arrays."""
    trace = core.trace_ctx.trace
    while not isinstance(trace, partial_eval.DynamicJaxprTrace) and hasattr(trace, "parent_trace"):
        trace = trace.parent_trace
    return isinstance(trace, (core.EvalTrace, EagerTrace))


def compute_constants(trace: Any) -> None:
    """Let a trace compute at once what does not depend on its arguments.

    Args:
        trace: One that JAX has just begun.
    """
    if type(trace) is partial_eval.DynamicJaxprTrace:
        trace.__class__ = EagerTrace


def _unless_traced(name: str) -> Callable[..., Any]:
    """Return a method that leaves what has no traced operand to the one of `EvalTrace`."""
    staged = getattr(partial_eval.DynamicJaxprTrace, name)

    def process(self: EagerTrace, *args: Any, **kwargs: Any) -> Any:
        lists = [each if isinstance(each, (list, tuple)) else [each] for each in args]
        is_traced = any(isinstance(one, core.Tracer) for each in lists for one in each)
        if is_traced or (name == "process_primitive" and _has_effect(*args)):
            return staged(self, *args, **kwargs)
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

    process_primitive = _unless_traced("process_primitive")
    process_custom_jvp_call = _unless_traced("process_custom_jvp_call")
    process_custom_vjp_call = _unless_traced("process_custom_vjp_call")
    if hasattr(partial_eval.DynamicJaxprTrace, "stage_value"):
        stage_value = _unless_traced("stage_value")
