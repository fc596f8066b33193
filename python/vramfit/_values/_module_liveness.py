"""Marks what some results of a program need: its backward slice.

It follows data only, through functions, branches and loops: of a loop that carries weights, a cache
and a position, the position needs the position. `jax.interpreters.partial_eval.dce_jaxpr` does the
same to jaxprs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from vramfit._values._module_graph import IDENTITY_CALLS, MANUAL, Graph, Operation, Region

# What needs a larger array is not evaluated.
MAX_ARRAY_BYTES = 32 << 20
# What has effects.
_WITH_EFFECTS = {
    "stablehlo.infeed",
    "stablehlo.outfeed",
    "stablehlo.recv",
    "stablehlo.rng",
    "stablehlo.send",
}
# What one of several devices cannot compute from its own arguments.
_OF_SEVERAL_DEVICES = {
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.partition_id",
    "stablehlo.reduce_scatter",
    "stablehlo.replica_id",
}


def is_callback(operation: Operation) -> bool:
    """Return whether an operation calls a function of Python."""
    return "callback" in operation.target


class NoSlice(Exception):
    """Some results cannot be computed alone, or not without large arrays."""


@dataclasses.dataclass
class FunctionSlice:
    """What a function must do for some of its results."""

    parameters: tuple[int, ...]
    # The operations, each with which of its results (or of a loop's carried values) it makes.
    kept: dict[Operation, tuple[int, ...]]


class Liveness:
    """Finds what some results need.

    Args:
        graph: The program.
        on_all_devices: Whether all devices compute them together; else one alone.
        has_collectives: Whether they may need what devices exchange: all compute them together, or
            there is only one.
        calls_functions: Whether every Python function that the program calls is needed, too.
    """

    def __init__(
        self,
        graph: Graph,
        on_all_devices: bool = False,
        has_collectives: bool = False,
        calls_functions: bool = False,
    ) -> None:
        self.graph = graph
        self.calls_functions = calls_functions
        # By the name of a function of the module.
        self._callers: dict[str, bool] = {}
        self.on_all_devices = on_all_devices
        self.has_collectives = has_collectives or on_all_devices
        # None where they cannot be had.
        self._slices: dict[tuple[str, tuple[int, ...]], FunctionSlice | None] = {}

    def calls_back(self, operation: Operation) -> bool:
        """Return whether an operation calls a function of Python, or has one in it that does."""
        if is_callback(operation):
            return True
        name = operation.callee
        if name and name not in self._callers:
            self._callers[name] = self._region_calls_back(self.graph.functions[name])
        return bool(name and self._callers[name]) or any(
            map(self._region_calls_back, operation.regions)
        )

    def _region_calls_back(self, region: Region) -> bool:
        return any(map(self.calls_back, region.operations))

    def slice_function(self, name: str, outputs: tuple[int, ...]) -> FunctionSlice:
        """Return what a function must do for those of its results, in ascending order.

        Raises:
            NoSlice: If it cannot be done alone.
        """
        if (name, outputs) not in self._slices:
            self._slices[name, outputs] = None
            body = self.graph.functions[name]
            marker = _Marker(self)
            marker.mark_region(body, outputs)
            self._slices[name, outputs] = FunctionSlice(marker.live_places(body), marker.kept)
        found = self._slices[name, outputs]
        if found is None:
            raise NoSlice
        return found


class _Marker:
    """Marks the values and operations of one function that some of its results need."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._graph = liveness.graph
        self._live: set[int] = set()
        self.kept: dict[Operation, tuple[int, ...]] = {}

    def live_places(self, region: Region) -> tuple[int, ...]:
        """Return which arguments of a region are needed."""
        arguments = enumerate(region.arguments)
        return tuple(place for place, argument in arguments if argument in self._live)

    def mark_region(self, region: Region, wanted: Iterable[int]) -> None:
        """Mark what those of the results of a region need."""
        self._add(region.returned[place] for place in wanted)
        for operation in reversed(region.operations):
            results = tuple(
                place for place, result in enumerate(operation.results) if result in self._live
            )
            is_called = self._liveness.calls_functions and self._liveness.calls_back(operation)
            if results or is_called:
                self.kept[operation] = self._mark_operation(operation, results)

    def _add(self, values: Iterable[int]) -> None:
        for value in values:
            value = self._graph.resolve(value)
            is_token = self._liveness.calls_functions and self._graph.is_token(value)
            if self._graph.bytes_of[value] > MAX_ARRAY_BYTES and not is_token:
                raise NoSlice
            self._live.add(value)

    def _mark_operation(self, operation: Operation, results: tuple[int, ...]) -> tuple[int, ...]:
        """Mark what an operation needs for some of its results; return which it then makes."""
        if operation.callee:
            callee = self._liveness.slice_function(operation.callee, results)
            self._add(operation.operands[place] for place in callee.parameters)
        elif operation.name == "stablehlo.while":
            results = self._mark_loop(operation, results)
            self._add(operation.operands[place] for place in results)
        elif operation.name == MANUAL:
            self._mark_manual(operation, results)
        elif operation.regions:
            for region in operation.regions:
                self.mark_region(region, results)
            self._add(operation.operands)
        else:
            if self._is_excluded(operation):
                raise NoSlice
            # It makes its other results, too.
            self._add((*operation.operands, *operation.captured, *operation.results))
        return results

    def _mark_loop(self, loop: Operation, results: tuple[int, ...]) -> tuple[int, ...]:
        """Return which carried values a loop needs for some of its results.

        Those, the condition's, and what the body needs for the next round of any of them.
        """
        condition, body = loop.regions
        self.mark_region(condition, (0,))
        carried = {*results, *self.live_places(condition), *self.live_places(body)}
        while True:
            before = len(carried)
            self.mark_region(body, carried)
            carried.update(self.live_places(body))
            if len(carried) == before:
                return tuple(sorted(carried))

    def _mark_manual(self, computation: Operation, results: tuple[int, ...]) -> None:
        """Mark the part of a ``shard_map`` that some results need.

        One device alone can compute what is done to arrays that it has in full.
        """
        (body,) = computation.regions
        self.mark_region(body, results)
        inputs = [
            (computation.operands[place], body.arguments[place]) for place in self.live_places(body)
        ]
        self._add(operand for operand, _ in inputs)
        if self._liveness.on_all_devices:
            return
        outputs = [(computation.results[place], body.returned[place]) for place in results]
        types = self._graph.types
        if any(types[whole] != types[part] for whole, part in (*inputs, *outputs)):
            raise NoSlice

    def _is_excluded(self, operation: Operation) -> bool:
        """Return whether an operation has effects, or needs devices that take no part."""
        if operation.name in _WITH_EFFECTS:
            return True
        if is_callback(operation):
            return not self._liveness.calls_functions
        is_collective = operation.name in _OF_SEVERAL_DEVICES or operation.target in IDENTITY_CALLS
        return is_collective and not self._liveness.has_collectives
