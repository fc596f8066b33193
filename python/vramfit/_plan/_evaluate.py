"""Evaluates a function that was traced to a jaxpr, with segments of it rematerialized.

What is evaluated is what was traced: the program's Python is not called again. Loops, branches and
functions of ``jax.checkpoint`` in the jaxpr have functions of their own (`nested_sites`), which may
be divided as well; their equations are then evaluated with a jaxpr that contains the segments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vramfit._plan._definition import nested_definition
from vramfit._plan._jaxpr import JIT, REMATERIALIZED, Equation, FlatJaxpr, has_side_effects
from vramfit._plan._segment import INPUT_NAME, Segment, SiteChange
from vramfit._plan._staging import (
    bind,
    closed_jaxpr,
    context_of,
    read_value,
    trace_to_jaxpr,
)

# A smaller value is not worth a transfer.
MIN_OFFLOADED_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Site:
    """A function that can be rematerialized."""

    # `grad`, `shard_map`, `scan` or `checkpoint`: what the program gives it to.
    kind: str
    # Its definition, as ``file.py:line (function)``.
    definition: str
    # Definition of the function that was traced: this one, or the one whose jaxpr contains it.
    inside: str
    jaxpr: FlatJaxpr
    # In how many functions it is that are differentiated: the jaxpr of those depends on what is
    # planned for it.
    depth: int = 0
    # The policy of the program's own `jax.checkpoint`; None keeps nothing.
    policy: Callable[..., Any] | None = None
    # How often a loop runs its body that may be unrolled; None if it may not, or there is none.
    iterations: int | None = None


# What to change at a site; None leaves it as the program has it.
Choose = Callable[[Site], SiteChange | None]


def nested_sites(site: Site) -> Iterator[Site]:
    """Yield the functions in a site that can be rematerialized by themselves, the outer first."""
    for equation in site.jaxpr.equations:
        for _, closed in _inner_functions(equation.eqn):
            inner = _nested_site(site, equation.eqn, closed)
            if inner.kind:
                yield inner
            yield from nested_sites(inner)


def _nested_site(outer: Site, eqn: Any, closed: Any) -> Site:
    """Return the function of an equation as a site; its kind is empty if it is none by itself."""
    return dataclasses.replace(
        outer,
        kind=_kind(eqn),
        definition=nested_definition(closed.jaxpr, eqn),
        jaxpr=FlatJaxpr(closed),
        policy=eqn.params.get("policy") if _kind(eqn) == "checkpoint" else None,
        iterations=eqn.params["length"] if _may_be_unrolled(eqn) else None,
    )


def _may_be_unrolled(eqn: Any) -> bool:
    """Return whether an equation is a loop whose iterations nobody sees the order of.

    XLA may run what an unrolled loop prints in another order.
    """
    return _kind(eqn) == "scan" and eqn.params["unroll"] == 1 and not has_side_effects(eqn)


def _with_cse_prevented(segments: Iterable[Segment], is_prevented: bool) -> tuple[Segment, ...]:
    return tuple(dataclasses.replace(each, prevent_cse=is_prevented) for each in segments)


def evaluate(site: Site, arguments: Sequence[Any], choose: Choose) -> list[Any]:
    """Evaluate a function that was traced.

    Args:
        site: The function.
        arguments: Arrays or tracers, one for each argument of its jaxpr.
        choose: Returns what to change, of this function and of those nested in it.

    Returns:
        The results of the jaxpr.
    """
    change = choose(site) or SiteChange()
    return _Evaluation(site, choose).run(site.jaxpr, arguments, change.segments)


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function of an equation."""

    # The name of its parameter.
    parameter: str
    closed: Any
    jaxpr: FlatJaxpr
    # What is planned for it; None leaves it as the program has it.
    change: SiteChange | None
    # Whether something is planned for it, or for a function in it.
    is_changed: bool


