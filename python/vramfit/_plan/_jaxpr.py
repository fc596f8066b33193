"""A jaxpr as a list of equations that can be evaluated in segments, each rematerialized.

Calls of ``jax.jit`` inside the jaxpr are expanded where they contain expensive equations, so that a
segment can begin or end inside of them. Relies on the attributes of equations that
``jax.extend.core`` documents, and on what ``jax.core.eval_jaxpr`` does with them; seen to work with
JAX 0.6.2 to 0.12.0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Equations that keep what they need for the backward pass by rules of their own, or that must be
# evaluated once: no segment contains them.
_OWN_RULES = {"scan", "while", "checkpoint", "remat", "remat2", "shard_map", "cond"}
# Equations worth expanding a call for.
_EXPENSIVE = {"dot_general", "conv_general_dilated", "custom_vjp_call", "custom_vjp_call_jaxpr"}
_JIT = {"jit", "pjit"}

# The name for `checkpoint_name` of values that enter a segment and are offloaded.
INPUT_NAME = "vramfit:input"
# A smaller value is not worth a transfer.
MIN_OFFLOADED_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Equation:
    """One equation, with its operands by number: of a value, or of a constant if negative."""

    eqn: Any
    inputs: tuple[int, ...]
    # Numbers of its results.
    outputs: tuple[int, ...]
    # Names of the calls it was inside of.
    name_stack: Any

    @property
    def name(self) -> str:
        """Return the name of the primitive."""
        return str(self.eqn.primitive.name)

    @property
    def is_barrier(self) -> bool:
        """Return whether no segment can contain it."""
        return self.name in _OWN_RULES or bool(self.eqn.effects)


class FlatJaxpr:
    """A closed jaxpr with its calls expanded.

    Values are numbered: first the arguments, then the results of the equations in their order.
    """

    def __init__(self, closed: Any) -> None:
        self.input_count = len(closed.jaxpr.invars)
        self.input_bytes = [_aval_bytes(variable.aval) for variable in closed.jaxpr.invars]
        self.equations: list[Equation] = []
        # Constants of the jaxpr and literals of its equations; number -1 is the first.
        self.constants: list[Any] = []
        self._next = self.input_count
        self.outputs = self._expand(closed, list(range(self.input_count)), None)
        self.output_avals = [atom.aval for atom in closed.jaxpr.outvars]
        self.effects = closed.jaxpr.effects

    def _expand(self, closed: Any, inputs: list[int], name_stack: Any) -> list[int]:
        numbers = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        for variable, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            numbers[variable] = self._constant(constant)

        def read(atom: Any) -> int:
            return self._constant(atom.val) if hasattr(atom, "val") else numbers[atom]

        for eqn in closed.jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            if _is_worth_expanding(eqn):
                own = eqn.source_info.name_stack
                inner = own if name_stack is None else name_stack + own
                inner = inner.extend(str(eqn.params["name"])) if hasattr(inner, "extend") else inner
                results = self._expand(eqn.params["jaxpr"], operands, inner)
            else:
                results = list(range(self._next, self._next + len(eqn.outvars)))
                self._next += len(eqn.outvars)
                equation = Equation(eqn, tuple(operands), tuple(results), name_stack)
                self.equations.append(equation)
            numbers.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in closed.jaxpr.outvars]

    def _constant(self, value: Any) -> int:
        self.constants.append(value)
        return -len(self.constants)

    def structure(self) -> str:
        """Return a digest of the primitives and how they are connected, whatever the shapes."""
        return self._digest(lambda variable: "")

    def fingerprint(self) -> str:
        """Return a digest of the primitives, how they are connected, and all shapes and types."""
        return self._digest(lambda variable: variable.aval.str_short())

    def _digest(self, describe: Callable[[Any], str]) -> str:
        # What a loop or a rematerialized function takes and returns depends on how its body was
        # traced, so that only what others use of it counts.
        digest = hashlib.sha256()
        origins = {number: f"argument {number}" for number in range(self.input_count)}
        for index, equation in enumerate(self.equations):
            results = [describe(variable) for variable in equation.eqn.outvars]
            if equation.name in _OWN_RULES:
                digest.update(equation.name.encode())
                made = [f"{index} {result}" for result in results]
            else:
                inputs = [origins.get(number, "constant") for number in equation.inputs]
                digest.update(repr((equation.name, inputs, results)).encode())
                made = [f"{index}.{position}" for position in range(len(results))]
            origins.update(zip(equation.outputs, made, strict=True))
        return digest.hexdigest()[:16]

    def evaluate(self, arguments: Sequence[Any], segments: Sequence[Segment] = ()) -> list[Any]:
        """Evaluate it on arrays or tracers.

        Args:
            arguments: One for each argument of the jaxpr.
            segments: Ranges of equations that are rematerialized, in order and disjoint. The rest
                is evaluated as it is.

        Returns:
            The results of the jaxpr.
        """
        values: dict[int, Any] = dict(enumerate(arguments))
        last_uses = self._last_uses()
        position = 0
        for segment in segments:
            self._run(position, segment.start, values)
            self._run_segment(segment, values, last_uses)
            position = segment.stop
        self._run(position, len(self.equations), values)
        return [self._read(values, number) for number in self.outputs]

    def _read(self, values: dict[int, Any], number: int) -> Any:
        return values[number] if number >= 0 else self.constants[-number - 1]

    def _run(
        self, start: int, stop: int, values: dict[int, Any], names: dict[int, str] | None = None
    ) -> None:
        from jax.ad_checkpoint import checkpoint_name

        for index in range(start, stop):
            equation = self.equations[index]
            results = _bind(equation, [self._read(values, number) for number in equation.inputs])
            if names and index in names:
                results = [checkpoint_name(result, names[index]) for result in results]
            values.update(zip(equation.outputs, results, strict=True))

    def _run_segment(
        self, segment: Segment, values: dict[int, Any], last_uses: dict[int, int]
    ) -> None:
        """Evaluate equations as one function that is rematerialized in the backward pass."""
        import jax
        from jax.ad_checkpoint import checkpoint_name

        equations = self.equations[segment.start : segment.stop]
        made = {number for equation in equations for number in equation.outputs}
        used = {number for equation in equations for number in equation.inputs if number >= 0}
        inputs = sorted(used - made)
        outputs = sorted(number for number in made if last_uses.get(number, -1) >= segment.stop)

        named = self._offloaded_inputs(inputs, values) if segment.offload_inputs else ()

        def run(*arguments: Any) -> list[Any]:
            inner = dict(zip(inputs, arguments, strict=True))
            for number in named:
                inner[number] = checkpoint_name(inner[number], INPUT_NAME)
            self._run(segment.start, segment.stop, inner, segment.names)
            return [inner[number] for number in outputs]

        rematerialized = _jax_checkpoint()(
            run, prevent_cse=segment.prevent_cse, policy=segment.policy(jax)
        )
        results = rematerialized(*(values[number] for number in inputs))
        values.update(zip(outputs, results, strict=True))

    def _offloaded_inputs(self, inputs: Sequence[int], values: dict[int, Any]) -> list[int]:
        """Return the inputs of a segment that are activations, and large enough for a transfer.

        Arguments may be parameters, which stay on the GPU anyway; one of the shape and type of a
        result that is computed is what a layer hands on.
        """
        import jax.numpy as jnp

        def kind(value: Any) -> tuple[Any, Any]:
            return getattr(value, "shape", None), getattr(value, "dtype", None)

        computed = zip(self.outputs, self.output_avals, strict=True)
        results = {kind(aval) for number, aval in computed if number >= self.input_count}
        chosen = []
        for number in inputs:
            value = values[number]
            size = getattr(value, "size", 0) * getattr(value, "dtype", jnp.dtype("u1")).itemsize
            if size < MIN_OFFLOADED_BYTES or not jnp.issubdtype(value.dtype, jnp.inexact):
                continue
            if number >= self.input_count or kind(value) in results:
                chosen.append(number)
        return chosen

    def _last_uses(self) -> dict[int, int]:
        """Return the index of the last equation that uses each value; the count for results."""
        last = {
            number: index
            for index, equation in enumerate(self.equations)
            for number in equation.inputs
        }
        last.update(dict.fromkeys(self.outputs, len(self.equations)))
        return last

    def describe(self) -> Iterator[dict[str, Any]]:
        """Yield what the search must know of each equation: names, bytes, operations, lines."""
        for equation in self.equations:
            yield {
                "name": equation.name,
                "inputs": [number for number in equation.inputs if number >= 0],
                "outputs": list(equation.outputs),
                "bytes": [_aval_bytes(variable.aval) for variable in equation.eqn.outvars],
                "shape": [variable.aval.str_short() for variable in equation.eqn.outvars],
                "flops": count_flops(equation.eqn),
                "batched": _has_batch_dimensions(equation.eqn),
                "line": _user_line(equation.eqn),
                "barrier": equation.is_barrier,
            }


@dataclasses.dataclass(frozen=True)
class Segment:
    """Equations `start` to `stop` (exclusive), and what is kept of them for the backward pass."""

    start: int
    stop: int
    # A policy's name (`NAMED_POLICIES`), or a policy of the user's.
    save: str | Callable[..., Any] | None = None
    # Names of the results of chosen equations, by the equation's index; saved and offloaded.
    saved: tuple[int, ...] = ()
    offloaded: tuple[int, ...] = ()
    prevent_cse: bool = True
    # Whether the activations among its inputs are offloaded.
    offload_inputs: bool = False

    @property
    def names(self) -> dict[int, str]:
        """Return the name for `jax.ad_checkpoint.checkpoint_name` of each chosen equation."""
        return {index: f"vramfit:{index}" for index in (*self.saved, *self.offloaded)}

    def policy(self, jax: Any) -> Callable[..., Any] | None:
        """Return the policy for `jax.checkpoint`; None recomputes everything."""
        policies = jax.checkpoint_policies
        policy: Callable[..., Any] | None = None
        if callable(self.save):
            policy = self.save
        elif self.offloaded or self.offload_inputs:
            policy = policies.save_and_offload_only_these_names(
                names_which_can_be_saved=[f"vramfit:{index}" for index in self.saved],
                names_which_can_be_offloaded=[
                    INPUT_NAME,
                    *(f"vramfit:{index}" for index in self.offloaded),
                ],
                offload_src="device",
                offload_dst="pinned_host",
            )
        elif self.save is not None:
            policy = getattr(policies, NAMED_POLICIES[self.save])
        elif self.saved:
            policy = policies.save_only_these_names(*(f"vramfit:{index}" for index in self.saved))
        return policy


# By the name in a plan, the attribute of `jax.checkpoint_policies`.
NAMED_POLICIES = {
    "nothing": "nothing_saveable",
    "dots": "dots_saveable",
    "dots-without-batch": "dots_with_no_batch_dims_saveable",
    "everything": "everything_saveable",
}


def _jax_checkpoint() -> Callable[..., Any]:
    """Return `jax.checkpoint` itself, also where the attribute was replaced."""
    import jax

    original: Callable[..., Any] = getattr(jax.checkpoint, "vramfit_original", jax.checkpoint)
    return original


def _bind(equation: Equation, operands: list[Any]) -> list[Any]:
    """Apply the primitive as `jax.core.eval_jaxpr` does, with the user's line and name stack."""
    from jax._src import source_info_util

    eqn = equation.eqn
    stack = source_info_util.current_name_stack()
    if equation.name_stack is not None:
        stack = stack + equation.name_stack
    stack = stack + eqn.source_info.name_stack
    parameters = eqn.primitive.get_bind_params(eqn.params)
    functions: Sequence[Any] = ()
    if isinstance(parameters, tuple):  # up to JAX 0.9
        functions, parameters = parameters
    traceback = eqn.source_info.traceback
    with source_info_util.user_context(traceback, name_stack=stack), eqn.ctx.manager:
        results = eqn.primitive.bind(*functions, *operands, **parameters)
    return list(results) if eqn.primitive.multiple_results else [results]


