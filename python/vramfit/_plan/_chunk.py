"""Chunks: what `jax.vmap` computes for all elements at once, computed for some of them at a time.

A function that the program gives to `jax.vmap` is traced for one element when it is called inside
of `jax.jit`, and what was traced is mapped by `jax.lax.map` over chunks, each by `jax.vmap`: its
Python is called once, as without a plan. The results are the same up to rounding. So is what
`jax.jacfwd`, `jax.jacrev` and `jax.hessian` map: the derivatives for all inputs, or all outputs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple, Protocol

from vramfit._plan._definition import function_definition
from vramfit._plan._staging import call_with_leaves, trace_flat

# Of these the result or the effect can depend on how many elements are computed together: calls of
# Python and of foreign code, random bits of the hardware's generator, and vectors that may have
# either sign, since JAX chooses the solver of a GPU by the number of matrices.
_INDIVISIBLE = frozenset(
    (
        *("eig", "eigh", "schur", "svd"),
        *("pure_callback", "io_callback", "debug_callback", "debug_print", "buffer_callback"),
        *("ffi_call", "custom_vmap_call", "rng_bit_generator", "rng_uniform"),
    )
)
# Functions with rules for derivatives, which are traced only when they are differentiated.
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")
# The only random keys that give an element the same numbers whatever is computed beside it.
_KEYS = "key<fry>"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a plan says of a function that is mapped."""

    # Where it is defined, as ``file.py:line (function)``.
    function: str
    # Over how many elements it was mapped when the plan was made.
    elements: int
    # How many are computed at a time.
    batch_size: int
    # What maps it: ``vmap``, ``jacfwd`` or ``jacrev``.
    transform: str


class ChunkPlanner(Protocol):
    """Decides for each function that is mapped."""

    def batch_size(self, transform: str, definition: str, elements: int) -> int | None:
        """Return how many elements are computed at a time; None leaves that to the program.

        Args:
            transform: What maps it: ``vmap``, ``jacfwd`` or ``jacrev``.
            definition: The function.
            elements: Over how many it is mapped; of a Jacobian, its inputs or its outputs.
        """

    def on_indivisible(self, definition: str) -> None:
        """Take note of a function that is mapped as it is: chunks could change its results."""


