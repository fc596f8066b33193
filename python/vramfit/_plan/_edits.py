"""Edits of a program that a dry run measures and no plan of `vramfit plan` makes.

They can change what a program computes, to rounding or where it uses a donated argument again, so
they are measured and recommended, and the program is left to its author.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from vramfit._plan import _shardings


@dataclasses.dataclass(frozen=True)
class Edit:
    """One edit: ``[[edit]]`` in a plan file."""

    # `donate`, `omit`, `shard_outputs`, `constrain_batch` or `cudnn_attention`.
    kind: str
    # The function that `jax.jit` compiles; empty for `cudnn_attention`, which is of all functions.
    function: str = ""
    # What to donate (names of arguments), or to omit (pytree paths of outputs).
    names: tuple[str, ...] = ()
    # Length of the batch on all devices together, for `constrain_batch`.
    rows: int = 0


def read(entry: dict[str, Any]) -> Edit:
    """Return an entry of a plan file as an edit.

    Raises:
        KeyError: If it lacks something.
        ValueError: If its kind is unknown.
    """
    kind = entry["kind"]
    match kind:
        case "donate":
            return Edit(kind, entry["function"], tuple(entry["arguments"]))
        case "omit":
            return Edit(kind, entry["function"], tuple(entry["outputs"]))
        case "shard_outputs":
            return Edit(kind, entry["function"])
        case "constrain_batch":
            return Edit(kind, entry["function"], rows=int(entry["rows"]))
        case "cudnn_attention":
            return Edit(kind)
    raise ValueError(f"unknown edit `{kind}`")


def install(jax: Any, edits: Sequence[Edit]) -> None:
    """Apply edits to the functions that are given to `jax.jit`, as an attribute."""
    if any(edit.kind == "cudnn_attention" for edit in edits):
        jax.nn.dot_product_attention = _with_cudnn(jax, jax.nn.dot_product_attention)
    original = jax.jit

    def compiled(fun: Callable[..., Any], *rest: Any, **options: Any) -> Any:
        name = getattr(fun, "__name__", "")
        own = {edit.kind: edit for edit in edits if edit.function == name and name}
        if "donate" in own:
            options = _with_donation(fun, own["donate"].names, options)
        if "omit" in own:
            fun = _without_outputs(jax, fun, own["omit"].names)
        jit = functools.partial(original, *rest)
        if "constrain_batch" in own:
            return _shardings.with_constrained_batch(
                jax, jit, fun, options, own["constrain_batch"].rows
            )
        if "shard_outputs" in own:
            return _shardings.with_sharded_outputs(jax, jit, fun, options)
        return jit(fun, **options)

    @functools.wraps(original)
    def jit(*args: Any, **options: Any) -> Any:
        if args and callable(args[0]):
            return compiled(*args, **options)
        if "fun" in options:
            return compiled(**options)
        # A decorator with options.
        return lambda fun: compiled(fun, **options)

    jax.jit = jit


def _with_cudnn(jax: Any, attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with cuDNN's kernel where the program leaves the choice to JAX."""

    @functools.wraps(attention)
    def with_cudnn(query: Any, *args: Any, **options: Any) -> Any:
        # cuDNN has no kernel for others.
        is_half = jax.numpy.result_type(query) in (jax.numpy.bfloat16, jax.numpy.float16)
        if is_half and options.get("implementation") in (None, "xla"):
            options["implementation"] = "cudnn"
        return attention(query, *args, **options)

    return with_cudnn


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
