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
        own = options.get("donate_argnames") or ()
        own = (own,) if isinstance(own, str) else tuple(own)
        more = tuple(name for name in names if name in parameters and name not in own)
        return options | {"donate_argnames": own + more} if more else options

    @functools.wraps(original)
    def jit(*args: Any, **options: Any) -> Any:
        if args and callable(args[0]):
            return original(*args, **with_donation(args[0], options))
        if "fun" in options:
            return original(**with_donation(options["fun"], options))
        # A decorator with options.
        return lambda fun: original(fun, **with_donation(fun, options))

    jax.jit = jit