def install(jax: Any, planner: ChunkPlanner) -> None:
    """Let all functions that are given to `jax.vmap`, as an attribute, ask the planner.

    And those of which `jax.jacfwd` and `jax.jacrev` compute the Jacobian: both map by the name
    `vmap` of their own module.
    """
    from jax._src import api

    _exclude_own_lines()
    original = jax.vmap
    signature = inspect.signature(original)

    @functools.wraps(original)
    def vmap(*args: Any, **kwargs: Any) -> Any:
        mapped = original(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        in_axes, out_axes = (given.get(name, 0) for name in ("in_axes", "out_axes"))
        others = ("axis_name", "axis_size", "spmd_axis_name")
        # Of what a name can reach, or what has no elements, nothing is known here.
        if any(given.get(name) is not None for name in others):
            return mapped
        in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        function = given["fun"]
        return _as_chunked(
            jax, original, mapped, _Mapped("vmap", function, function, in_axes, out_axes), planner
        )

    @functools.wraps(original)
    def vmap_of_jacobian(*args: Any, **kwargs: Any) -> Any:
        mapped = original(*args, **kwargs)
        found = _differentiated(sys._getframe(1))
        if found is None:
            return mapped
        transform, function = found
        given = signature.bind(*args, **kwargs).arguments
        of_jacobian = _Mapped(transform, function, given["fun"], 0, given.get("out_axes", 0))
        return _as_chunked(jax, original, mapped, of_jacobian, planner)

    jax.vmap, api.vmap = vmap, vmap_of_jacobian


@functools.cache  # JAX compiles a pattern of all that is excluded, again for each more
def _exclude_own_lines() -> None:
    """Have JAX take no line of this package for one of the user's."""
    from jax._src import source_info_util

    for name in ("_chunk", "_staging"):
        source_info_util.register_exclusion(__file__.replace("_chunk", name))


class _Mapped(NamedTuple):
    """A function that is mapped."""

    # What maps it: ``vmap``, ``jacfwd`` or ``jacrev``.
    transform: str
    # The user's function.
    function: Callable[..., Any]
    # What is called for each element: the function, or its derivative.
    call: Callable[..., Any]
    in_axes: Any
    out_axes: Any


def _differentiated(caller: FrameType) -> tuple[str, Callable[..., Any]] | None:
    """Return of which function a caller of `vmap` computes the Jacobian, and by what transform."""
    if caller.f_code.co_name != "jacfun":
        return None
    values = caller.f_locals
    function = values.get("fun")
    # Integer inputs have derivatives of a type that holds nothing.
    if function is None or values.get("allow_int"):
        return None
    return ("jacrev" if "pullback" in values else "jacfwd"), function


def _as_chunked(
    jax: Any,
    vmap: Callable[..., Any],
    mapped: Callable[..., Any],
    what: _Mapped,
    planner: ChunkPlanner,
) -> Callable[..., Any]:
    """Return the mapped function, computed in the chunks that the planner says."""

    @functools.wraps(mapped)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _is_compiled():
            return mapped(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        axes = _axes_of(tree, what.in_axes)
        elements = 0 if axes is None else _count_elements(leaves, axes)
        if axes is None or not elements or not _are_arrays((args, kwargs), leaves, axes):
            return mapped(*args, **kwargs)
        definition = function_definition(what.function)
        size = planner.batch_size(what.transform, definition, elements)
        if size is None:
            return mapped(*args, **kwargs)
        places = [index for index, axis in enumerate(axes) if axis is not None]
        arrays = [jax.numpy.moveaxis(jax.numpy.asarray(leaves[i]), axes[i], 0) for i in places]
        closed, result_tree = _trace_element(jax, what.call, leaves, tree, places, arrays)
        out_axes = _axes_of_result(result_tree, what.out_axes)
        one, shared = _divide_results(closed, out_axes)
        if one is None:
            if size < elements:
                planner.on_indivisible(definition)
            # Most often that is an error, and JAX has a text for it.
            whole = functools.partial(_evaluate, closed)
            results = vmap(whole, out_axes=out_axes)(*arrays)
            return jax.tree.unflatten(result_tree, results)
        if size < elements and _is_divisible(closed.jaxpr):
            results = _map_chunks(jax, vmap(one), arrays, elements, size)
        else:
            if size < elements:
                planner.on_indivisible(definition)
            results = vmap(one)(*arrays)
        each, all_ = iter(results), iter(shared)
        moved = [
            _with_type_of(aval, next(all_))
            if axis is None
            else jax.numpy.moveaxis(_with_type_of(aval, next(each)), 0, axis)
            for aval, axis in zip(closed.out_avals, out_axes, strict=True)
        ]
        return jax.tree.unflatten(result_tree, moved)

    return call


def _divide_results(
    closed: Any, out_axes: Sequence[int | None]
) -> tuple[Callable[..., Any] | None, list[Any]]:
    """Part the results that each element has from those that all of them share (no axis).

    Returns:
        The function of an element that returns the former, and the latter; None for the function
        where what is to be shared depends on the element.
    """
    from jax._src import core
    from jax._src.interpreters import partial_eval

    is_shared = [axis is None for axis in out_axes]
    if not any(is_shared):
        return functools.partial(_evaluate, closed), []
    common, used = partial_eval.dce_jaxpr(closed.jaxpr, is_shared)
    if any(used):
        return None, []

    def one(*arguments: Any) -> list[Any]:
        results = _evaluate(closed, *arguments)
        return [each for each, shared in zip(results, is_shared, strict=True) if not shared]

    return one, core.eval_jaxpr(common, closed.consts)


def _is_compiled() -> bool:
    """Return whether what is called now is traced for `jax.jit`, or for something like it.

    Outside of it a loop would be compiled again in each call.
    """
    from jax._src import core
    from jax._src.interpreters import partial_eval

    trace = core.trace_ctx.trace
    while trace is not None:
        if isinstance(trace, partial_eval.DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def _are_arrays(arguments: Any, leaves: Sequence[Any], axes: Sequence[int | None]) -> bool:
    """Return whether what is mapped are arrays, and their elements on one device.

    Others are references, and objects with a way of their own to be mapped, such as sparse arrays.
    """
    import jax
    import numpy
    from jax._src import core
    from jax._src.interpreters import batching

    if len(jax.tree.leaves(arguments, is_leaf=batching.is_vmappable)) != len(leaves):
        return False
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is None or isinstance(leaf, (numpy.ndarray, numpy.generic)):
            continue
        aval: Any = getattr(leaf, "aval", None)
        if type(aval) is not core.ShapedArray:
            return False
        # Only with explicit axes of the mesh a type has a partition.
        spec = getattr(getattr(aval, "sharding", None), "spec", ())
        axis %= len(aval.shape)
        if axis < len(spec) and spec[axis] is not None:
            return False
    return True


def _axes_of(tree: Any, axes: Any) -> list[int | None] | None:
    """Return the mapped axis of each leaf of the arguments; None where JAX will refuse the axes."""
    from jax._src import api_util

    try:
        return list(api_util.flatten_axes("vmap in_axes", tree, (axes, 0), kws=True))
    except ValueError:
        return None


def _axes_of_result(tree: Any, axes: Any) -> list[int | None]:
    from jax._src import api_util

    return list(api_util.flatten_axes("vmap out_axes", tree, axes))


def _count_elements(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    """Return over how many elements the leaves are mapped; 0 where JAX will refuse them."""
    counts = set()
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is None:
            continue
        shape = getattr(leaf, "shape", ())
        if not -len(shape) <= axis < len(shape):
            return 0
        counts.add(shape[axis])
    return counts.pop() if len(counts) == 1 else 0


def _trace_element(
    jax: Any,
    function: Callable[..., Any],
    leaves: Sequence[Any],
    tree: Any,
    places: Sequence[int],
    arrays: Sequence[Any],
) -> tuple[Any, Any]:
    """Trace the function for one element.

    Args:
        jax: The module.
        function: The program's own.
        leaves: Of its arguments; those that are not mapped stay as they are.
        tree: Their structure.
        places: Which of them are mapped.
        arrays: Those, their first dimension that of the elements.

    Returns:
        The closed jaxpr, and the structure of the result.
    """
    from jax._src import core
    from jax._src.interpreters import batching

    result_tree: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal result_tree
        result = call_with_leaves(function, tree, leaves, places, tracers)
        results, result_tree = jax.tree.flatten(result)
        if len(jax.tree.leaves(result, is_leaf=batching.is_vmappable)) != len(results):
            raise TypeError("vramfit: a result of a mapped function is no array, and has no chunks")
        return [jax.numpy.asarray(result) for result in results]

    avals = [core.mapped_aval(array.shape[0], 0, array.aval) for array in arrays]
    return trace_flat(flat, arrays, avals), result_tree


def _evaluate(closed: Any, *arguments: Any) -> list[Any]:
    from jax._src import core

    return core.eval_jaxpr(closed.jaxpr, closed.consts, *arguments)  # type: ignore[no-any-return]


def _is_divisible(jaxpr: Any) -> bool:
    """Return whether each element has the same result and effect, whatever is computed with it."""
    return not jaxpr.effects and not any(map(_is_indivisible, _equations(jaxpr)))


def _equations(jaxpr: Any) -> Iterator[Any]:
    from jax._src import core

    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from _equations(inner)


def _is_indivisible(eqn: Any) -> bool:
    name = eqn.primitive.name
    types = (str(getattr(each.aval, "dtype", "")) for each in (*eqn.invars, *eqn.outvars))
    if any(each.startswith("key<") and each != _KEYS for each in types) or name in _INDIVISIBLE:
        return True
    if name.startswith(_WITH_RULES):
        return not _is_of_jax(eqn)
    return bool(eqn.invars) and not _is_mapped_by_jax(eqn.primitive)


def _is_of_jax(eqn: Any) -> bool:
    """Return whether a function with rules of its own is one of JAX."""
    import jax
    from jax._src import core

    folder = os.path.dirname(jax.__file__) + os.sep
    inner = list(core.jaxprs_in_params(eqn.params))
    sources = (getattr(each.debug_info, "func_src_info", None) or "" for each in inner)
    return bool(inner) and all(f" at {folder}" in source for source in sources)


def _is_mapped_by_jax(primitive: Any) -> bool:
    """Return whether JAX has the rule by which a primitive is mapped, and not the program."""
    from jax._src.interpreters import batching

    tables = (batching.fancy_primitive_batchers, batching.primitive_batchers)
    # From 0.9 on the second only adds to the first.
    rules = [table[primitive] for table in tables if isinstance(table, dict) and primitive in table]
    modules = [getattr(each, "__module__", "") for rule in rules for each in _functions_in(rule)]
    return bool(modules) and all(module.startswith("jax.") for module in modules)


def _functions_in(rule: Any) -> Iterator[Any]:
    """Yield the functions that a rule consists of: what JAX has wrapped lies in closures."""
    while isinstance(rule, functools.partial):
        rule = rule.func
    yield rule
    for cell in getattr(rule, "__closure__", None) or ():
        if inspect.isfunction(cell.cell_contents) or isinstance(
            cell.cell_contents, functools.partial
        ):
            yield from _functions_in(cell.cell_contents)


def _with_type_of(aval: Any, result: Any) -> Any:
    """Return a result whose type yields to others as that of one element does (`weak_type`)."""
    from jax._src.lax import lax

    if not hasattr(result, "aval"):
        # A number that the function returns, such as 1.0.
        result = lax.asarray(result)
        result = lax._convert_element_type(result, aval.dtype, aval.weak_type)
    # Keys have no such type.
    is_weak, was_weak = (getattr(each, "weak_type", False) for each in (result.aval, aval))
    return result if is_weak == was_weak else lax._convert_element_type(result, weak_type=was_weak)


def _map_chunks(
    jax: Any, chunk: Callable[..., Any], arrays: Sequence[Any], elements: int, size: int
) -> list[Any]:
    """Compute elements chunk by chunk; the last one begins early enough to be whole."""
    numpy = jax.numpy
    count = -(-elements // size)
    whole = (count - 1) * size

    def divide(array: Any) -> Any:
        if elements % size:
            array = numpy.concatenate([array[:whole], array[elements - size :]])
        return array.reshape(count, size, *array.shape[1:])

    def join(results: Any) -> Any:
        joined = results.reshape(count * size, *results.shape[2:])
        if elements % size == 0:
            return joined
        return numpy.concatenate([joined[:whole], joined[count * size - (elements - whole) :]])

    # Differentiated, a chunk is computed again: else all values of all chunks would be kept.
    body = jax.checkpoint(lambda parts: chunk(*parts), prevent_cse=False)
    results = jax.lax.map(body, tuple(divide(array) for array in arrays))
    return [join(result) for result in results]
