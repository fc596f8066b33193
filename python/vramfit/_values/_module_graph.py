"""Reads a StableHLO module as a graph of numbered values.

Numbers are quick to follow, objects of MLIR's are not. Relies on the MLIR bindings that come with
JAX.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from vramfit._values._module_work import array_type

# Results are the operands, in order.
_IDENTITIES = {"stablehlo.optimization_barrier"}
# Results are the operands, but may lie over the devices in another way.
_RESHARDINGS = {"sdy.sharding_constraint", "sdy.reshard"}
# Custom calls whose result is the operand if it has the operand's shape.
IDENTITY_CALLS = {
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
}
_RETURNS = {"func.return", "stablehlo.return", "sdy.return"}
# Of a token, which is no array: more than any has.
_TOKEN_BYTES = sys.maxsize
MANUAL = "sdy.manual_computation"


def read_graph(module: Any, keeps_shardings: bool = False) -> Graph:
    """Read what ``main`` of a module of MLIR's does, in the current context.

    Args:
        module: The module.
        keeps_shardings: Whether what only says how an array lies over the devices is an operation;
            else its results are other names of its operands.

    Raises:
        ValueError: If it is not of the form that JAX writes.
    """
    return _GraphReader(module, keeps_shardings).read()


@dataclasses.dataclass(eq=False)
class Operation:
    """An operation, its values as numbers."""

    name: str
    source: Any
    operands: list[int]
    results: list[int]
    # What a custom call calls; empty for other operations.
    target: str = ""
    callee: str = ""
    regions: list[Region] = dataclasses.field(default_factory=list)
    # Values from outside that its regions use, where these are no part of the control flow.
    captured: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Region:
    arguments: list[int]
    operations: list[Operation]
    returned: list[int]


@dataclasses.dataclass
class Graph:
    """A module of StableHLO, its values as numbers."""

    # The module of MLIR's, which its operations do not keep alive.
    source: Any
    functions: dict[str, Region]
    # The number of each value.
    numbers: dict[Any, int]
    # Of each value.
    types: list[Any]
    bytes_of: list[int]
    # A value that is another one, as an argument that a loop hands on unchanged.
    aliases: dict[int, int]

    def resolve(self, value: int) -> int:
        """Return the value that a value is another name of."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def is_token(self, value: int) -> bool:
        """Return whether a value is none that has bytes, but orders effects."""
        return self.bytes_of[value] == _TOKEN_BYTES


class _GraphReader:
    """Reads a module of MLIR's."""

    def __init__(self, source: Any, keeps_shardings: bool) -> None:
        self._identities = _IDENTITIES if keeps_shardings else _IDENTITIES | _RESHARDINGS
        self._identity_calls = set() if keeps_shardings else IDENTITY_CALLS
        self._sources = {
            operation.attributes["sym_name"].value: operation
            for operation in source.body.operations
            if str(operation.operation.name) == "func.func"
        }
        self._graph = Graph(source, {}, {}, [], [], {})

    def read(self) -> Graph:
        self._read_function("main")
        return self._graph

    def _read_function(self, name: str) -> Region:
        if name not in self._graph.functions:
            self._graph.functions[name] = self._read_region(self._sources[name].regions[0])
        return self._graph.functions[name]

    def _number_of(self, value: Any) -> int:
        number = self._graph.numbers.get(value)
        if number is None:
            number = self._graph.numbers[value] = len(self._graph.numbers)
            self._graph.types.append(value.type)
            self._graph.bytes_of.append(_array_bytes(*array_type(value.type)))
        return number

    def _read_region(self, region: Any) -> Region:
        (block,) = region.blocks
        arguments = [self._number_of(argument) for argument in block.arguments]
        sources = list(block.operations)
        operations = [self._read_operation(source) for source in sources[:-1]]
        if str(sources[-1].operation.name) not in _RETURNS:
            raise ValueError("a region does not end with what it returns")
        returned = [self._number_of(operand) for operand in sources[-1].operands]
        return Region(arguments, operations, returned)

    def _read_operation(self, view: Any) -> Operation:
        source = view.operation
        name = str(source.name)
        numbers = [self._number_of(operand) for operand in source.operands]
        results = [self._number_of(result) for result in source.results]
        operation = Operation(name, source, numbers, results)
        if name == "stablehlo.custom_call":
            operation.target = source.attributes["call_target_name"].value
        aliases, resolve = self._graph.aliases, self._graph.resolve
        if name in self._identities or self._is_identity_call(operation):
            aliases.update(zip(results, numbers, strict=True))
        elif name in ("func.call", "stablehlo.composite"):
            attribute = "callee" if name == "func.call" else "decomposition"
            operation.callee = source.attributes[attribute].value
            body = self._read_function(operation.callee)
            places = {argument: place for place, argument in enumerate(body.arguments)}
            for result, returned in zip(results, body.returned, strict=True):
                place = places.get(resolve(returned))
                if place is not None:
                    aliases[result] = numbers[place]
        elif name in ("stablehlo.while", "stablehlo.case", "stablehlo.if", MANUAL):
            operation.regions = [self._read_region(region) for region in source.regions]
            if name == "stablehlo.while":
                body = operation.regions[1]
                rows = zip(results, numbers, body.arguments, body.returned, strict=True)
                for result, first, argument, returned in rows:
                    if resolve(returned) == argument:
                        aliases[result] = first
        elif len(source.regions):
            operation.captured = self._find_captured(source)
        return operation

    def _is_identity_call(self, operation: Operation) -> bool:
        types = {self._graph.types[value] for value in (*operation.operands, *operation.results)}
        return operation.target in self._identity_calls and len(types) == 1

    def _find_captured(self, source: Any) -> list[int]:
        """Return the values that the regions of an operation use from outside of it."""
        used: list[Any] = []
        inside: set[Any] = set()

        def visit(each: Any) -> None:
            for region in each.regions:
                for block in region.blocks:
                    inside.update(block.arguments)
                    for operation in block.operations:
                        used.extend(operation.operands)
                        inside.update(operation.results)
                        visit(operation)

        visit(source)
        return [self._number_of(value) for value in used if value not in inside]


def _array_bytes(kind: str, dims: Sequence[int]) -> int:
    """Return the bytes of an array; endless for a token, which is none."""
    bits = re.search(r"\d+", kind)
    if kind == "token":
        return _TOKEN_BYTES
    return math.prod(dims) * (max(1, int(bits[0]) // 8) if bits else 1)
