"""Sites: the functions of a program whose activations can be rematerialized.

A site is a function that the program gives to `jax.grad` and its relatives, to `jax.lax.scan` or to
`jax.checkpoint`. Those attributes of JAX are replaced right after JAX is imported, so that
libraries built on them are reached, too. When a site is called it is traced once, to a jaxpr, which
is then evaluated as the plan says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from vramfit._frames import file_name
from vramfit._plan._jaxpr import FlatJaxpr, Segment

# Functions whose first argument is differentiated.
DIFFERENTIATING = ("grad", "value_and_grad", "vjp", "linearize")


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a function can be rematerialized."""

    # `grad`, `scan` or `checkpoint`.
    kind: str
    # Its definition, as ``file.py:line (function)``.
    definition: str
    # Whether it was called by a function that is differentiated.
    is_differentiated: bool
    jaxpr: FlatJaxpr


class Planner(Protocol):
    """Decides for each call of a site."""

    def wants(self, kind: str) -> bool:
        """Return whether sites of a kind are traced at all; if not, they are called as they are."""

    def segments(self, site: Site) -> Sequence[Segment] | None:
        """Return what to rematerialize; None leaves that to the program."""


# How many functions being differentiated the current thread is inside of.
_active = threading.local()


def install(jax: Any, planner: Planner) -> None:
    """Let all sites of programs that call JAX by its attributes ask the planner.

    Args:
        jax: The module, just imported.
        planner: Asked at each call of a site.
    """
    from jax._src import source_info_util

    # Lines of this package are no lines of the user's.
    source_info_util.register_exclusion(__file__)
    source_info_util.register_exclusion(__file__.replace("_sites", "_jaxpr"))
    for name in DIFFERENTIATING:
        setattr(jax, name, _replace_first(getattr(jax, name), "grad", planner))
    jax.lax.scan = _replace_first(jax.lax.scan, "scan", planner)
    replacement = _replace_checkpoint(jax.checkpoint, planner)
    jax.checkpoint = jax.remat = replacement


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

    replacement.vramfit_original = original  # type: ignore[attr-defined]
    return replacement


def _replace_checkpoint(original: Callable[..., Any], planner: Planner) -> Callable[..., Any]:
    """Return `jax.checkpoint` with the planner asked before the policy that the program names."""

    @functools.wraps(original)
    def checkpoint(fun: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        plain: Callable[..., Any] = original(fun, **options)
        if options.get("static_argnums") or options.get("static_argnames"):
            return plain  # which arguments are static is not known to a site
        prevent_cse = options.get("prevent_cse", True)
        if not isinstance(prevent_cse, bool):
            return plain

        def whole(jaxpr: FlatJaxpr) -> Segment:
            count = len(jaxpr.equations)
            return Segment(0, count, save=options.get("policy"), prevent_cse=prevent_cse)

        return as_site(fun, "checkpoint", planner, plain, whole)

    checkpoint.vramfit_original = original  # type: ignore[attr-defined]
    return checkpoint


def as_site(
    function: Callable[..., Any],
    kind: str,
    planner: Planner,
    plain: Callable[..., Any] | None = None,
    whole: Callable[[FlatJaxpr], Segment] | None = None,
) -> Callable[..., Any]:
    """Return a function that evaluates another one as the planner says.

    Args:
        function: The program's own.
        kind: Of the site.
        planner: Asked at each call.
        plain: What is called where nothing is to be changed; the function itself unless given.
        whole: For a function that the program rematerializes itself: how.
    """
    plain = plain or function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_differentiated = kind == "grad" or getattr(_active, "depth", 0) > 0
        with _differentiating(kind == "grad"):
            traced = _trace(function, args, kwargs) if planner.wants(kind) else None
            if traced is None:
                return plain(*args, **kwargs)
            jaxpr, arguments, rebuild = traced
            site = Site(kind, _definition(function), is_differentiated, jaxpr)
            segments = planner.segments(site)
            if whole is not None:
                own = whole(jaxpr)
                segments = [
                    dataclasses.replace(segment, prevent_cse=own.prevent_cse)
                    for segment in ((own,) if segments is None else segments)
                ]
            return rebuild(jaxpr.evaluate(arguments, segments or ()))

    return call


@contextlib.contextmanager
def _differentiating(is_differentiated: bool) -> Iterator[None]:
    depth = getattr(_active, "depth", 0)
    _active.depth = depth + is_differentiated
    try:
        yield
    finally:
        _active.depth = depth


def _trace(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[FlatJaxpr, list[Any], Callable[[list[Any]], Any]] | None:
    """Trace a call to a jaxpr, whose arguments are the tracers among those of the call.

    Returns:
        The jaxpr, its arguments, and what makes the result of the function of its results. None
        where the call cannot be traced to a jaxpr, or has effects, which must happen exactly as
        often as the program says.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    if not places:
        return None
    # Leaves of the result that are no arrays: strings, flags, whatever a program hands along.
    static: dict[int, Any] = {}
    result_tree: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal result_tree
        whole = list(leaves)
        for index, tracer in zip(places, tracers, strict=True):
            whole[index] = tracer
        own_args, own_kwargs = jax.tree.unflatten(tree, whole)
        results, result_tree = jax.tree.flatten(function(*own_args, **own_kwargs))
        static.clear()
        static.update((i, each) for i, each in enumerate(results) if not _is_array(each))
        return [each for index, each in enumerate(results) if index not in static]

    arguments = [leaves[index] for index in places]
    try:
        closed = jax.make_jaxpr(flat)(*arguments)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return None  # it reads values, as a function that is not compiled may
    if closed.effects:
        return None

    def rebuild(results: list[Any]) -> Any:
        rest = iter(results)
        count = len(results) + len(static)
        return jax.tree.unflatten(
            result_tree, [static[i] if i in static else next(rest) for i in range(count)]
        )

    return FlatJaxpr(closed), arguments, rebuild


def _is_array(value: Any) -> bool:
    import jax
    import numpy as np

    return isinstance(value, (jax.Array, np.ndarray, np.generic, bool, int, float, complex))


def _definition(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as ``file.py:line (function)``, through wrappers."""
    inner: Any = function
    while True:
        if isinstance(inner, functools.partial):
            inner = inner.func
        elif hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        elif hasattr(inner, "f") and callable(inner.f):  # objects of Flax NNX that hold a function
            inner = inner.f
        else:
            break
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    if code is None:
        return getattr(inner, "__qualname__", type(inner).__qualname__)
    name = getattr(inner, "__qualname__", code.co_name).replace("<locals>.", "")
    return f"{file_name(code.co_filename)}:{code.co_firstlineno} ({name})"
