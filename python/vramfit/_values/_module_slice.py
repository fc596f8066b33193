"""Cuts out of a StableHLO module what some of its results need, so that only that is evaluated.

A step counter is one addition, whatever stands beside it: a training step that returns it reads
gigabytes of weights and takes seconds, but the counter's slice reads one number. No value is
simplified by arithmetic, so a slice computes what the program computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from vramfit._values._module_graph import MANUAL, Graph, Operation, Region, read_graph
from vramfit._values._module_liveness import MAX_ARRAY_BYTES, Liveness, NoSlice
from vramfit._values._module_signature import attributes_of, find_main
from vramfit._values._module_work import module_work

# Results that are larger are read by nobody whose path depends on them.
MAX_RESULT_BYTES = 1 << 20
# Attributes of arguments and results that say how they lie over the devices.
_SHARDINGS = {"mhlo.sharding", "sdy.sharding"}
# Results that take longer are computed alone, so that none waits for another one.
MAX_SHARED_NS = 1e6


@dataclasses.dataclass(frozen=True)
class Slice:
    """A program that computes some of a module's results."""

    outputs: list[int]
    """Which of the module's results it returns."""
    parameters: list[int]
    """Which of the module's arguments it takes."""
    largest_array_bytes: int
    """The size of the largest array in it."""
    code: bytes
    """StableHLO, as MLIR's bytecode."""
    on_all_devices: bool
    """Whether all devices of the module run it together; else each one can run it alone."""


def slice_outputs(
    code: bytes,
    local_parameters: Sequence[bool],
    local_outputs: Sequence[bool],
    has_several_devices: bool = False,
) -> list[Slice]:
    """Cut a program into slices, one for the small results that need the same arguments.

    Args:
        code: StableHLO as JAX gave it to the plugin.
        local_parameters: Of each argument, whether one device has all of it.
        local_outputs: Of each result, the same.
        has_several_devices: Whether the program runs on several devices, which then together
            compute what one cannot compute alone.

    Returns:
        The slices. A result is in none if it is large, or needs an argument or an array that is, or
        a Python function of the user's, which may have effects.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo

    with mlir.make_ir_context() as context:
        module = hlo.deserialize_portable_artifact(context, code)
        graph = read_graph(module)
        returned = enumerate(graph.functions["main"].returned)
        small = [at for at, value in returned if graph.bytes_of[value] <= MAX_RESULT_BYTES]
        local = [output for output in small if local_outputs[output]]
        # The collectives of a program for one device, as in `pmap`, are between it and itself.
        alone = Liveness(graph, has_collectives=not has_several_devices)
        slices = _make_slices(alone, local, local_parameters)
        known = {output for each in slices for output in each.outputs}
        left = [output for output in small if output not in known]
        if has_several_devices and left:
            # Read again: one device alone does not need what says how arrays lie over all of them.
            graph = read_graph(module, keeps_shardings=True)
            together = Liveness(graph, on_all_devices=True)
            slices += _make_slices(together, left, [True] * len(local_parameters))
        return slices


def slice_calls(code: bytes, usable_parameters: Sequence[bool]) -> Slice | None:
    """Cut out of a program for one device all that calls functions of Python.

    Args:
        code: StableHLO as JAX gave it to the plugin.
        usable_parameters: Of each argument, whether it may be taken.

    Returns:
        The slice: it calls each function as often as the program does, in the same order. It
        returns the small results that need what a function returns and no other arguments. None if
        the program calls no function, or if one call needs a large array.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo

    with mlir.make_ir_context() as context:
        graph = read_graph(hlo.deserialize_portable_artifact(context, code))
        calling = Liveness(graph, has_collectives=True, calls_functions=True)
        main = graph.functions["main"]
        if not any(map(calling.calls_back, main.operations)):
            return None
        needed = _parameters_of(calling, ())
        if needed is None:
            return None
        # What only orders effects is made anew.
        parameters = [place for place in needed if not graph.is_token(main.arguments[place])]
        if not _are_usable(graph, parameters, usable_parameters):
            return None
        quiet = Liveness(graph, has_collectives=True)
        outputs = [
            output
            for output, value in enumerate(main.returned)
            if graph.bytes_of[value] <= MAX_RESULT_BYTES
            and _parameters_of(quiet, (output,)) is None
            and (also := _parameters_of(calling, (output,))) is not None
            and set(also) <= set(needed)
        ]
        return _SliceWriter(calling).copy(outputs)


