"""What running a StableHLO module takes: elementary operations, and calls of Python functions.

A dry run computes values only where that is cheap, so the cost must be known beforehand: XLA's CPU
client cannot cancel an execution. Relies on the MLIR bindings that come with JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from vramfit._inprogram._frames import file_name, is_library
from vramfit._values._cpu_linalg import PREFIXES

# What XLA's CPU backend takes for one operation whatever its size, as seen on small ones.
OPERATION_NS = 100.0
# What one multiplication and addition of a matrix product takes, as seen on one core.
PRODUCT_NS = 0.1
# Products that a factorization of a matrix takes, an element and column: those with eigenvalues.
FACTORIZATION_PRODUCTS = 20.0
# Comparisons that sorting takes an element, for arrays of a million elements.
SORT_NS = 20.0

# Times that a loop is expected to run whose length depends on values.
EXPECTED_TRIPS = 10

# Operations whose regions are applied to elements, and are part of the operation.
_ELEMENTWISE_REGIONS = {
    "stablehlo.all_reduce",
    "stablehlo.map",
    "stablehlo.reduce",
    "stablehlo.reduce_scatter",
    "stablehlo.reduce_window",
    "stablehlo.scatter",
    "stablehlo.select_and_scatter",
    "stablehlo.sort",
}


@dataclasses.dataclass(frozen=True)
class CallbackSite:
    """A place in a program that calls a Python function."""

    index: int
    """Which of the program's callbacks it calls."""
    line: str
    """The user's line that put it there, as ``file:line (function)``; empty if not known."""
    operands: tuple[tuple[str, tuple[int, ...]], ...]
    """XLA's name of the element type, and dimensions, of what the function is given."""
    has_results: bool
    """Whether the program goes on with what the function returns."""


@dataclasses.dataclass(frozen=True)
class Call:
    """What one execution of a program does at a `CallbackSite`."""

    site: CallbackSite
    times: int | None
    """How often; None inside a loop whose length depends on values. 0 in a branch that is not taken
    when the condition is false."""
    per_device: bool = False
    """Whether each device does it; else one does it for all of them."""


@dataclasses.dataclass(frozen=True)
class Work:
    """What one execution of a program takes."""

    expected_ns: float
    """Estimate of the time on one core, with `EXPECTED_TRIPS` of each loop whose length depends on
    values; infinite for what cannot be read."""
    calls: tuple[Call, ...] = ()
    is_bounded: bool = True
    """Whether the length of no loop depends on values."""

    @property
    def nanoseconds(self) -> float:
        """Estimate of the time on one core; infinite where a loop's length depends on values."""
        return self.expected_ns if self.is_bounded else math.inf


_known: dict[int, Work] = {}


def count_work(program: int, code: bytes) -> Work:
    """Return what running a program takes; an infinite time and no calls if it cannot be read.

    Args:
        program: Its number, for remembering the answer.
        code: StableHLO as JAX gave it to the plugin.
    """
    if program not in _known:
        try:
            _known[program] = _read(code)
        except Exception:
            if os.environ.get("VRAMFIT_VALUES_VERBOSE"):
                traceback.print_exc()
            _known[program] = Work(math.inf)
    return _known[program]


def _read(code: bytes) -> Work:
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo

    with mlir.make_ir_context() as context:
        return module_work(hlo.deserialize_portable_artifact(context, code))


def module_work(module: Any) -> Work:
    """Return what running a module of MLIR's takes, in the current context."""
    return _Module(module).work()


