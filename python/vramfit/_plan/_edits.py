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
from vramfit._plan._definition import function_definition


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


# Called with the kind of an edit and the function that was changed by it.
OnApplied = Callable[[str, str], None]


def install(jax: Any, edits: Sequence[Edit], on_applied: OnApplied = lambda *_: None) -> None:
    """Apply edits to the functions that are given to `jax.jit`, as an attribute."""
    if any(edit.kind == "cudnn_attention" for edit in edits):
        attention = jax.nn.dot_product_attention
        jax.nn.dot_product_attention = _with_cudnn(jax, attention, on_applied)
    original = jax.jit

    def compiled(fun: Callable[..., Any], *rest: Any, **options: Any) -> Any:
        name = _program_name(fun)
        own = {edit.kind: edit for edit in edits if edit.function == name and name}
        if not own:
            return original(fun, *rest, **options)
        definition = function_definition(fun)

        def note(kind: str) -> None:
            on_applied(kind, definition)

        if "donate" in own and (donation := _donation(fun, own["donate"].names, options)):
            options = options | donation
            note("donate")
        if "omit" in own:
            fun = _without_outputs(jax, fun, own["omit"].names)
            note("omit")
        jit = functools.partial(original, *rest)
        if "constrain_batch" in own:
            rows = own["constrain_batch"].rows
            return _shardings.with_constrained_batch(jax, jit, fun, options, rows, note)
        if "shard_outputs" in own:
            return _shardings.with_sharded_outputs(jax, jit, fun, options, note)
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


def _program_name(fun: Callable[..., Any]) -> str:
    """Return the name of a function as JAX names its program."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    name = getattr(fun, "__name__", "")
    return "_lambda" if name == "<lambda>" else name


def _with_cudnn(
    jax: Any, attention: Callable[..., Any], on_applied: OnApplied
) -> Callable[..., Any]:
    """Return the function with cuDNN's kernel where the program leaves the choice to JAX."""

    @functools.wraps(attention)
    def with_cudnn(query: Any, *args: Any, **options: Any) -> Any:
        # cuDNN has no kernel for others.
        is_half = jax.numpy.result_type(query) in (jax.numpy.bfloat16, jax.numpy.float16)
        if is_half and options.get("implementation") in (None, "xla"):
            options["implementation"] = "cudnn"
            on_applied("cudnn_attention", "")
        return attention(query, *args, **options)

    return with_cudnn


def _donation(
    fun: Callable[..., Any], names: Sequence[str], options: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the options by which more arguments are donated than the program donates.

    Returns:
        None where an argument has no parameter of its own (`*args`, `**kwargs`).
    """
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return None
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(name not in parameters or parameters[name].kind in several for name in names):
        return None
    donated = {name: index for index, name in enumerate(parameters) if name in names}
    # With one of the two options JAX infers the other, with both it does not.
    own_names, own_numbers = (options.get(name) for name in ("donate_argnames", "donate_argnums"))
    own_names = (own_names,) if isinstance(own_names, str) else own_names or ()
    more = {"donate_argnames": (*own_names, *(set(donated) - set(own_names)))}
    if own_numbers is not None:
        own_numbers = (own_numbers,) if isinstance(own_numbers, int) else own_numbers
        more["donate_argnums"] = (*own_numbers, *(set(donated.values()) - set(own_numbers)))
    return more


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
