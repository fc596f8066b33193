"""Calls a program's arguments by the paths that the user knows, where JAX only counts them.

JAX names the leaves of what a jitted function is given. Libraries that flatten their arguments
themselves, before JAX sees them, leave it with positions:

========================  ==============================  ==========================
who flattens              JAX's name                      the name here
========================  ==============================  ==========================
``equinox.filter_jit``    ``dynamic_nodonate['first'][0]``  ``model.layers[0].weight``
``jax.pmap`` from 0.8     ``flat_args[3]``                ``state.params['kernel']``
a loop outside of a jit   ``args[1]``                     ``carry['kernel']``
``flax.nnx.jit``          ``model.states[0][3]``          see ``_nnx_names``
``keras.Model.fit``       ``state[0][4]``                 see ``_keras_names``
========================  ==============================  ==========================

Relies on internals of JAX and Equinox. Where they are not as expected, JAX's own names stay; names
are all that is changed. Seen to work with Equinox 0.13.8 and JAX 0.10.2.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from vramfit._inprogram import _keras_names, _nnx_names

# What the function that `equinox.filter_jit` hands to JAX calls its arguments.
_EQUINOX_PARAMETERS = ["dynamic_donate", "dynamic_nodonate", "static"]

# From the arguments as JAX sees them to the names of their leaves.
_LeafNames = Callable[[Sequence[Any]], "tuple[str, ...]"]

# The arguments of the loop that is being run outside of a jit, and their names.
_loop: ContextVar[tuple[tuple[Any, ...], tuple[str, ...]] | None] = ContextVar("loop", default=None)


def install_argument_names() -> None:
    """Let JAX name a program's arguments by path; the names are all that changes."""
    from jax._src import api_util, source_info_util

    # What stands between JAX and JAX here is no line of the user's.
    source_info_util.register_exclusion(__file__)
    plain = api_util._non_static_arg_names

    @functools.wraps(plain)
    def naming(signature: Any, args: Any, kwargs: Any, *rest: Any, **settings: Any) -> Any:
        with contextlib.suppress(Exception):
            if (names := _known_names(signature, args, kwargs)) is not None:
                return names
        with contextlib.suppress(Exception):
            args, kwargs = _keras_names.with_paths(*_nnx_names.with_paths(args, kwargs))
        return plain(signature, args, kwargs, *rest, **settings)

    api_util._non_static_arg_names = naming
    # A release whose `pmap` is built in another way names its arguments itself.
    with contextlib.suppress(Exception):
        _record_pmap()
    with contextlib.suppress(Exception):
        _record_loops()


def _known_names(signature: Any, args: Any, kwargs: Any) -> tuple[str, ...] | None:
    """Return the names of all leaves where someone is known who flattened them."""
    if isinstance(signature, _FlatSignature):
        names = signature.leaf_names(args)
        return names if len(names) == len(args) else None
    if (loop := _loop.get()) is not None:
        given, names = loop
        if len(args) == len(given) and all(map(operator.is_, args, given)):
            return names
    if signature is not None and list(signature.parameters) == _EQUINOX_PARAMETERS:
        return _equinox_names(*args)
    return None


def _equinox_names(donated: Any, kept: Any, static: Any) -> tuple[str, ...]:
    """Return the names of what ``equinox.filter_jit`` passes to JAX.

    Args:
        donated: The leaves that are donated, by what they belong to: the function (``fun``), its
            first argument (``first``), the others (``rest``). What is no array is ``None``.
        kept: The same for those that are not donated.
        static: For each of the three, the leaves that are no arrays, and the structure.
    """
    import jax

    dynamic = {**donated, **kept}
    whole = {
        part: structure.unflatten(
            [
                ours if ours is not None else theirs
                for ours, theirs in zip(given, leaves, strict=True)
            ]
        )
        for part, (leaves, structure) in zip(("fun", "first", "rest"), static, strict=True)
        for given in [dynamic[part]]
    }
    positional, keywords = whole["rest"]
    # Equinox adds an argument to the positional ones, so that there always is a first.
    arguments = (whole["first"], *positional)[:-1]
    tops = list(itertools.islice(_parameter_names(whole["fun"]), len(arguments)))
    names = {
        # The arrays of a callable module, or of the module that a method is bound to.
        "fun": [name.replace("self.__self__", "self", 1) for name in _paths("self", whole["fun"])],
        "first": _paths(tops[0] if tops else "", whole["first"]),
        "rest": [
            *(
                name
                for top, one in zip(tops[1:], arguments[1:], strict=True)
                for name in _paths(top, one)
            ),
            *(name for key in sorted(keywords) for name in _paths(key, keywords[key])),
        ],
    }

    def named(leaves: dict[str, Any]) -> dict[str, Any]:
        return {
            part: [name for name, leaf in zip(names[part], given, strict=True) if leaf is not None]
            for part, given in leaves.items()
        }

    return tuple(jax.tree.leaves((named(donated), named(kept))))


