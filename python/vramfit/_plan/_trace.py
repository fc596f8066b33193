"""Traces a function that is differentiated to a jaxpr, when the program calls it.

Its Python must not notice. It is called once. Arguments that are not differentiated are given to it
as they are, since it may write to them. A value that outlives the call is what it would be without
the trace, if it does not depend on what is differentiated.
Relies on the traces of ``jax._src``; seen to work with JAX 0.6.2 to 0.12.0.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vramfit._inprogram._frames import is_library, site_of
from vramfit._plan._jaxpr import Equation, FlatJaxpr, user_line
from vramfit._plan._staging import bind, trace_flat

# Of `jax.experimental.io_callback`. When those of `jax.debug` are called is not defined.
_HOST_EFFECTS = ("IOEffect", "OrderedIOEffect")


@dataclasses.dataclass(frozen=True)
class TracedCall:
    """A call that was traced."""

    jaxpr: FlatJaxpr
    # Of the jaxpr: what is differentiated.
    arguments: list[Any]
    # Makes the result of the function of the results of the jaxpr.
    rebuild: Callable[[list[Any]], Any]
    # Whether the call is outside of `jax.jit`, where JAX knows every value.
    is_eager: bool
    # JAX's, which is over.
    trace: Any

    def kept_line(self) -> str | None:
        """Return the line that made a value of the trace which something keeps; None if none is."""
        from jax._src import source_info_util

        for tracer in _kept_tracers(self.trace):
            info = getattr(tracer, "_line_info", None)
            return source_info_util.summarize(info) if info is not None else ""
        return None


def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    on_value_read: Callable[[str], None],
) -> TracedCall | None:
    """Trace a call to a jaxpr.

    Args:
        function: The program's own.
        args: Of the call.
        kwargs: Of the call.
        on_value_read: Called with the line that reads a value or calls the host, and sees the
            result at once, which only a function that is not compiled can.

    Returns:
        None where nothing of the call is differentiated, and where it reads a value.

    Raises:
        Exception: What the function raises.
    """
    import jax
    from jax._src import core

    from vramfit._plan import _eager, _rules

    if jax.config.jax_disable_jit:
        return None  # a loop is a loop of Python, and may look at everything
    current = core.trace_ctx.trace
    call = _CallArguments.divide(args, kwargs, current)
    if call is None:
        return None
    # Leaves of the result that are not traced: strings, numbers, whatever a program hands along.
    static: dict[int, Any] = {}
    result_tree: Any = None
    own_trace: Any = None
    is_eager = _eager.is_eager()

    def flat(*tracers: Any) -> list[Any]:
        nonlocal result_tree, own_trace
        own_trace = getattr(tracers[0], "_trace", None)
        _rules.change_trace_class(
            own_trace, _eager.EagerSiteTrace if is_eager else _rules.SiteTrace
        )
        results, result_tree = jax.tree.flatten(call.repeat(function, tracers))
        static.clear()
        is_static = (not isinstance(each, jax.core.Tracer) for each in results)
        static.update((i, results[i]) for i, is_one in enumerate(is_static) if is_one)
        return [each for index, each in enumerate(results) if index not in static]

    with _eager.noting_reads() as lines:
        try:
            closed = trace_flat(flat, call.arguments, [each.aval for each in call.arguments])
        except Exception as error:
            # What is compiled cannot read a value: the error is the program's.
            is_read = isinstance(error, (jax.errors.JAXTypeError, jax.errors.JAXIndexError))
            # A plain error about an index or a shape shows the tracer that it got.
            is_read = is_read or type(own_trace).__name__ in str(error)
            if not is_eager or not (is_read or lines):
                raise
            lines = lines or [_user_line(error)]
            closed = None
    if not lines and is_eager:
        lines = [user_line(eqn) for eqn in closed.jaxpr.eqns if _calls_host(eqn)]
    if lines:
        on_value_read(lines[0])
        return None

    if not is_eager:
        _bind_kept_values(own_trace, closed, call.arguments)

    def rebuild(results: list[Any]) -> Any:
        rest = iter(results)
        count = len(results) + len(static)
        return jax.tree.unflatten(
            result_tree, [static[i] if i in static else next(rest) for i in range(count)]
        )

    return TracedCall(FlatJaxpr(closed), call.arguments, rebuild, is_eager, own_trace)


@dataclasses.dataclass(frozen=True)
class _CallArguments:
    """The arguments of a call, divided into those that are differentiated and all others."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Positions and names of the arguments with leaves that are differentiated.
    keys: list[int | str]
    leaves: list[Any]
    tree: Any
    # Which of the leaves are differentiated.
    places: list[int]

    @classmethod
    def divide(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any], current: Any
    ) -> _CallArguments | None:
        """Divide the arguments; None if none is differentiated.

        Args:
            args: Of the call.
            kwargs: Of the call.
            current: The trace whose tracers are differentiated.
        """
        import jax

        def is_differentiated(leaf: Any) -> bool:
            return isinstance(leaf, jax.core.Tracer) and leaf._trace is current

        def has_differentiated(value: Any) -> bool:
            with contextlib.suppress(TypeError, ValueError):  # a dictionary of mixed keys
                return any(map(is_differentiated, jax.tree.leaves(value)))
            return False

        every: dict[int | str, Any] = dict(enumerate(args)) | kwargs
        keys = [key for key, value in every.items() if has_differentiated(value)]
        leaves, tree = jax.tree.flatten([every[key] for key in keys])
        places = [index for index, leaf in enumerate(leaves) if is_differentiated(leaf)]
        return cls(args, kwargs, keys, leaves, tree, places) if places else None

    @property
    def arguments(self) -> list[Any]:
        """Return the leaves that are differentiated."""
        return [self.leaves[index] for index in self.places]

    def repeat(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Call a function with other values in the place of what is differentiated."""
        import jax

        leaves = list(self.leaves)
        for index, value in zip(self.places, values, strict=True):
            leaves[index] = value
        parts = zip(self.keys, jax.tree.unflatten(self.tree, leaves), strict=True)
        every = dict(enumerate(self.args)) | self.kwargs | dict(parts)
        return function(
            *(every[index] for index in range(len(self.args))),
            **{name: every[name] for name in self.kwargs},
        )


def _kept_tracers(trace: Any) -> list[Any]:
    """Return what is kept of the values of a trace that is over."""
    from jax._src import core

    def tracers() -> list[Any]:
        return [each for each in gc.get_referrers(trace) if isinstance(each, core.Tracer)]

    if trace is None or not tracers():
        return []
    gc.collect()  # what is left in reference cycles is kept by nobody
    return tracers()


def _bind_kept_values(own_trace: Any, closed: Any, arguments: Sequence[Any]) -> None:
    """Let values that something keeps, such as random keys, be values of the outer trace.

    Without a trace of its own a function computes there what it does not differentiate.
    """
    from jax._src.interpreters import partial_eval

    kept = _kept_tracers(own_trace)
    if not kept:
        return
    outer = _OuterValues(closed, arguments)
    for tracer in kept:
        value = outer.value(getattr(tracer, "val", None))
        # Other tracers, as those of `jax.vmap`, cannot take its place.
        if type(value) is type(tracer) is partial_eval.DynamicJaxprTracer:
            for name in _slot_names(type(tracer)):
                if hasattr(value, name):
                    setattr(tracer, name, getattr(value, name))


def _calls_host(eqn: Any) -> bool:
    """Return whether a program can see when an equation is evaluated: at once, if not compiled."""
    return any(type(effect).__name__ in _HOST_EFFECTS for effect in eqn.effects)


class _OuterValues:
    """Computes, where a function is called, values of its jaxpr that have no derivative."""

    def __init__(self, closed: Any, arguments: Sequence[Any]) -> None:
        from vramfit._plan._rules import differentiated_variables

        self._jaxpr = jaxpr = closed.jaxpr
        self._differentiated = differentiated_variables(jaxpr.invars, jaxpr.eqns)
        variables = (*jaxpr.constvars, *jaxpr.invars)
        self._values = dict(zip(variables, (*closed.consts, *arguments), strict=True))

    def value(self, variable: Any) -> Any:
        """Return the value of a variable; None if it has a derivative, or an effect makes it."""
        if not hasattr(variable, "aval") or hasattr(variable, "val"):
            return None  # a literal
        needed, wanted = [], {variable}
        for eqn in reversed(self._jaxpr.eqns):
            if wanted.intersection(eqn.outvars) and eqn.outvars[0] not in self._values:
                needed.append(eqn)
                wanted.update(each for each in eqn.invars if not hasattr(each, "val"))
        if wanted & self._differentiated or any(eqn.effects for eqn in needed):
            return None
        for eqn in reversed(needed):
            operands = [self._read(each) for each in eqn.invars]
            results = bind(Equation(eqn, (), (), None), operands)
            self._values.update(zip(eqn.outvars, results, strict=True))
        return self._values.get(variable)

    def _read(self, atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else self._values[atom]


def _slot_names(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        yield from (name for name in getattr(each, "__slots__", ()) if name != "__weakref__")


def _user_line(error: BaseException) -> str:
    """Return the innermost line of the user's that an error came through."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not is_library(frame.f_code.co_filename):
            line = site_of(frame.f_code, number)
    return line
