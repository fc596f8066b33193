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
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from vramfit._plan._definition import function_definition
from vramfit._plan._evaluate import Site, evaluate
from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._segment import SiteChange
from vramfit._plan._trace import TracedCall, trace

# Functions whose first argument is differentiated.
DIFFERENTIATING = ("grad", "value_and_grad", "vjp", "linearize", "jacrev")


class Planner(Protocol):
    """Decides for each function that is differentiated."""

    def traces(self, definition: str, is_within: bool) -> bool:
        """Return whether the function is traced; if not, it is called as it is.

        Args:
            definition: The function.
            is_within: Whether it is called by a function that is being traced.
        """

    def on_trace(self, site: Site, traced: TracedCall) -> None:
        """Take note of a function that was traced."""

    def change(self, site: Site) -> SiteChange | None:
        """Return what to change; None leaves the site as the program has it."""

    def on_value_read(self, definition: str, line: str) -> None:
        """Take note of a function that reads a value, so that it cannot be traced.

        Its Python has run to that line. If this returns, it is called again.
        """

    def on_return(self, definition: str, jaxpr: FlatJaxpr | None) -> None:
        """Take note that a function that is differentiated has returned, and is in no other.

        Args:
            definition: The function.
            jaxpr: What it computes; None if it was not traced.
        """


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
    for name in ("_sites", "_trace", "_evaluate", "_staging", "_eager", "_rules"):
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
                on_value_read = functools.partial(planner.on_value_read, definition)
                traced = trace(function, args, kwargs, on_value_read)
            if traced is None:
                result = function(*args, **kwargs)
            else:
                # What is mapped belongs to the function that is differentiated.
                own_depth = depth if kind == "grad" else depth - 1
                site = Site(kind, definition, definition, traced.jaxpr, own_depth)
                planner.on_trace(site, traced)
                result = traced.rebuild(evaluate(site, traced.arguments, planner.change))
        if depth == 0:
            planner.on_return(definition, traced.jaxpr if traced is not None else None)
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