def _is_worth_expanding(eqn: Any) -> bool:
    """Return whether an equation is a plain call of `jax.jit` with something expensive inside."""
    if str(eqn.primitive.name) not in _JIT:
        return False
    parameters = eqn.params
    shardings = (*parameters["in_shardings"], *parameters["out_shardings"])
    is_plain = all(type(each).__name__ == "UnspecifiedValue" for each in shardings)
    is_plain = is_plain and not any(parameters["donated_invars"])
    return is_plain and _contains_expensive(parameters["jaxpr"].jaxpr)


def _contains_expensive(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        name = str(eqn.primitive.name)
        if name in _EXPENSIVE or name in _OWN_RULES:
            return True
        if name in _JIT and _contains_expensive(eqn.params["jaxpr"].jaxpr):
            return True
    return False


def _has_batch_dimensions(eqn: Any) -> bool:
    """Return whether an equation is a matrix product for each of several batches."""
    numbers = eqn.params.get("dimension_numbers") if eqn.primitive.name == "dot_general" else None
    return numbers is not None and bool(numbers[1][0])


def _aval_bytes(aval: Any) -> int:
    size = getattr(aval, "size", 0)
    dtype = getattr(aval, "dtype", None)
    return int(size * dtype.itemsize) if dtype is not None and isinstance(size, int) else 0


def _user_line(eqn: Any) -> str:
    """Return the user's line that an equation comes from, as ``file.py:line (function)``."""
    from vramfit._frames import is_library

    traceback = eqn.source_info.traceback
    frames = traceback.frames if traceback is not None else ()
    for frame in frames:
        if not is_library(frame.file_name):
            return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"
    return ""


def count_flops(eqn: Any) -> int:
    """Return the floating-point operations of an equation: two for a multiplication and addition.

    Exact for matrix products and convolutions; one for each element of any other result. Loops
    count their body as often as it runs, if that is known, else once.
    """
    name = str(eqn.primitive.name)
    results = sum(int(getattr(variable.aval, "size", 0)) for variable in eqn.outvars)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape: tuple[int, ...] = eqn.invars[0].aval.shape
        length: int = math.prod(shape[axis] for axis in contracted)
        return 2 * results * length
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval
        out_features = int(kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]])
        return 2 * results * int(kernel.size) // max(1, out_features)
    inner = [*_inner_jaxprs(eqn)]
    if not inner:
        return results
    repeats = int(eqn.params.get("length", 1)) if name == "scan" else 1
    total: int = repeats * sum(count_flops(each) for jaxpr in inner for each in jaxpr.eqns)
    return total


def _inner_jaxprs(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
