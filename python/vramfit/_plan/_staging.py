"""Functions to closed jaxprs, and the equations of a jaxpr back to calls of their primitives.

Relies on what ``jax.core.eval_jaxpr`` does; seen to work with JAX 0.6.2 to 0.12.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from vramfit._plan._jaxpr import Equation, FlatJaxpr


def trace_flat(flat: Callable[..., Any], arguments: Sequence[Any], avals: Sequence[Any]) -> Any:
    """Trace a function of arrays to a closed jaxpr.

    Args:
        flat: Takes tracers, and returns a list of arrays.
        arguments: What JAX names in its errors.
        avals: Of the tracers.
    """
    from jax._src import api_util, linear_util

    debug_info = api_util.debug_info("vramfit", flat, tuple(arguments), {})
    return trace_to_jaxpr(linear_util.wrap_init(flat, debug_info=debug_info), avals)


def trace_to_jaxpr(function: Any, avals: Sequence[Any]) -> Any:
    """Trace a function of flat arguments to a closed jaxpr.

    Not by `jax.make_jaxpr`, in whose context JAX does not find again what it has traced in the
    program's own.

    Args:
        function: One of `jax._src.linear_util`.
        avals: Of its arguments.
    """
    from jax._src.interpreters import partial_eval

    jaxpr, _, constants, *_ = partial_eval.trace_to_jaxpr_dynamic(function, avals)
    return closed_jaxpr(jaxpr, constants)


def closed_jaxpr(jaxpr: Any, constants: Sequence[Any]) -> Any:
    """Return a jaxpr with its constants as one object, which JAX 0.12 has no class of its own for.

    Not by `jax.extend.core`: it imports Pallas, whose configuration becomes a part of the keys of
    JAX's caches, so that a program that is being traced would be traced once more.
    """
    from jax._src import core

    return getattr(core, "ClosedJaxpr", core.Jaxpr)(jaxpr, constants)


def call_with_leaves(
    function: Callable[..., Any],
    tree: Any,
    leaves: Sequence[Any],
    places: Sequence[int],
    values: Sequence[Any],
) -> Any:
    """Call a function with other values for some leaves of its arguments.

    Args:
        function: The program's own.
        tree: The structure of its positional and keyword arguments.
        leaves: Of them.
        places: Which leaves are replaced.
        values: By what.
    """
    import jax

    whole = list(leaves)
    for index, value in zip(places, values, strict=True):
        whole[index] = value
    args, kwargs = jax.tree.unflatten(tree, whole)
    return function(*args, **kwargs)


def bind(
    equation: Equation, operands: list[Any], parameters: dict[str, Any] | None = None
) -> list[Any]:
    """Apply the primitive as `jax.core.eval_jaxpr` does.

    Args:
        equation: The equation.
        operands: Arrays or tracers.
        parameters: Those of the primitive, where they are not the equation's own.
    """
    primitive = equation.eqn.primitive
    bound = primitive.get_bind_params(parameters or equation.eqn.params)
    functions: Sequence[Any] = ()
    if isinstance(bound, tuple):  # up to JAX 0.9
        functions, bound = bound
    with context_of(equation):
        results = primitive.bind(*functions, *operands, **bound)
    return list(results) if primitive.multiple_results else [results]


def context_of(equation: Equation) -> Any:
    """Return the context of an equation: the user's line, the name stack, settings of JAX."""
    from jax._src import source_info_util

    eqn = equation.eqn
    stack = source_info_util.current_name_stack()
    if equation.name_stack is not None:
        stack = stack + equation.name_stack
    stack = stack + eqn.source_info.name_stack
    context = contextlib.ExitStack()
    context.enter_context(
        source_info_util.user_context(eqn.source_info.traceback, name_stack=stack)
    )
    context.enter_context(eqn.ctx.manager)
    return context


def read_value(jaxpr: FlatJaxpr, values: dict[int, Any], number: int) -> Any:
    return values[number] if number >= 0 else jaxpr.constants[-number - 1]
