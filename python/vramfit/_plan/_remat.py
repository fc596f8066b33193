"""`vramfit.plan.remat`: applies a plan file to one function, in code."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from vramfit._plan import _file, _sites
from vramfit._plan._apply import PlanApplier
from vramfit._plan._evaluate import Site
from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._segment import SiteChange
from vramfit._plan._trace import TracedCall
from vramfit.errors import InvalidFileError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def remat(path: str | os.PathLike[str]) -> Callable[[_Function], _Function]:
    """Rematerialize a loss function as a plan says.

    Use it for the function that the program gives to `jax.grad` or its relatives, under
    `jax.jit`. Loops and functions of `jax.checkpoint` that it calls follow the plan, too. Its
    Python is evaluated once, as without the plan. Results are the same, up to rounding.

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
    plan = _file.read(path)
    if plan.chunks:
        raise InvalidFileError(
            f"the plan `{os.fspath(path)}` computes what is mapped in chunks",
            hint="apply it to the whole program: `vramfit run --plan FILE -- COMMAND`",
        )
    planner = PlanApplier(plan.sites, os.fspath(path), is_counted=False)

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _call(function, planner, args, kwargs)

        return call  # type: ignore[return-value]

    return decorate


def _call(
    function: Callable[..., Any],
    planner: PlanApplier,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    _install()
    _warn_at_exit(planner)
    with _applying(planner):
        result = _sites.as_site(function, "grad", _CurrentPlanner())(*args, **kwargs)
    planner.on_return("", None)
    return result


class _CurrentPlanner:
    """Decides as the innermost decorated function that this thread is inside of."""

    def traces(self, definition: str, is_within: bool) -> bool:
        planner = getattr(_current, "planner", None)
        return planner is not None and planner.traces(definition, is_within)

    def on_trace(self, site: Site, traced: TracedCall) -> None:
        _current.planner.on_trace(site, traced)

    def change(self, site: Site) -> SiteChange | None:
        change: SiteChange | None = _current.planner.change(site)
        return change

    def on_value_read(self, definition: str, line: str) -> None:
        _current.planner.on_value_read(definition, line)

    def on_return(self, definition: str, jaxpr: FlatJaxpr | None) -> None:
        """Do nothing: the decorated function notes that it has returned."""


_current = threading.local()


@functools.cache
def _install() -> None:
    import jax

    _sites.install(jax, _CurrentPlanner())


@functools.cache
def _warn_at_exit(planner: PlanApplier) -> None:
    atexit.register(planner.warn_of_unmet)


@contextlib.contextmanager
def _applying(planner: PlanApplier) -> Iterator[None]:
    outer = getattr(_current, "planner", None)
    _current.planner = planner
    try:
        yield
    finally:
        _current.planner = outer
