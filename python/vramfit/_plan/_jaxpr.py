"""A jaxpr as a list of equations that segments and the search can refer to by number.

Calls of ``jax.jit`` inside the jaxpr are expanded where they contain expensive equations, so that a
segment can begin or end inside of them. Relies on the attributes of equations that
``jax.extend.core`` documents; seen to work with JAX 0.6.2 to 0.12.0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

# Equations that have functions of their own, which may be evaluated in segments themselves.
_NESTING = {"scan", "while", "checkpoint", "remat", "remat2", "shard_map", "cond"}
# What the program rematerializes itself: no segment contains it.
REMATERIALIZED = {"checkpoint", "remat", "remat2"}
# Equations worth expanding a call for.
_EXPENSIVE = {"dot_general", "conv_general_dilated", "custom_vjp_call", "custom_vjp_call_jaxpr"}
JIT = {"jit", "pjit"}
# Calls of the host, and numbers of the hardware's generator: another evaluation may give others.
_UNREPEATABLE = {"pure_callback", "rng_uniform"}
# Equations that exchange data between devices.
_COLLECTIVES = {
    *("psum", "psum2", "psum_invariant", "pmax", "pmin", "pmean", "ppermute", "all_gather"),
    *("all_gather_invariant", "all_gather_reduced", "all_to_all", "reduce_scatter"),
    *("psum_scatter", "unreduced_psum", "unreduced_reduce_scatter", "ragged_all_to_all"),
}


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
        """Return whether no segment can contain it: it must be evaluated exactly once."""
        if has_side_effects(self.eqn) or self.name in REMATERIALIZED:
            return True
        return _is_unrepeatable(self.eqn)

    @property
    def is_collective(self) -> bool:
        """Return whether devices exchange data in it."""
        return self.name in _COLLECTIVES


def has_side_effects(eqn: Any) -> bool:
    """Return whether it matters how often and when an equation is evaluated.

    A collective has an effect that only says which axis it needs.
    """
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in eqn.effects)


def _is_unrepeatable(eqn: Any) -> bool:
    """Return whether an equation is one that may have another result when it is evaluated again."""
    inner = (each for jaxpr in inner_jaxprs(eqn.params) for each in jaxpr.eqns)
    return str(eqn.primitive.name) in _UNREPEATABLE or any(map(_is_unrepeatable, inner))


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
        self.outputs = self._flatten_jaxpr(closed, list(range(self.input_count)), None)
        self.output_avals = [atom.aval for atom in closed.jaxpr.outvars]

    def _flatten_jaxpr(self, closed: Any, inputs: list[int], name_stack: Any) -> list[int]:
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
                results = self._flatten_jaxpr(eqn.params["jaxpr"], operands, inner)
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
            if equation.name in _NESTING:
                digest.update(equation.name.encode())
                made = [f"{index} {result}" for result in results]
            else:
                inputs = [origins.get(number, "constant") for number in equation.inputs]
                digest.update(repr((equation.name, inputs, results)).encode())
                made = [f"{index}.{position}" for position in range(len(results))]
            origins.update(zip(equation.outputs, made, strict=True))
        return digest.hexdigest()[:16]

    def last_uses(self) -> dict[int, int]:
        """Return the index of the last equation that uses each value; the count for results."""
        last = {
            number: index
            for index, equation in enumerate(self.equations)
            for number in equation.inputs
        }
        last.update(dict.fromkeys(self.outputs, len(self.equations)))
        return last

    def describe(self, policy: Callable[..., Any] | None) -> Iterator[dict[str, Any]]:
        """Yield what the search must know of each equation: names, bytes, operations, lines.

        Args:
            policy: That by which the program rematerializes the function itself, if it does.
        """
        for equation in self.equations:
            yield {
                "name": equation.name,
                "inputs": [number for number in equation.inputs if number >= 0],
                "outputs": list(equation.outputs),
                "bytes": [_aval_bytes(variable.aval) for variable in equation.eqn.outvars],
                "shape": [variable.aval.str_short() for variable in equation.eqn.outvars],
                "flops": count_flops(equation.eqn),
                "batched": _has_batch_dimensions(equation.eqn),
                "line": user_line(equation.eqn),
                "barrier": equation.is_barrier,
                "kept": _is_kept(policy, equation.eqn),
            }


def _is_kept(policy: Callable[..., Any] | None, eqn: Any) -> bool:
    """Return whether a policy of `jax.checkpoint` keeps what an equation makes."""
    if policy is None:
        return False
    decision = policy(eqn.primitive, *(each.aval for each in eqn.invars), **eqn.params)
    # `ad_checkpoint.Recompute` is an object, and so true.
    return bool(decision) and type(decision).__name__ != "RecomputeType"


def _is_worth_expanding(eqn: Any) -> bool:
    """Return whether an equation is a plain call of `jax.jit` with something expensive inside."""
    if str(eqn.primitive.name) not in JIT:
        return False
    parameters = eqn.params
    shardings = (*parameters["in_shardings"], *parameters["out_shardings"])
    is_plain = all(type(each).__name__ == "UnspecifiedValue" for each in shardings)
    is_plain = is_plain and not any(parameters["donated_invars"])
    return is_plain and _contains_expensive(parameters["jaxpr"].jaxpr)


def _contains_expensive(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        name = str(eqn.primitive.name)
        if name in _EXPENSIVE or name in _NESTING:
            return True
        if name in JIT and _contains_expensive(eqn.params["jaxpr"].jaxpr):
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


def user_line(eqn: Any) -> str:
    """Return the user's line that an equation comes from, as ``file.py:line (function)``."""
    from vramfit._inprogram._frames import is_library

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
    inner = [*inner_jaxprs(eqn.params)]
    if not inner:
        return results
    repeats = int(eqn.params.get("length", 1)) if name == "scan" else 1
    total: int = repeats * sum(count_flops(each) for jaxpr in inner for each in jaxpr.eqns)
    return total


def inner_jaxprs(parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among the parameters of an equation."""
    for value in parameters.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