class _Evaluation:
    """One evaluation of a function and of those nested in it."""

    def __init__(self, site: Site, choose: Choose) -> None:
        self._site = site
        self._choose = choose
        # By the identity of the equation, which the jaxpr keeps.
        self._known: dict[int, list[_Function]] = {}

    def run(
        self, jaxpr: FlatJaxpr, arguments: Sequence[Any], segments: Sequence[Segment]
    ) -> list[Any]:
        """Evaluate a jaxpr; its segments are in order and disjoint."""
        values: dict[int, Any] = dict(enumerate(arguments))
        last_uses = jaxpr.last_uses()
        position = 0
        for segment in segments:
            self._run_range(jaxpr, position, segment.start, values, {})
            self._run_segment(jaxpr, segment, values, last_uses)
            position = segment.stop
        self._run_range(jaxpr, position, len(jaxpr.equations), values, {})
        return [read_value(jaxpr, values, number) for number in jaxpr.outputs]

    def _run_range(
        self, jaxpr: FlatJaxpr, start: int, stop: int, values: dict[int, Any], names: dict[int, str]
    ) -> None:
        from jax.ad_checkpoint import checkpoint_name

        for index in range(start, stop):
            equation = jaxpr.equations[index]
            operands = [read_value(jaxpr, values, number) for number in equation.inputs]
            results = self._apply(equation, operands)
            if index in names:
                results = [checkpoint_name(result, names[index]) for result in results]
            values.update(zip(equation.outputs, results, strict=True))

    def _run_segment(
        self, jaxpr: FlatJaxpr, segment: Segment, values: dict[int, Any], last_uses: dict[int, int]
    ) -> None:
        """Evaluate equations as one function that is rematerialized in the backward pass."""
        import jax
        from jax.ad_checkpoint import checkpoint_name

        equations = jaxpr.equations[segment.start : segment.stop]
        made = {number for equation in equations for number in equation.outputs}
        used = {number for equation in equations for number in equation.inputs if number >= 0}
        inputs = sorted(used - made)
        outputs = sorted(number for number in made if last_uses.get(number, -1) >= segment.stop)
        collectives = range(segment.start, segment.stop)
        names = segment.names(at for at in collectives if jaxpr.equations[at].is_collective)
        named = _offloaded_inputs(jaxpr, inputs, values) if segment.offload_inputs else ()

        def run(*arguments: Any) -> list[Any]:
            inner = dict(zip(inputs, arguments, strict=True))
            for number in named:
                inner[number] = checkpoint_name(inner[number], INPUT_NAME)
            self._run_range(jaxpr, segment.start, segment.stop, inner, names)
            return [inner[number] for number in outputs]

        rematerialized = jax.checkpoint(
            run, prevent_cse=segment.prevent_cse, policy=segment.policy(jax)
        )
        results = rematerialized(*(values[number] for number in inputs))
        values.update(zip(outputs, results, strict=True))

    def _apply(self, equation: Equation, operands: list[Any]) -> list[Any]:
        """Evaluate one equation, with what is planned for the functions in it."""
        eqn = equation.eqn
        functions = self._functions(eqn)
        if not any(function.is_changed for function in functions):
            return bind(equation, operands)
        if _kind(eqn) == "checkpoint" and functions[0].change is not None:
            with context_of(equation):
                return self.run(functions[0].jaxpr, operands, functions[0].change.segments)
        parameters, constants = self._replace_functions(eqn, functions)
        if parameters is None:
            return bind(equation, operands)
        return bind(equation, [*constants, *operands], parameters)

    def _functions(self, eqn: Any) -> list[_Function]:
        """Return the functions of an equation, with what is planned for them."""
        if id(eqn) not in self._known:
            self._known[id(eqn)] = [self._plan(eqn, *each) for each in _inner_functions(eqn)]
        return self._known[id(eqn)]

    def _plan(self, eqn: Any, parameter: str, closed: Any) -> _Function:
        nested = _nested_site(self._site, eqn, closed)
        change = self._choose(nested) if nested.kind else None
        if change is not None:
            change = dataclasses.replace(
                change,
                segments=_with_cse_prevented(change.segments, _is_cse_prevented(eqn, change)),
                unroll=change.unroll if _may_be_unrolled(eqn) else None,
            )
        is_changed = change is not None or any(
            function.is_changed
            for equation in nested.jaxpr.equations
            for function in self._functions(equation.eqn)
        )
        return _Function(parameter, closed, nested.jaxpr, change, is_changed)

    def _replace_functions(
        self, eqn: Any, functions: Sequence[_Function]
    ) -> tuple[dict[str, Any] | None, list[Any]]:
        """Return an equation's parameters with segments in its functions.

        Returns:
            The parameters, None where they cannot be replaced, and constants that become the
            first operands.
        """
        made = [self._retrace(eqn, function) for function in functions]
        parameters = dict(eqn.params)
        constants: list[Any] = []
        name = functions[0].parameter
        if name == "branches":
            if any(each.consts for each in made):
                return None, []
            parameters[name] = tuple(made)
            return parameters, []
        [closed] = made
        [function] = functions
        if function.change is not None and function.change.unroll is not None:
            parameters["unroll"] = min(function.change.unroll, parameters["length"])
        if closed.consts and _kind(eqn) == "scan":
            closed, constants = _hoist_constants(closed)
            _add_scan_constants(parameters, len(constants))
        if closed.consts:
            return None, []
        is_open = not hasattr(eqn.params[name], "consts")
        parameters[name] = closed.jaxpr if is_open else closed
        return parameters, constants

    def _retrace(self, eqn: Any, function: _Function) -> Any:
        """Return a closed jaxpr that computes the same, with what is planned for it."""
        from jax._src import linear_util

        change = function.change or SiteChange()
        wrapped = linear_util.wrap_init(
            lambda *arguments: self.run(function.jaxpr, arguments, change.segments),
            debug_info=function.closed.jaxpr.debug_info,
        )
        with eqn.ctx.manager:
            return trace_to_jaxpr(wrapped, function.closed.in_avals)


