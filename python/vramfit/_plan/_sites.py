"""Sites: the functions of a program whose activations can be rematerialized.

A function that the program gives to `jax.grad` and its relatives is traced to a jaxpr when it is
called, and what was traced is evaluated as the plan says: its Python is called once, as without a
plan. The bodies of loops and the functions of `jax.checkpoint` are sites in that jaxpr. One that
is mapped by `jax.shard_map` inside of it is traced like it.

The attributes of JAX are replaced right after JAX is imported, so that libraries built on them are
reached, too.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from vramfit._inprogram._frames import is_library, site_of
from vramfit._plan._definition import function_definition
from vramfit._plan._evaluate import Site, call_with_leaves, evaluate, trace_flat
from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._segment import Segment

# Functions whose first argument is differentiated.
DIFFERENTIATING = ("grad", "value_and_grad", "vjp", "linearize")


class Planner(Protocol):
    """Decides for each function that is differentiated."""

    def traces(self, definition: str, is_within: bool) -> bool:
        """Return whether the function is traced; if not, it is called as it is.

        Args:
            definition: The function.
            is_within: Whether it is called by a function that is being traced.
        """

    def on_trace(self, site: Site, trace: Any) -> None:
        """Take note of a function that was traced.

        Args:
            site: The function.
            trace: JAX's trace, which is over.
        """

    def segments(self, site: Site) -> Sequence[Segment] | None:
        """Return what to rematerialize; None leaves that to the program."""

    def on_value_read(self, definition: str, line: str) -> None:
        """Take note of a function that reads a value, so that it cannot be traced.

        Its Python has run to that line. If this returns, it is called again.
        """

    def on_return(self) -> None:
        """Take note that a function that is differentiated has returned, and is in no other."""


# How many functions being differentiated the current thread is inside of (`depth`), and whether one
# of them is traced (`is_traced`).
_active = threading.local()


def install(jax: Any, planner: Planner) -> None:
    """Let all sites of programs that call JAX by its attributes ask the planner.

    Args:
        jax: The module, just imported.
        planner: Asked at each call of a site.
    """
    from jax._src import source_info_util

    # Lines of this package are no lines of the user's.
    for name in ("_sites", "_evaluate"):
        source_info_util.register_exclusion(__file__.replace("_sites", name))
    for name in DIFFERENTIATING:
        setattr(jax, name, _replace_first(getattr(jax, name), "grad", planner))
    if hasattr(jax, "shard_map"):
        jax.shard_map = _replace_first(jax.shard_map, "shard_map", planner)


def _replace_first(original: Callable[..., Any], kind: str, planner: Planner) -> Callable[..., Any]:
    """Return a function that gives `original` its first argument as a site."""
    first = next(iter(inspect.signature(original).parameters))

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if args:
            if callable(args[0]):
                args = (as_site(args[0], kind, planner), *args[1:])
        elif callable(kwargs.get(first)):
            kwargs[first] = as_site(kwargs[first], kind, planner)
        return original(*args, **kwargs)

    return replacement


def as_site(function: Callable[..., Any], kind: str, planner: Planner) -> Callable[..., Any]:
    """Return a function that evaluates another one as the planner says.

    Args:
        function: The program's own.
        kind: ``grad``, or ``shard_map`` for one that matters only inside of such a function.
        planner: Asked at each call.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        depth = getattr(_active, "depth", 0)
        if kind != "grad" and depth == 0:
            return function(*args, **kwargs)
        definition = function_definition(function)
        is_traced = planner.traces(definition, getattr(_active, "is_traced", False))
        with _inside(depth + 1, is_traced):
            traced = None
            if is_traced:
                traced = _trace(function, definition, args, kwargs, planner)
            if traced is None:
                result = function(*args, **kwargs)
            else:
                jaxpr, trace, arguments, rebuild = traced
                # What is mapped belongs to the function that is differentiated.
                own_depth = depth if kind == "grad" else depth - 1
                site = Site(kind, definition, definition, jaxpr, own_depth)
                planner.on_trace(site, trace)
                result = rebuild(evaluate(site, arguments, planner.segments))
        if depth == 0:
            planner.on_return()
        return result

    return call


@contextlib.contextmanager
def _inside(depth: int, is_traced: bool) -> Iterator[None]:
    outer = getattr(_active, "depth", 0), getattr(_active, "is_traced", False)
    _active.depth, _active.is_traced = depth, is_traced
    try:
        yield
    finally:
        _active.depth, _active.is_traced = outer


def _trace(
    function: Callable[..., Any],
    definition: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    planner: Planner,
) -> tuple[FlatJaxpr, Any, list[Any], Callable[[list[Any]], Any]] | None:
    """Trace a call to a jaxpr, whose arguments are the tracers among those of the call.

    Returns:
        The jaxpr, JAX's trace, the arguments, and what makes the result of the function of its
        results. None where nothing of the call is differentiated, or where it reads a value.

    Raises:
        Exception: What the function raises.
    """
    import jax
    from jax._src import core

    from vramfit._plan import _eager

    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    if not places:
        return None
    # Leaves of the result that are not traced: strings, numbers, whatever a program hands along.
    static: dict[int, Any] = {}
    result_tree: Any = None
    own_trace: Any = None
    is_eager = _eager.is_eager()

    def flat(*tracers: Any) -> list[Any]:
        nonlocal result_tree, own_trace
        own_trace = getattr(tracers[0], "_trace", None)
        if is_eager:
            _eager.compute_constants(own_trace)
        result = call_with_leaves(function, tree, leaves, places, tracers)
        results, result_tree = jax.tree.flatten(result)
        static.clear()
        is_static = (not isinstance(each, jax.core.Tracer) for each in results)
        static.update((i, results[i]) for i, is_one in enumerate(is_static) if is_one)
        return [each for index, each in enumerate(results) if index not in static]

    arguments = [leaves[index] for index in places]
    try:
        closed = trace_flat(flat, arguments, [each.aval for each in arguments])
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        # What is compiled cannot read a value: the error is the program's.
        if not any(map(core.is_concrete, arguments)):
            raise
        planner.on_value_read(definition, _user_line(error))
        return None

    def rebuild(results: list[Any]) -> Any:
        rest = iter(results)
        count = len(results) + len(static)
        return jax.tree.unflatten(
            result_tree, [static[i] if i in static else next(rest) for i in range(count)]
        )

    return FlatJaxpr(closed), own_trace, arguments, rebuild


def _user_line(error: BaseException) -> str:
    """Return the innermost line of the user's that an error came through."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not is_library(frame.f_code.co_filename):
            line = site_of(frame.f_code, number)
    return line