def _parameters_of(liveness: Liveness, outputs: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return which arguments some results need; None if they cannot be computed alone."""
    try:
        return liveness.slice_function("main", outputs).parameters
    except NoSlice:
        return None


def _are_usable(graph: Graph, parameters: Sequence[int], usable: Sequence[bool]) -> bool:
    """Return whether a slice may take these arguments: all may be taken, and they are small."""
    arguments = graph.functions["main"].arguments
    read_bytes = sum(graph.bytes_of[arguments[place]] for place in parameters)
    return all(usable[place] for place in parameters) and read_bytes <= MAX_ARRAY_BYTES


def _make_slices(
    liveness: Liveness, outputs: Sequence[int], usable_parameters: Sequence[bool]
) -> list[Slice]:
    """Return slices of those of some results that can be computed from those arguments."""
    graph = liveness.graph
    groups: dict[tuple[int, ...], list[int]] = {}
    for output in outputs:
        parameters = _parameters_of(liveness, (output,))
        if parameters is not None and _are_usable(graph, parameters, usable_parameters):
            groups.setdefault(parameters, []).append(output)
    slices = []
    for together in groups.values():
        copier = _SliceWriter(liveness)
        slice_ = copier.copy(together)
        if len(together) > 1 and copier.work_ns() > MAX_SHARED_NS:
            slices += [_SliceWriter(liveness).copy([output]) for output in together]
        else:
            slices.append(slice_)
    return slices


class _SliceWriter:
    """Copies the marked part of a module into a new one."""

    def __init__(self, liveness: Liveness) -> None:
        self._graph = liveness.graph
        self._liveness = liveness
        # The new functions, by what they are copies of.
        self._names: dict[tuple[str, tuple[int, ...]], str] = {}
        self._largest_array_bytes = 0

    def copy(self, outputs: list[int]) -> Slice:
        """Copy what some results need; the current context is the module's."""
        from jax._src.interpreters import mlir
        from jax._src.lib.mlir import ir

        with ir.Location.unknown():
            self._target = ir.Module.create()
            self._target.operation.attributes["sym_name"] = ir.StringAttr.get("slice")
            # JAX gives calls of Python functions a sharding, too.
            if self._liveness.on_all_devices or self._liveness.calls_functions:
                self._copy_meshes()
            self._copy_function("main", tuple(outputs), "main")
        parameters = self._parameters_of("main", tuple(outputs))
        code = mlir.module_to_bytecode(self._target)
        on_all_devices = self._liveness.on_all_devices
        return Slice(outputs, parameters, self._largest_array_bytes, code, on_all_devices)

    def _parameters_of(self, name: str, outputs: tuple[int, ...]) -> list[int]:
        """Return which arguments a copy takes: for `main`, nothing that only orders effects."""
        arguments = self._graph.functions[name].arguments
        needed = self._liveness.slice_function(name, outputs).parameters
        return [at for at in needed if name != "main" or not self._graph.is_token(arguments[at])]

    def work_ns(self) -> float:
        """Return what the copy takes on one core; infinite where that depends on values."""
        return module_work(self._target).nanoseconds

    def _copy_meshes(self) -> None:
        """Copy how many devices there are, and the meshes that shardings name."""
        from jax._src.lib.mlir import ir

        source = self._graph.source
        for name, attribute in attributes_of(source.operation).items():
            if name != "sym_name":
                self._target.operation.attributes[name] = attribute
        with ir.InsertionPoint(self._target.body):
            for operation in source.body.operations:
                if str(operation.operation.name) == "sdy.mesh":
                    operation.operation.clone()

    def _copy_function(self, name: str, outputs: tuple[int, ...], new_name: str) -> None:
        from jax._src.lib.mlir import ir
        from jax._src.lib.mlir.dialects import func

        plan = self._liveness.slice_function(name, outputs)
        body = self._graph.functions[name]
        parameters = self._parameters_of(name, outputs)
        arguments = [body.arguments[place] for place in parameters]
        returned = [body.returned[place] for place in outputs]
        types = self._graph.types
        kind = ir.FunctionType.get(
            [types[each] for each in arguments], [types[each] for each in returned]
        )
        with ir.InsertionPoint(self._target.body):
            function = func.FuncOp(new_name, kind)
            if new_name != "main":
                function.attributes["sym_visibility"] = ir.StringAttr.get("private")
            elif self._liveness.on_all_devices:
                self._copy_shardings(function, "arg_attrs", tuple(parameters))
                self._copy_shardings(function, "res_attrs", outputs)
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            copies = dict(zip(arguments, block.arguments, strict=True))
            for place in set(plan.parameters) - set(parameters):
                token = body.arguments[place]
                made = ir.Operation.create("stablehlo.after_all", results=[types[token]])
                copies[token] = made.results[0]
            self._copy_region(body, plan.kept, copies)
            func.ReturnOp([self._copy_of(each, copies) for each in returned])

    def _copy_shardings(self, function: Any, attributes: str, places: tuple[int, ...]) -> None:
        """Copy how some arguments, or results, of the main function lie over the devices."""
        from jax._src.lib.mlir import ir

        given = find_main(self._graph.source).attributes
        if attributes not in given:
            return
        rows = list(given[attributes])
        function.attributes[attributes] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get(
                    {one.name: one.attr for one in rows[place] if one.name in _SHARDINGS}
                )
                for place in places
            ]
        )

    def _copy_of(self, value: int, copies: dict[int, Any]) -> Any:
        return copies[self._graph.resolve(value)]

    def _copy_region(
        self, region: Region, kept: dict[Operation, tuple[int, ...]], copies: dict[int, Any]
    ) -> None:
        for operation in region.operations:
            if operation in kept:
                self._copy_operation(operation, kept, copies)

    def _copy_operation(
        self,
        operation: Operation,
        kept: dict[Operation, tuple[int, ...]],
        copies: dict[int, Any],
    ) -> None:
        results = kept[operation]
        if operation.callee:
            new = self._copy_call(operation, results, copies)
        elif operation.name == "stablehlo.while":
            new = self._copy_loop(operation, kept, copies)
        elif operation.name == MANUAL and self._liveness.on_all_devices:
            new = self._copy_manual_computation(operation, kept, copies)
        elif operation.name == MANUAL:
            (body,) = operation.regions
            for operand, argument in zip(operation.operands, body.arguments, strict=True):
                whole = copies.get(self._graph.resolve(operand))
                if whole is not None:
                    copies[argument] = whole
            self._copy_region(body, kept, copies)
            for place in results:
                copies[operation.results[place]] = self._copy_of(body.returned[place], copies)
            return
        elif operation.regions:
            new = self._copy_branches(operation, kept, copies)
        else:
            new = self._clone_operation(operation, copies)
            results = tuple(range(len(operation.results)))
        for place, result in zip(results, new.results, strict=True):
            value = operation.results[place]
            copies[value] = result
            size = 0 if self._graph.is_token(value) else self._graph.bytes_of[value]
            self._largest_array_bytes = max(self._largest_array_bytes, size)

    def _clone_operation(self, operation: Operation, copies: dict[int, Any]) -> Any:
        new = operation.source.clone().operation
        for place, operand in enumerate(operation.operands):
            new.operands[place] = self._copy_of(operand, copies)
        if operation.captured:
            self._replace_captured(operation, new, copies)
        return new

    def _replace_captured(self, operation: Operation, new: Any, copies: dict[int, Any]) -> None:
        """Let the regions of a copy use copies of what the regions of the original use."""
        replaced = {value: self._copy_of(value, copies) for value in operation.captured}

        def visit(source: Any, target: Any) -> None:
            for ours, theirs in zip(source.regions, target.regions, strict=True):
                for mine, new_block in zip(ours.blocks, theirs.blocks, strict=True):
                    pairs = zip(mine.operations, new_block.operations, strict=True)
                    for one, other in pairs:
                        for place, operand in enumerate(one.operands):
                            number = self._graph.numbers.get(operand)
                            if number in replaced:
                                other.operation.operands[place] = replaced[number]
                        visit(one, other)

        visit(operation.source, new)

    def _copy_call(self, call: Operation, results: tuple[int, ...], copies: dict[int, Any]) -> Any:
        from jax._src.lib.mlir import ir

        key = (call.callee, results)
        if key not in self._names:
            self._names[key] = f"part{len(self._names)}"
            self._copy_function(*key, self._names[key])
        parameters = self._liveness.slice_function(*key).parameters
        return ir.Operation.create(
            "func.call",
            results=[self._graph.types[call.results[place]] for place in results],
            operands=[self._copy_of(call.operands[place], copies) for place in parameters],
            attributes={"callee": ir.FlatSymbolRefAttr.get(self._names[key])},
        )

    def _copy_loop(
        self, loop: Operation, kept: dict[Operation, tuple[int, ...]], copies: dict[int, Any]
    ) -> Any:
        from jax._src.lib.mlir import ir

        carried = kept[loop]
        types = [self._graph.types[loop.results[place]] for place in carried]
        new = ir.Operation.create(
            "stablehlo.while",
            results=types,
            operands=[self._copy_of(loop.operands[place], copies) for place in carried],
            regions=2,
        )
        for region, target, wanted in zip(loop.regions, new.regions, ((0,), carried), strict=True):
            block = target.blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
            arguments = (region.arguments[place] for place in carried)
            inside = copies | dict(zip(arguments, block.arguments, strict=True))
            self._copy_block(region, block, wanted, kept, inside)
        return new

    def _copy_manual_computation(
        self, manual: Operation, kept: dict[Operation, tuple[int, ...]], copies: dict[int, Any]
    ) -> Any:
        from jax._src.lib.mlir import ir
        from jax._src.lib.mlir.dialects import sdy

        (body,) = manual.regions
        operands = enumerate(manual.operands)
        parameters = [at for at, each in operands if self._graph.resolve(each) in copies]
        given = attributes_of(manual.source)
        for name, places in (("in_shardings", parameters), ("out_shardings", kept[manual])):
            shardings = sdy.TensorShardingPerValueAttr(given[name]).shardings
            given[name] = sdy.TensorShardingPerValueAttr.get([shardings[at] for at in places])
        new = ir.Operation.create(
            MANUAL,
            results=[self._graph.types[manual.results[place]] for place in kept[manual]],
            operands=[self._copy_of(manual.operands[place], copies) for place in parameters],
            attributes=given,
            regions=1,
        )
        arguments = [body.arguments[place] for place in parameters]
        types = [self._graph.types[argument] for argument in arguments]
        block = new.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
        inside = copies | dict(zip(arguments, block.arguments, strict=True))
        self._copy_block(body, block, kept[manual], kept, inside, "sdy.return")
        return new

    def _copy_branches(
        self, chosen: Operation, kept: dict[Operation, tuple[int, ...]], copies: dict[int, Any]
    ) -> Any:
        from jax._src.lib.mlir import ir

        new = ir.Operation.create(
            chosen.name,
            results=[self._graph.types[chosen.results[place]] for place in kept[chosen]],
            operands=[self._copy_of(operand, copies) for operand in chosen.operands],
            regions=len(chosen.regions),
        )
        for region, target in zip(chosen.regions, new.regions, strict=True):
            self._copy_block(region, target.blocks.append(), kept[chosen], kept, dict(copies))
        return new

    def _copy_block(
        self,
        region: Region,
        block: Any,
        wanted: tuple[int, ...],
        kept: dict[Operation, tuple[int, ...]],
        copies: dict[int, Any],
        end: str = "stablehlo.return",
    ) -> None:
        from jax._src.lib.mlir import ir

        with ir.InsertionPoint(block):
            self._copy_region(region, kept, copies)
            returned = [self._copy_of(region.returned[place], copies) for place in wanted]
            ir.Operation.create(end, operands=returned)