def _parameter_names(function: Callable[..., Any] | None) -> Iterator[str]:
    """Yield what a function calls its positional arguments, without end."""
    parameters = inspect.signature(function).parameters.values() if function else ()
    rest = "args"
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            yield parameter.name
        elif parameter.kind == parameter.VAR_POSITIONAL:
            rest = parameter.name
    for number in itertools.count():
        yield f"{rest}[{number}]"


def _paths(top: str, tree: Any) -> list[str]:
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{top}{jax.tree_util.keystr(path)}" for path, _ in leaves]


class _FlatSignature(inspect.Signature):
    """The signature of a function of flat arguments, which knows what they were flattened from."""

    leaf_names: _LeafNames


def _record_pmap() -> None:
    """Let the functions that ``jax.pmap`` jits know the trees of the user's function."""
    from jax._src import pmap

    for name in ("shard_map", "_shard_map"):
        if plain := getattr(pmap, name, None):
            setattr(pmap, name, _record_leaf_names(plain))


def _record_leaf_names(shard_map: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(shard_map)
    def recording(function: Any, **settings: Any) -> Any:
        mapped = shard_map(function, **settings)
        with contextlib.suppress(Exception):
            flat = inspect.signature(mapped)
            signature = _FlatSignature(list(flat.parameters.values()))
            signature.leaf_names = _pmap_names(function)
            mapped.__signature__ = signature
        return mapped

    return recording


def _pmap_names(function: Any) -> _LeafNames:
    """Return what names the flat arguments of the function that ``jax.pmap`` maps."""
    wrapped = getattr(function, "__self__", None)
    if wrapped is not None:  # JAX 0.8: a wrapped function, which knows the names of its leaves
        return lambda _: tuple(wrapped.debug_info.arg_names)
    # JAX 0.9 and later: a closure over the user's function and the tree of its arguments.
    held = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    users, tree = held["fun"].cell_contents, held["in_tree"].cell_contents

    def names(flat: Sequence[Any]) -> tuple[str, ...]:
        args, kwargs = tree.unflatten(flat)
        tops = users.debug_info.arg_names or ()
        if len(args) > len(tops):
            tops = [f"args[{number}]" for number in range(len(args))]
        given = [*zip(tops, args, strict=False), *((key, kwargs[key]) for key in sorted(kwargs))]
        return tuple(name for top, one in given for name in _paths(top, one))

    return names


def _record_loops() -> None:
    """Let a ``scan`` or ``while_loop`` outside of a jit tell what its arguments are called.

    JAX jits the loop alone, as a function of a list; the arguments of its body have names.
    """
    from jax._src.lax.control_flow import loops

    for loop, names in (
        (loops.scan_p, lambda kept: (0, kept["jaxpr"])),
        (loops.while_p, lambda kept: (kept["cond_nconsts"], kept["body_jaxpr"])),
    ):
        loop.impl = _noting_body(loop.impl, names)


def _noting_body(run: Callable[..., Any], body_of: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recording(*args: Any, **params: Any) -> Any:
        known = None
        with contextlib.suppress(Exception):
            first, body = body_of(params)
            names = [*[""] * first, *body.jaxpr.debug_info.arg_names]
            if len(names) == len(args):
                # What the body closes over has no name.
                known = args, tuple(name or f"args[{at}]" for at, name in enumerate(names))
        token = _loop.set(known)
        try:
            return run(*args, **params)
        finally:
            _loop.reset(token)

    return recording
