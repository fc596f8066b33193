"""Edits of how a program divides its arrays among devices; see `_edits`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._staging import bind, call_with_leaves, read_value, trace_flat, trace_to_jaxpr

# What else a compiled function offers; a program may call it.
_METHODS = ("lower", "trace", "eval_shape", "clear_cache")


def with_sharded_outputs(
    jax: Any,
    jit: Callable[..., Any],
    fun: Callable[..., Any],
    options: dict[str, Any],
    note: Callable[[str], None],
) -> Callable[..., Any]:
    """Compile a function so that an output is divided like an argument of its shape.

    Other outputs are on all devices. A function that says itself how outputs are divided, and one
    without an argument that is divided, are left alone.
    """
    compiled = jit(fun, **options)
    if options.get("out_shardings") is not None:
        return compiled  # type: ignore[no-any-return]
    known: dict[Any, Any] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        divided = [each for each in jax.tree.leaves((args, kwargs)) if _is_divided(jax, each)]
        if not divided:
            return compiled(*args, **kwargs)
        by_shape = {each.shape: each.sharding for each in reversed(divided)}
        on_all = jax.sharding.NamedSharding(divided[0].sharding.mesh, jax.sharding.PartitionSpec())
        shapes = compiled.eval_shape(*args, **kwargs)
        shardings = jax.tree.map(lambda leaf: by_shape.get(leaf.shape, on_all), shapes)
        leaves, tree = jax.tree.flatten(shardings)
        key = (tree, tuple(leaves))
        if key not in known:
            known[key] = jit(fun, **options | {"out_shardings": shardings})
            note("shard_outputs")
        return known[key](*args, **kwargs)

    return _with_methods_of(compiled, call)


def with_constrained_batch(
    jax: Any,
    jit: Callable[..., Any],
    fun: Callable[..., Any],
    options: dict[str, Any],
    rows: int,
    note: Callable[[str], None],
) -> Callable[..., Any]:
    """Compile a function with its batch divided among devices as its argument is.

    The first value that is computed for all rows, and what each `jax.lax.scan` hands from one
    iteration to the next, get a `jax.lax.with_sharding_constraint` of their first dimension.

    Args:
        jax: The module.
        jit: `jax.jit`.
        fun: The program's own.
        options: Of `jax.jit`.
        rows: The length of the batch.
        note: Called when the function is changed.
    """
    sharding: Any = None

    @functools.wraps(fun)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        if sharding is None:
            return fun(*args, **kwargs)
        note("constrain_batch")
        return _evaluate_constrained(jax, fun, args, kwargs, rows, sharding)

    compiled = jit(constrained, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal sharding
        leaves = jax.tree.leaves((args, kwargs))
        sharding = next(
            (found for each in leaves if (found := _batch_sharding(jax, each, rows))), None
        )
        return compiled(*args, **kwargs)

    return _with_methods_of(compiled, call)


def _with_methods_of(compiled: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the methods of one that `jax.jit` has compiled."""
    for name in _METHODS:
        if hasattr(compiled, name):
            setattr(call, name, getattr(compiled, name))
    return functools.update_wrapper(call, compiled, updated=())


def _is_divided(jax: Any, leaf: Any) -> bool:
    """Return whether an array is divided among devices by a mesh."""
    sharding = None if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return False
    return not sharding.is_fully_replicated


def _batch_sharding(jax: Any, leaf: Any, rows: int) -> Any:
    """Return the sharding of the first dimension of a batch; None if the leaf is none."""
    if not _is_divided(jax, leaf) or leaf.shape[:1] != (rows,):
        return None
    [first, *_] = leaf.sharding.spec or (None,)
    if first is None:
        return None
    return jax.sharding.NamedSharding(leaf.sharding.mesh, jax.sharding.PartitionSpec(first))


def _evaluate_constrained(
    jax: Any,
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rows: int,
    sharding: Any,
) -> Any:
    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    arguments = [leaves[index] for index in places]
    result_tree: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal result_tree
        result = call_with_leaves(fun, tree, leaves, places, tracers)
        results, result_tree = jax.tree.flatten(result)
        return [jax.numpy.asarray(result) for result in results]

    jaxpr = FlatJaxpr(trace_flat(flat, arguments, [each.aval for each in arguments]))
    results = _Constraints(jax, rows, sharding).evaluate(jaxpr, arguments)
    return jax.tree.unflatten(result_tree, results)


class _Constraints:
    """Evaluates a jaxpr with constraints of the values that are computed for all rows."""

    def __init__(self, jax: Any, rows: int, sharding: Any) -> None:
        self._jax = jax
        self._rows = rows
        self._sharding = sharding
        self._has_begun = False

    def evaluate(self, jaxpr: FlatJaxpr, arguments: Sequence[Any]) -> list[Any]:
        values: dict[int, Any] = dict(enumerate(arguments))

        for equation in jaxpr.equations:
            operands = [read_value(jaxpr, values, number) for number in equation.inputs]
            parameters = None
            if equation.name == "scan":
                parameters = self._with_constrained_carry(equation.eqn)
            results = bind(equation, operands, parameters)
            if not self._has_begun and any(map(self._is_batch, results)):
                results = list(map(self._constrain, results))
                self._has_begun = True
            values.update(zip(equation.outputs, results, strict=True))
        return [read_value(jaxpr, values, number) for number in jaxpr.outputs]

    def _with_constrained_carry(self, eqn: Any) -> dict[str, Any] | None:
        """Return the parameters of a scan; None where it hands on nothing of the batch."""
        from jax._src import core, linear_util

        closed = eqn.params["jaxpr"]
        if "num_carry" in eqn.params:
            first, count = eqn.params["num_consts"], eqn.params["num_carry"]
        else:  # from JAX 0.12 on: trees of constants, what is handed on, and what is iterated over
            first, count, *_ = map(len, eqn.params["ft_in"].unpack())
        carry = range(first, first + count)
        if not any(self._is_batch(closed.in_avals[at]) for at in carry):
            return None

        def body(*arguments: Any) -> list[Any]:
            arguments = tuple(
                self._constrain(each) if at in carry else each for at, each in enumerate(arguments)
            )
            return core.eval_jaxpr(closed.jaxpr, closed.consts, *arguments)  # type: ignore[no-any-return]

        wrapped = linear_util.wrap_init(body, debug_info=closed.jaxpr.debug_info)
        with eqn.ctx.manager:
            return dict(eqn.params) | {"jaxpr": trace_to_jaxpr(wrapped, closed.in_avals)}

    def _is_batch(self, value: Any) -> bool:
        aval = getattr(value, "aval", value)
        is_real = self._jax.numpy.issubdtype(aval.dtype, self._jax.numpy.inexact)
        return is_real and len(aval.shape) > 1 and aval.shape[0] == self._rows

    def _constrain(self, value: Any) -> Any:
        if not self._is_batch(value):
            return value
        [first] = self._sharding.spec
        # The other dimensions stay as the partitioner wants them.
        free = self._jax.sharding.PartitionSpec.UNCONSTRAINED
        spec = self._jax.sharding.PartitionSpec(first, *[free] * (value.ndim - 1))
        sharding = self._jax.sharding.NamedSharding(self._sharding.mesh, spec)
        return self._jax.lax.with_sharding_constraint(value, sharding)
