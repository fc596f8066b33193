"""Edits of a program's compiled functions that `vramfit plan` measures and no plan makes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Donation:
    """Arguments to donate to a function that `jax.jit` compiles, by their names."""

    function: str
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Omission:
    """Outputs that a function that `jax.jit` compiles need not return, by their pytree paths."""

    function: str
    outputs: tuple[str, ...]


def install(jax: Any, donations: Sequence[Donation], omissions: Sequence[Omission]) -> None:
    """Let `jax.jit` compile some functions with more donated arguments or fewer outputs."""
    original = jax.jit
    arguments = {donation.function: donation.arguments for donation in donations}
    outputs = {omission.function: omission.outputs for omission in omissions}

    def compiled(fun: Callable[..., Any], *rest: Any, **options: Any) -> Any:
        name = getattr(fun, "__name__", "")
        if name in arguments:
            options = _with_donation(fun, arguments[name], options)
        if name in outputs:
            fun = _without_outputs(jax, fun, outputs[name])
        return original(fun, *rest, **options)

    @functools.wraps(original)
    def jit(*args: Any, **options: Any) -> Any:
        if args and callable(args[0]):
            return compiled(*args, **options)
        if "fun" in options:
            return compiled(**options)
        # A decorator with options.
        return lambda fun: compiled(fun, **options)

    jax.jit = jit


def _with_donation(
    fun: Callable[..., Any], names: Sequence[str], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options of `jax.jit` with more arguments donated than the program donates."""
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return options
    donated = {name: index for index, name in enumerate(parameters) if name in names}
    # With one of the two options JAX infers the other, with both it does not.
    own_names, own_numbers = (options.get(name) for name in ("donate_argnames", "donate_argnums"))
    own_names = (own_names,) if isinstance(own_names, str) else own_names or ()
    more = {"donate_argnames": (*own_names, *(set(donated) - set(own_names)))}
    if own_numbers is not None:
        own_numbers = (own_numbers,) if isinstance(own_numbers, int) else own_numbers
        more["donate_argnums"] = (*own_numbers, *(set(donated.values()) - set(own_numbers)))
    return options | more


def _without_outputs(jax: Any, fun: Callable[..., Any], paths: Sequence[str]) -> Callable[..., Any]:
    """Return the function with empty arrays in the place of some outputs."""

    @functools.wraps(fun)
    def without_outputs(*args: Any, **kwargs: Any) -> Any:
        def keep(path: Any, leaf: Any) -> Any:
            # JAX names outputs so.
            if f"result{jax.tree_util.keystr(path)}" not in paths:
                return leaf
            return jax.numpy.zeros((0,), jax.numpy.result_type(leaf))

        return jax.tree_util.tree_map_with_path(keep, fun(*args, **kwargs))

    return without_outputs