class _Module:
    def __init__(self, module: Any) -> None:
        attributes = module.operation.attributes
        self._is_replicated = (
            "mhlo.num_replicas" in attributes and attributes["mhlo.num_replicas"].value > 1
        )
        self._functions = {
            operation.attributes["sym_name"].value: operation
            for operation in module.body.operations
            if _name(operation) == "func.func"
        }
        self._done: dict[str, Work] = {}

    def work(self) -> Work:
        work = self._of_function("main")
        return _on_each_device(work) if self._is_replicated else work

    def _of_function(self, name: str) -> Work:
        if name not in self._done:
            self._done[name] = Work(0.0)  # StableHLO has no recursion
            self._done[name] = self._of_region(self._functions[name].regions[0])
        return self._done[name]

    def _of_region(self, region: Any) -> Work:
        parts = [
            self._work_of(operation) for block in region.blocks for operation in block.operations
        ]
        return _sum(parts)

    def _work_of(self, operation: Any) -> Work:
        name = _name(operation)
        own = _WORK.get(name)
        if own is not None:
            return own(self, operation)
        if name.endswith((".return", ".constant")):
            return Work(0.0)
        elements = _elements([*operation.operands, *operation.results])
        if name in _ELEMENTWISE_REGIONS:
            if name == "stablehlo.sort":
                elements *= SORT_NS
            elif "window_dimensions" in operation.attributes:
                elements *= math.prod(operation.attributes["window_dimensions"])
            return Work(OPERATION_NS + elements)
        inside = [self._of_region(region) for region in operation.regions]
        return _sum([Work(OPERATION_NS + elements), *inside])

    def _of_call(self, operation: Any) -> Work:
        return self._of_function(operation.attributes["callee"].value)

    def _of_composite(self, operation: Any) -> Work:
        return self._of_function(operation.attributes["decomposition"].value)

    def _of_manual_part(self, operation: Any) -> Work:
        return _on_each_device(self._of_region(operation.regions[0]))

    def _of_loop(self, operation: Any) -> Work:
        condition, body = (self._of_region(region) for region in operation.regions)
        is_bounded = body.is_bounded and condition.is_bounded
        each = body.expected_ns + condition.expected_ns
        trips = _trip_count(operation)
        if trips is None:
            calls = (
                dataclasses.replace(call, times=None if call.times != 0 else 0)
                for call in body.calls
            )
            return Work(EXPECTED_TRIPS * each, tuple(calls), is_bounded=False)
        calls = (
            dataclasses.replace(call, times=None if call.times is None else call.times * trips)
            for call in body.calls
        )
        return Work(trips * each if trips else 0.0, tuple(calls), is_bounded or not trips)

    def _of_branches(self, operation: Any) -> Work:
        branches = [self._of_region(region) for region in operation.regions]
        # The first branch of a `case` is that of 0, the last one of an `if` that of False.
        taken = 0 if _name(operation) == "stablehlo.case" else len(branches) - 1
        calls = [
            call if number == taken else dataclasses.replace(call, times=0)
            for number, branch in enumerate(branches)
            for call in branch.calls
        ]
        longest = max((branch.expected_ns for branch in branches), default=0.0)
        is_bounded = all(branch.is_bounded for branch in branches)
        return Work(longest + OPERATION_NS, tuple(calls), is_bounded)

    def _of_custom_call(self, operation: Any) -> Work:
        target = operation.attributes["call_target_name"].value
        elements = _elements([*operation.operands, *operation.results])
        if target.encode().startswith(PREFIXES):
            order = max((array_type(operand.type)[1] or (1,))[-1] for operand in operation.operands)
            return Work(OPERATION_NS + elements * order * FACTORIZATION_PRODUCTS * PRODUCT_NS)
        if "python" not in target or "callback" not in target:
            return Work(OPERATION_NS + elements)
        config = operation.attributes["mhlo.backend_config"]
        site = CallbackSite(
            int(config["index"].value),
            line_of(str(operation.location)),
            tuple(array_type(operand.type) for operand in operation.operands),
            any(array_type(result.type)[0] != "token" for result in operation.results),
        )
        return Work(OPERATION_NS + elements, (Call(site, 1),))

    def _of_product(self, operation: Any) -> Work:
        from jax._src.lib.mlir.dialects import hlo

        numbers = hlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
        left = operation.operands[0].type.shape
        contracted = math.prod(left[axis] for axis in numbers.lhs_contracting_dimensions)
        products = _elements(operation.results) * contracted
        moved = _elements([*operation.operands, *operation.results])
        return Work(OPERATION_NS + moved + products * PRODUCT_NS)

    def _of_convolution(self, operation: Any) -> Work:
        from jax._src.lib.mlir.dialects import hlo

        numbers = hlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
        kernel = operation.operands[1].type.shape
        features = kernel[numbers.kernel_output_feature_dimension]
        products = _elements(operation.results) * math.prod(kernel) / max(features, 1)
        moved = _elements([*operation.operands, *operation.results])
        return Work(OPERATION_NS + moved + products * PRODUCT_NS)


def _sum(parts: Sequence[Work]) -> Work:
    """Return what parts take one after the other."""
    return Work(
        sum(part.expected_ns for part in parts),
        tuple(call for part in parts for call in part.calls),
        all(part.is_bounded for part in parts),
    )


def _on_each_device(work: Work) -> Work:
    return dataclasses.replace(
        work, calls=tuple(dataclasses.replace(call, per_device=True) for call in work.calls)
    )


