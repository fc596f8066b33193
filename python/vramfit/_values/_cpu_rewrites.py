"""Rewrites StableHLO modules that JAX made for a GPU, so that XLA's CPU client can compile them.

Relies on the MLIR bindings that come with JAX.
"""

from __future__ import annotations

from typing import Any

from vramfit._values._cpu_linalg import calls_linalg, replace_linalg_calls

# What programs contain that have arrays in the host's memory, or in an order of their own.
_PLACED = (b"pinned_host", b"mhlo.layout_mode")
# What programs contain that have the memory of arguments for their results. Here an argument may be
# needed again: its value is kept for whoever reads it.
_DONATED = (b"tf.aliasing_output", b"jax.buffer_donor")
# How a cumulative sum reaches CUDA's compiler since JAX 0.11.
_SCAN = b"chlo.scan"


def is_rewrite_needed(code: bytes) -> bool:
    """Say whether a module contains anything that the CPU client cannot compile."""
    return calls_linalg(code) or any(mark in code for mark in (*_PLACED, *_DONATED, _SCAN))


def rewrite_for_cpu(module: Any) -> None:
    """Change a module so that the CPU client can compile it, with the same results."""
    _strip_memory_kinds_and_donation(module)
    _inline_scan_composites(module)
    replace_linalg_calls(module)


def _strip_memory_kinds_and_donation(module: Any) -> None:
    """Let a program keep everything in one memory, row-major: as inputs come and results go.

    XLA's CPU client even ends the process when a result is to lie in another memory. Donated
    arguments stay, too.
    """
    from jax._src.lib.mlir import ir

    donation = tuple(mark.decode() for mark in _DONATED)
    stripped = ("mhlo.memory_kind", "mhlo.layout_mode", *donation)

    def without_stripped(attributes: Any) -> Any:
        kept = [
            {one.name: one.attr for one in each if one.name not in stripped} for each in attributes
        ]
        return ir.ArrayAttr.get([ir.DictAttr.get(each) for each in kept])

    moves = []

    def visit(operation: Any) -> Any:
        attributes = operation.attributes
        for name in ("arg_attrs", "res_attrs"):
            if operation.name == "func.func" and name in attributes:
                attributes[name] = without_stripped(attributes[name])
        is_call = operation.name == "stablehlo.custom_call"
        if is_call and attributes["call_target_name"].value == "annotate_device_placement":
            moves.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for move in moves:
        move.results[0].replace_all_uses_with(move.operands[0])
        move.erase()


def _inline_scan_composites(module: Any) -> None:
    """Replace each scan that only CUDA's compiler has by the loop that the module gives for it.

    JAX makes none for the CPU, whose compiler ends the process over one that is associative.
    """
    from jax._src.lib.mlir import ir

    scans = []

    def visit(operation: Any) -> Any:
        is_composite = operation.name == "stablehlo.composite"
        if is_composite and ir.StringAttr(operation.attributes["name"]).value == _SCAN.decode():
            scans.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for scan in scans:
        call = ir.Operation.create(
            "func.call",
            results=[result.type for result in scan.results],
            operands=list(scan.operands),
            attributes={"callee": scan.attributes["decomposition"]},
            loc=scan.location,
            ip=ir.InsertionPoint(scan),
        )
        for old, new in zip(scan.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        scan.erase()
