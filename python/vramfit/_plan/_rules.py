"""Tracing of functions with derivatives of their own (`jax.custom_vjp`, `jax.custom_jvp`).

Where JAX differentiates such a function it calls the rule, and not the function. A trace to a
jaxpr calls the function first, and the rule when the jaxpr is differentiated: a program's Python
would run twice, and a rule's effects would not be in the jaxpr. So the rule is called while the
program is traced, and what it does is what the function does from then on. Of functions with rules
in a loop, a branch, or what is compiled or rematerialized as one, JAX calls the rules as soon as
that is traced; so that they are called in the same order, they are called then as well.
Relies on the traces of ``jax._src``; seen to work with JAX 0.6.2, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy
from jax._src import api, core, linear_util
from jax._src.ad_util import SymbolicZero
from jax._src.interpreters import partial_eval

from vramfit._plan._jaxpr import Equation, inner_jaxprs
from vramfit._plan._staging import bind, trace_flat

_JAX = os.path.dirname(jax.__file__) + os.sep
# Where JAX has functions with rules that call functions of the program: `jax.custom_gradient`.
_CALLING_OTHERS = os.path.join(_JAX, "_src", "custom_derivatives.py")
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")


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
        if not _is_of_jax(fun.debug_info):
            differentiated = _are_differentiated(self, tracers)
            if any(differentiated):
                # Only such a rule is told which tangents are zero.
                knows_zeros = parameters["symbolic_zeros"]
                zeros = [knows_zeros and not each for each in differentiated]
                fun, jvp = _trace_jvp_rule(self.of_rules, fun, jvp, tracers, zeros)
        return super().process_custom_jvp_call(primitive, fun, jvp, tracers, **parameters)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **parameters: Any
    ) -> Any:
        """Call the forward pass of the rule, if its operands are differentiated."""
        if not _is_of_jax(fun.debug_info):
            differentiated = _are_differentiated(self, tracers)
            if any(differentiated):
                of_trace = functools.partial(_trace_forward_rule, self.of_rules, fun, fwd)
                fun, fwd = of_trace(tracers, differentiated, **parameters)
        return super().process_custom_vjp_call(primitive, fun, fwd, bwd, tracers, **parameters)

    def process_primitive(self, primitive: Any, tracers: Any, parameters: Any, /) -> Any:
        """Call the rules in the functions of an equation, if its operands are differentiated."""
        results = super().process_primitive(primitive, tracers, parameters)
        if _have_rules(inner_jaxprs(parameters)):
            _call_inner_rules(self)
        return results

    def process_shard_map(self, *args: Any, **kwargs: Any) -> Any:
        """Do the same for what is mapped over devices."""
        results = super().process_shard_map(*args, **kwargs)
        if _have_rules(inner_jaxprs(_equations(self)[-1].params)):
            _call_inner_rules(self)
        return results


def _is_of_jax(debug_info: Any) -> bool:
    """Return whether a function is one of JAX that calls no other: those have no effects."""
    source = getattr(debug_info, "func_src_info", None) or ""
    return f" at {_JAX}" in source and f" at {_CALLING_OTHERS}" not in source


def _have_rules(jaxprs: Iterable[Any]) -> bool:
    """Return whether functions of the program in jaxprs have derivatives of their own."""
    for jaxpr in jaxprs:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in _WITH_RULES:
                functions = inner_jaxprs(eqn.params)
                if not all(_is_of_jax(each.debug_info) for each in functions):
                    return True
            elif _have_rules(inner_jaxprs(eqn.params)):
                return True
    return False


def _call_inner_rules(trace: Any) -> None:
    """Differentiate the last equation of a trace, in vain: JAX keeps what the rules in it do."""
    eqn = _equations(trace)[-1]
    known = differentiated_variables(trace.frame.invars, _equations(trace))
    flags = [not hasattr(each, "val") and each in known for each in eqn.invars]
    if not any(flags):
        return

    def differentiate(*operands: Any) -> list[Any]:
        def call(*values: Any) -> Any:
            changed = iter(values)
            pairs = zip(flags, operands, strict=True)
            return bind(
                Equation(eqn, (), (), None),
                [next(changed) if is_one else each for is_one, each in pairs],
            )

        pairs = zip(flags, operands, strict=True)
        api.vjp(call, *(each for is_one, each in pairs if is_one))
        return []

    trace_flat(differentiate, eqn.invars, [each.aval for each in eqn.invars])


def _equations(trace: Any) -> Sequence[Any]:
    """Return the equations that a trace has so far."""
    frame = trace.frame
    equations: Sequence[Any] = frame.get_eqns() if hasattr(frame, "get_eqns") else frame.eqns
    return equations


def _are_differentiated(trace: Any, operands: Sequence[Any]) -> list[bool]:
    """Return which operands depend on the arguments of a trace, in a way that has a derivative."""
    known = differentiated_variables(trace.frame.invars, _equations(trace))
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
            return _call_once_more(fwd, values)
        return _evaluate_closed(closed, values[::2])

    return _wrap(_select_results(closed, kept), fun), _wrap(again, fwd)


def _trace_jvp_rule(
    kind: type, fun: Any, jvp: Any, operands: Sequence[Any], zeros: Sequence[bool]
) -> tuple[Any, Any]:
    """Trace a rule, and return the function and the rule by it.

    Args:
        kind: Of trace.
        fun: The function.
        jvp: The rule.
        operands: Of the function.
        zeros: Which of them have tangents that the rule is told to be zero.
    """
    avals = list(map(jax.typeof, operands))
    tangent_avals = [aval.to_tangent_aval() for aval in avals]
    given = [aval for aval, is_zero in zip(tangent_avals, zeros, strict=True) if not is_zero]
    # Tangents that the rule says to be zero, by their place among its results.
    zero_results: dict[int, Any] = {}

    def rule(*values: Any) -> list[Any]:
        rest = iter(values[len(avals) :])
        pairs = zip(tangent_avals, zeros, strict=True)
        tangents = [SymbolicZero(aval) if is_zero else next(rest) for aval, is_zero in pairs]
        results = list(jvp.call_wrapped(*values[: len(avals)], *tangents))
        places = (i for i, each in enumerate(results) if isinstance(each, SymbolicZero))
        zero_results.update((i, results[i]) for i in places)
        return [each for i, each in enumerate(results) if i not in zero_results]

    named = [*operands, *operands[: len(given)]]
    closed = _trace(kind, rule, named, [*avals, *given])
    count = (len(closed.out_avals) + len(zero_results)) // 2
    values_only = _select_results(closed, [i < count for i in range(len(closed.out_avals))])
    # The values do not depend on the tangents.
    none = [numpy.zeros(aval.shape, aval.dtype) for aval in given]

    def again(*values: Any) -> Any:
        tangents = values[len(avals) :]
        if [isinstance(each, SymbolicZero) for each in tangents] != list(zeros):
            return _call_once_more(jvp, values)
        nonzero = (each for each in tangents if not isinstance(each, SymbolicZero))
        rest = iter(_evaluate_closed(closed, [*values[: len(avals)], *nonzero]))
        return [zero_results[i] if i in zero_results else next(rest) for i in range(2 * count)]

    return _wrap(lambda *values: values_only(*values, *none), fun), _wrap(again, jvp)


def _call_once_more(rule: Any, values: Sequence[Any]) -> Any:
    """Call a rule for which other operands are differentiated than when it was traced."""
    for store in rule.stores:
        if store:
            store.reset()
    return rule.call_wrapped(*values)


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
