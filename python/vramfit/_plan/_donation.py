"""Donates arguments that a program's functions could donate, for `vramfit plan` to measure it."""

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


def install(jax: Any, donations: Sequence[Donation]) -> None:
    """Let `jax.jit` donate arguments of some functions, beside those that the program donates."""
    original = jax.jit
    by_name = {donation.function: donation.arguments for donation in donations}

    def with_donation(fun: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
        names = by_name.get(getattr(fun, "__name__", ""), ())
        if not names:
            return options
        try:
            parameters = inspect.signature(fun).parameters
        except (TypeError, ValueError):
            return options
        donated = {name: index for index, name in enumerate(parameters) if name in names}
        # With one of the two options JAX infers the other, with both it does not.
        own_names, own_numbers = (
            options.get(name) for name in ("donate_argnames", "donate_argnums")
        )
        own_names = (own_names,) if isinstance(own_names, str) else own_names or ()
        more = {"donate_argnames": (*own_names, *(set(donated) - set(own_names)))}
        if own_numbers is not None:
            own_numbers = (own_numbers,) if isinstance(own_numbers, int) else own_numbers
            more["donate_argnums"] = (*own_numbers, *(set(donated.values()) - set(own_numbers)))
        return options | more

    @functools.wraps(original)
    def jit(*args: Any, **options: Any) -> Any:
        if args and callable(args[0]):
            return original(*args, **with_donation(args[0], options))
        if "fun" in options:
            return original(**with_donation(options["fun"], options))
        # A decorator with options.
        return lambda fun: original(fun, **with_donation(fun, options))

    jax.jit = jit
