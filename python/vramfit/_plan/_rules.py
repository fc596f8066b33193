"""Tracing of functions with derivatives of their own (`jax.custom_vjp`, `jax.custom_jvp`).

Where JAX differentiates such a function it calls the rule, and not the function. A trace to a
jaxpr calls the function first, and the rule when the jaxpr is differentiated: a program's Python
would run twice, and a rule's effects would not be in the jaxpr. So the rule is called while the
program is traced, and what it does is what the function does from then on.
Relies on the traces of ``jax._src``; seen to work with JAX 0.6.2, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy
from jax._src import core, linear_util
from jax._src.interpreters import partial_eval

from vramfit._plan._evaluate import trace_flat

_JAX = os.path.dirname(jax.__file__) + os.sep


def change_trace_class(trace: Any, kind: type) -> None:
    """Let a trace that JAX has just begun be one of a kind."""
    if type(trace) is partial_eval.DynamicJaxprTrace:
        trace.__class__ = kind


class SiteTrace(partial_eval.DynamicJaxprTrace):  # type: ignore[misc]
    """A trace of a function that is differentiated by all of its arguments."""

    # No other ones: JAX's trace becomes one of this class.
    __slots__ = ()
    # Of the rules that are called: in those nothing is differentiated.
    of_rules: type = partial_eval.DynamicJaxprTrace

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **parameters: Any
    ) -> Any:
        """Call the rule, if its operands are differentiated."""
        # A rule that is told which tangents are zero may be traced for several combinations.
        has_one_trace = not parameters["symbolic_zeros"] and not _is_of_jax(fun)
        if has_one_trace and any(_are_differentiated(self, tracers)):
            fun, jvp = _trace_jvp_rule(self.of_rules, fun, jvp, tracers)
        return super().process_custom_jvp_call(primitive, fun, jvp, tracers, **parameters)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **parameters: Any
    ) -> Any:
        """Call the forward pass of the rule, if its operands are differentiated."""
        if not _is_of_jax(fun):
            differentiated = _are_differentiated(self, tracers)
            if any(differentiated):
                of_trace = functools.partial(_trace_forward_rule, self.of_rules, fun, fwd)
                fun, fwd = of_trace(tracers, differentiated, **parameters)
        return super().process_custom_vjp_call(primitive, fun, fwd, bwd, tracers, **parameters)


def _is_of_jax(fun: Any) -> bool:
    """Return whether a function is one of JAX: those have no effects."""
    source = getattr(fun.debug_info, "func_src_info", None) or ""
    return f" at {_JAX}" in source


def _are_differentiated(trace: Any, operands: Sequence[Any]) -> list[bool]:
    """Return which operands depend on the arguments of a trace, in a way that has a derivative."""
    frame = trace.frame
    equations = frame.get_eqns() if hasattr(frame, "get_eqns") else frame.eqns
    known = differentiated_variables(frame.invars, equations)
    own = (isinstance(each, core.Tracer) and each._trace is trace for each in operands)
    pairs = zip(own, operands, strict=True)
    return [is_own and _variable(trace, each) in known for is_own, each in pairs]


def differentiated_variables(arguments: Iterable[Any], equations: Iterable[Any]) -> set[Any]:
    """Return the variables that depend on arguments in a way that has a derivative.

    Args:
        arguments: The variables that are differentiated.
        equations: Of the jaxpr.
    """
    known = {each for each in arguments if _has_derivative(each.aval)}
    for eqn in equations:
        operands = (each for each in eqn.invars if not hasattr(each, "val"))
        if eqn.primitive.name != "stop_gradient" and not known.isdisjoint(operands):
            known.update(each for each in eqn.outvars if _has_derivative(each.aval))
    return known


def _variable(trace: Any, tracer: Any) -> Any:
    """Return the variable of a tracer; None if it has none."""
    # The latter until JAX 0.6.
    is_new = hasattr(tracer, "val")
    atom = tracer.val if is_new else trace.frame.tracer_to_var.get(id(tracer))
    return None if hasattr(atom, "val") else atom


def _has_derivative(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and bool(jax.numpy.issubdtype(dtype, jax.numpy.inexact))


def _trace_forward_rule(
    kind: type,
    fun: Any,
    fwd: Any,
    operands: Sequence[Any],
    differentiated: Sequence[bool],
    *,
    out_trees: Callable[[], Any],
    symbolic_zeros: bool,
) -> tuple[Any, Any]:
    """Trace the forward pass of a rule, and return the function and the forward pass by it."""
    flags = list(differentiated)

    def forward(*values: Any) -> Any:
        pairs = zip(values, flags, strict=True)
        return fwd.call_wrapped(*(each for pair in pairs for each in pair))

    closed = _trace(kind, forward, operands, list(map(jax.typeof, operands)))
    out_tree, *_ = out_trees()
    residuals = len(closed.out_avals) - out_tree.num_leaves
    kept = [index >= residuals for index in range(len(closed.out_avals))]

    def again(*values: Any) -> Any:
        if symbolic_zeros and list(values[1::2]) != flags:
            for store in fwd.stores:
                if store:
                    store.reset()
            return fwd.call_wrapped(*values)
        return _evaluate_closed(closed, values[::2])

    return _wrap(_select_results(closed, kept), fun), _wrap(again, fwd)


def _trace_jvp_rule(kind: type, fun: Any, jvp: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    """Trace a rule, and return the function and the rule by it."""
    avals = list(map(jax.typeof, operands))
    both = [*avals, *(aval.to_tangent_aval() for aval in avals)]
    closed = _trace(kind, jvp.call_wrapped, [*operands, *operands], both)
    count = len(closed.out_avals) // 2
    values_only = _select_results(closed, [index < count for index in range(2 * count)])
    # The values do not depend on the tangents.
    tangents = [numpy.zeros(aval.shape, aval.dtype) for aval in both[len(avals) :]]
    return (
        _wrap(lambda *values: values_only(*values, *tangents), fun),
        _wrap(lambda *values: _evaluate_closed(closed, values), jvp),
    )


def _wrap(function: Callable[..., Any], replaced: Any) -> Any:
    """Return a function in the form of the one that it replaces, which is not called."""
    # Until JAX 0.6 these come of a call of the function.
    debug_info = replaced.debug_info._replace(result_paths=None)
    return linear_util.wrap_init(function, debug_info=debug_info)


def _trace(kind: type, flat: Callable[..., Any], operands: Any, avals: Any) -> Any:
    """Trace a function of arrays to a closed jaxpr by a trace of a kind."""

    def of_kind(*tracers: Any) -> Any:
        change_trace_class(tracers[0]._trace, kind)
        return flat(*tracers)

    return trace_flat(of_kind, operands, avals)


def _select_results(closed: Any, kept: Sequence[bool]) -> Callable[..., Any]:
    """Return a function that computes some results of a closed jaxpr."""
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, list(kept), instantiate=True)
    return lambda *values: core.eval_jaxpr(jaxpr, closed.consts, *values)


def _evaluate_closed(closed: Any, values: Sequence[Any]) -> Any:
    return core.eval_jaxpr(closed.jaxpr, closed.consts, *values)
