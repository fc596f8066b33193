"""Marks what some results of a program need: its backward slice.

It follows data only, through functions, branches and loops: of a loop that carries weights, a cache
and a position, the position needs the position. `jax.interpreters.partial_eval.dce_jaxpr` does the
same to jaxprs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from vramfit._module_graph import IDENTITY_CALLS, MANUAL, Graph, Operation, Region

# What needs a larger array is not evaluated.
MAX_ARRAY_BYTES = 32 << 20
# What has effects, or what one device cannot compute from its own arguments.
_EXCLUDED = {
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.infeed",
    "stablehlo.outfeed",
    "stablehlo.partition_id",
    "stablehlo.recv",
    "stablehlo.reduce_scatter",
    "stablehlo.replica_id",
    "stablehlo.rng",
    "stablehlo.send",
}


class NoSlice(Exception):
    """Some results cannot be computed alone, or not without large arrays."""


@dataclasses.dataclass
class Plan:
    """What a function must do for some of its results."""

    parameters: tuple[int, ...]
    outputs: tuple[int, ...]
    # The operations, each with which of its results (or of a loop's carried values) it makes.
    kept: dict[Operation, tuple[int, ...]]


class Marking:
    """Marks what some results need."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        # None where they cannot be had.
        self._plans: dict[tuple[str, tuple[int, ...]], Plan | None] = {}

    def mark_function(self, name: str, outputs: tuple[int, ...]) -> Plan:
        """Return what a function must do for those of its results, in ascending order."""
        if (name, outputs) not in self._plans:
            self._plans[name, outputs] = None
            body = self._graph.functions[name]
            kept: dict[Operation, tuple[int, ...]] = {}
            live: set[int] = set()
            self._mark_region(body, outputs, live, kept)
            parameters = [place for place, each in enumerate(body.arguments) if each in live]
            self._plans[name, outputs] = Plan(tuple(parameters), outputs, kept)
        plan = self._plans[name, outputs]
        if plan is None:
            raise NoSlice
        return plan

    def _add(self, values: Iterable[int], live: set[int]) -> None:
        for value in values:
            value = self._graph.resolve(value)
            if self._graph.bytes_of[value] > MAX_ARRAY_BYTES:
                raise NoSlice
            live.add(value)

    def _mark_region(
        self,
        region: Region,
        wanted: Iterable[int],
        live: set[int],
        kept: dict[Operation, tuple[int, ...]],
    ) -> None:
        """Add to the live values what those of the results of a region need."""
        self._add((region.returned[place] for place in wanted), live)
        for operation in reversed(region.operations):
            results = tuple(
                place for place, result in enumerate(operation.results) if result in live
            )
            if results:
                kept[operation] = self._mark(operation, results, live, kept)

    def _mark(
        self,
        operation: Operation,
        results: tuple[int, ...],
        live: set[int],
        kept: dict[Operation, tuple[int, ...]],
    ) -> tuple[int, ...]:
        """Add what an operation needs for some of its results; return which it then makes."""
        if operation.callee:
            plan = self.mark_function(operation.callee, results)
            self._add((operation.operands[place] for place in plan.parameters), live)
        elif operation.name == "stablehlo.while":
            results = self._mark_loop(operation, results, live, kept)
            self._add((operation.operands[place] for place in results), live)
        elif operation.name == MANUAL:
            self._mark_manual(operation, results, live, kept)
        elif operation.regions:
            for region in operation.regions:
                self._mark_region(region, results, live, kept)
            self._add(operation.operands, live)
        else:
            if operation.name in _EXCLUDED or _is_excluded_call(operation):
                raise NoSlice
            self._add((*operation.operands, *operation.captured), live)
            # It makes its other results, too.
            self._add(operation.results, live)
        return results

    def _mark_loop(
        self,
        loop: Operation,
        results: tuple[int, ...],
        live: set[int],
        kept: dict[Operation, tuple[int, ...]],
    ) -> tuple[int, ...]:
        """Return which carried values a loop needs for some of its results.

        Those, the condition's, and what the body needs for the next round of any of them.
        """
        condition, body = loop.regions
        carried = set(results)
        self._mark_region(condition, (0,), live, kept)
        while True:
            before = len(carried)
            for region in (condition, body):
                carried.update(place for place, each in enumerate(region.arguments) if each in live)
            self._mark_region(body, carried, live, kept)
            carried.update(place for place, each in enumerate(body.arguments) if each in live)
            if len(carried) == before:
                return tuple(sorted(carried))

    def _mark_manual(
        self,
        computation: Operation,
        results: tuple[int, ...],
        live: set[int],
        kept: dict[Operation, tuple[int, ...]],
    ) -> None:
        """Mark the part of a ``shard_map`` that each device does to arrays that it has in full."""
        (body,) = computation.regions
        self._mark_region(body, results, live, kept)
        inputs = [
            (operand, argument)
            for operand, argument in zip(computation.operands, body.arguments, strict=True)
            if argument in live
        ]
        self._add((operand for operand, _ in inputs), live)
        outputs = [(computation.results[place], body.returned[place]) for place in results]
        types = self._graph.types
        if any(types[whole] != types[part] for whole, part in (*inputs, *outputs)):
            raise NoSlice


def _is_excluded_call(operation: Operation) -> bool:
    """Return whether a custom call has effects, or needs more than one device."""
    if operation.name != "stablehlo.custom_call":
        return False
    target = operation.source.attributes["call_target_name"].value
    return "callback" in target or target in IDENTITY_CALLS
