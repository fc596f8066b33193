"""`vramfit.plan.remat`: applies a plan file to one function, in code."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from vramfit._plan import _file, _sites
from vramfit._plan._apply import FilePlanner
from vramfit._plan._jaxpr import Segment
from vramfit._plan._sites import Site

_Function = TypeVar("_Function", bound=Callable[..., Any])


def remat(path: str | os.PathLike[str]) -> Callable[[_Function], _Function]:
    """Rematerialize a loss function as a plan says.

    Use it for the function that the program gives to `jax.grad` or its relatives, under
    `jax.jit`. Loops and functions of `jax.checkpoint` that it calls follow the plan, too, as far as
    it reaches them by the attributes `jax.lax.scan` and `jax.checkpoint`. Results are the same, up
    to rounding.

    Args:
        path: File that ``vramfit plan --out`` or `PlanResult.save` wrote.

    Returns:
        A decorator. The decorated function raises `InvalidFileError` if it computes something else
        than when the plan was made.

    Raises:
        IoError: If the file cannot be read.
        InvalidFileError: If it is not a plan, or one of a newer version.

    Example:
        >>> @vramfit.plan.remat("plan.toml")  # doctest: +SKIP
        ... def loss(params, batch): ...
    """
    sites = _file.read(path).sites
    planner = FilePlanner(sites, os.fspath(path))

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _call(function, planner, args, kwargs)

        return call  # type: ignore[return-value]

    return decorate


def _call(
    function: Callable[..., Any],
    planner: FilePlanner,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    _install()
    _warn_at_exit(planner)
    with _applying(planner):
        return _sites.as_site(function, "grad", planner)(*args, **kwargs)


class _CurrentPlanner:
    """Decides as the innermost decorated function that this thread is inside of."""

    def wants(self, kind: str) -> bool:
        planner = getattr(_current, "planner", None)
        return planner is not None and planner.wants(kind)

    def segments(self, site: Site) -> Sequence[Segment] | None:
        segments: Sequence[Segment] | None = _current.planner.segments(site)
        return segments


_current = threading.local()


@functools.cache
def _install() -> None:
    import jax

    _sites.install(jax, _CurrentPlanner())


@functools.cache
def _warn_at_exit(planner: FilePlanner) -> None:
    atexit.register(planner.warn_of_unused)


@contextlib.contextmanager
def _applying(planner: FilePlanner) -> Iterator[None]:
    outer = getattr(_current, "planner", None)
    _current.planner = planner
    try:
        yield
    finally:
        _current.planner = outer