def _hoist_constants(closed: Any) -> tuple[Any, list[Any]]:
    """Return a closed jaxpr with its constants as first arguments, and the constants."""
    from jax._src.interpreters import partial_eval

    jaxpr = partial_eval.convert_constvars_jaxpr(closed.jaxpr)
    return closed_jaxpr(jaxpr, ()), list(closed.consts)


def _add_scan_constants(parameters: dict[str, Any], count: int) -> None:
    """Let a scan have more constants, in front of those that it has."""
    if "num_consts" not in parameters:  # from JAX 0.12 on: trees of the kinds of operands
        from jax._src import flattree

        constants, carry, iterated = parameters["ft_in"].unpack()
        constants = (flattree.nones(count), constants)
        parameters["ft_in"] = flattree.pack((constants, carry, iterated))
        return
    parameters["num_consts"] += count
    if "linear" in parameters:  # until JAX 0.10.1
        parameters["linear"] = (False,) * count + tuple(parameters["linear"])


def _is_cse_prevented(eqn: Any, change: SiteChange) -> bool:
    """Return whether XLA must be kept from merging the two computations of a segment.

    It cannot merge them in the body of a loop; one that is unrolled as a whole is none any more.
    """
    if _kind(eqn) == "scan":
        return bool(max(eqn.params["unroll"], change.unroll or 1) >= eqn.params["length"])
    return bool(eqn.params.get("prevent_cse", True))


def _kind(eqn: Any) -> str:
    """Return the kind of site that the function of an equation is; empty if it is none."""
    name = str(eqn.primitive.name)
    if name in REMATERIALIZED:
        return "checkpoint"
    return "scan" if name == "scan" else ""


def _inner_functions(eqn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the functions of an equation that are differentiated with it, as closed jaxprs.

    Each comes with the name of its parameter. A backward pass is no such function any more, and one
    with a derivative of its own (``custom_vjp``) is not evaluated where it is differentiated.
    """
    name = str(eqn.primitive.name)
    if name in REMATERIALIZED and not eqn.params["differentiated"]:
        yield "jaxpr", closed_jaxpr(eqn.params["jaxpr"], ())
    elif name == "scan" or name in JIT:
        yield "jaxpr", eqn.params["jaxpr"]
    elif name == "cond":
        for branch in eqn.params["branches"]:
            yield "branches", branch


def _offloaded_inputs(jaxpr: FlatJaxpr, inputs: Sequence[int], values: dict[int, Any]) -> list[int]:
    """Return the inputs of a segment that are activations, and large enough for a transfer.

    Arguments may be parameters, which stay on the GPU anyway; one of the shape and type of a result
    that is computed is what a layer hands on.
    """
    import jax.numpy as jnp

    def kind(value: Any) -> tuple[Any, Any]:
        return getattr(value, "shape", None), getattr(value, "dtype", None)

    computed = zip(jaxpr.outputs, jaxpr.output_avals, strict=True)
    results = {kind(aval) for number, aval in computed if number >= jaxpr.input_count}
    chosen = []
    for number in inputs:
        value = values[number]
        size = getattr(value, "size", 0) * getattr(value, "dtype", jnp.dtype("u1")).itemsize
        if size < MIN_OFFLOADED_BYTES or not jnp.issubdtype(value.dtype, jnp.inexact):
            continue
        if number >= jaxpr.input_count or kind(value) in results:
            chosen.append(number)
    return chosen