_WORK: dict[str, Callable[[_Module, Any], Work]] = {
    "func.call": _Module._of_call,
    "sdy.manual_computation": _Module._of_manual_part,
    "stablehlo.case": _Module._of_branches,
    "stablehlo.composite": _Module._of_composite,
    "stablehlo.convolution": _Module._of_convolution,
    "stablehlo.custom_call": _Module._of_custom_call,
    "stablehlo.dot_general": _Module._of_product,
    "stablehlo.if": _Module._of_branches,
    "stablehlo.while": _Module._of_loop,
}


def _name(operation: Any) -> str:
    return str(operation.operation.name)


def _elements(values: Any) -> float:
    return float(sum(math.prod(array_type(value.type)[1]) for value in values))


def array_type(type_: Any) -> tuple[str, tuple[int, ...]]:
    """Return XLA's name of the element type, and the dimensions; ``token`` for what has neither."""
    return _parse_array_type(str(type_))


@functools.lru_cache(maxsize=4096)
def _parse_array_type(text: str) -> tuple[str, tuple[int, ...]]:
    # `tensor<2x3xf32>`, `tensor<i1>`, `tensor<4xui8, #layout>`, `tensor<2xcomplex<f32>>`.
    found = re.fullmatch(r"tensor<((?:\d+x)*)([^,]+)(?:,.*)?>", text)
    if found is None:
        return "token", ()
    dims = tuple(int(size) for size in found[1].split("x")[:-1])
    return _XLA_NAMES.get(found[2], _xla_name(found[2])), dims


_XLA_NAMES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def _xla_name(name: str) -> str:
    # MLIR's `i32` is XLA's `s32`, `ui8` is `u8`, `f8E4M3FN` is `f8e4m3fn`.
    return re.sub(r"^ui(?=\d)", "u", re.sub(r"^i(?=\d)", "s", name)).lower()


def _trip_count(loop: Any) -> int | None:
    """Return how often a loop runs that counts up to a constant, as `scan` and `fori_loop` do."""
    condition, body = (region.blocks[0] for region in loop.regions)
    compared = _defining_op(list(condition.operations)[-1].operands[0])
    if compared is None or _name(compared) != "stablehlo.compare":
        return None
    if "LT" not in str(compared.attributes["comparison_direction"]):
        return None
    place = _argument(compared.operands[0], condition)
    limit = _constant(compared.operands[1], condition, loop)
    if place is None or limit is None:
        return None
    first = _constant(loop.operands[place], None, None)
    added = _defining_op(list(body.operations)[-1].operands[place])
    if first is None or added is None or _name(added) != "stablehlo.add":
        return None
    if _argument(added.operands[0], body) != place:
        return None
    step = _constant(added.operands[1], body, loop)
    return None if not step or step < 0 else max(0, -(-(limit - first) // step))


def _defining_op(value: Any) -> Any:
    """Return the operation that makes a value; None for the argument of a block."""
    owner = value.owner
    return owner if hasattr(owner, "attributes") else None


def _argument(value: Any, block: Any) -> int | None:
    """Return which argument of a block a value is; None if it is none."""
    for number, argument in enumerate(block.arguments):
        if argument == value:
            return number
    return None


def _constant(value: Any, block: Any, loop: Any) -> int | None:
    """Return the number that a scalar is known to be.

    A value that a loop hands on unchanged from round to round is what it began with.
    """
    maker = _defining_op(value)
    if maker is not None and _name(maker) == "stablehlo.constant":
        # As text: how the bindings call the attribute's class depends on their release.
        found = re.fullmatch(r"dense<(-?\d+)> : tensor<u?i\d+>", str(maker.attributes["value"]))
        return int(found[1]) if found else None
    if maker is not None and _name(maker) == "stablehlo.convert":
        return _constant(maker.operands[0], block, loop)
    if block is None or loop is None:
        return None
    place = _argument(value, block)
    body = loop.regions[1].blocks[0]
    if place is None or list(body.operations)[-1].operands[place] != body.arguments[place]:
        return None
    return _constant(loop.operands[place], None, None)


def line_of(location: str) -> str:
    """Return the innermost line of the user's own code in a location of JAX's, or nothing."""
    for name, file, line in re.findall(r'"([^"]*)"\("([^"]+)":(\d+)', location):
        if not is_library(file):
            return f"{file_name(file)}:{line} ({name})"
    return ""
