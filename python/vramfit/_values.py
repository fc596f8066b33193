"""Runs small programs for real, on JAX's CPU backend, for the virtual GPU.

A dry run does no arithmetic, but a program's path may depend on small values: random keys,
counters, the size of ``nonzero``. When such a value is read, the program that makes it, which is
known exactly, is compiled for the CPU and run: in this process if that is quick for sure, else in
one that can be killed. Called from Rust; relies on JAX's internals.
"""

from __future__ import annotations

import os
import time
import traceback
from typing import Any

from vramfit import _cpu, _evaluator, _modules
from vramfit._budget import PROGRAM, Budget
from vramfit._callbacks import called_by, compiled, forget_errors, have_raised
from vramfit._frames import file_name
from vramfit._interface import interface
from vramfit._origins import names, reader, site
from vramfit._placeholders import call_back

__all__ = [
    "call_back",
    "compiled",
    "costs",
    "estimate",
    "evaluate",
    "file_name",
    "interface",
    "names",
    "reader",
    "site",
]

# What is estimated to take longer runs in a process that can be killed.
IN_PROCESS_S = 0.2

_compiled: dict[int, Any] = {}
_budget = Budget()
_worker = _evaluator.Evaluator()


def estimate(program: int, code: bytes) -> float:
    """Return how many seconds one execution of a program is expected to take on the CPU.

    Infinite for a loop whose length depends on values, and for what cannot be read.
    """
    return _modules.work_of(program, code).nanoseconds * 1e-9


def evaluate(
    program: int,
    code: bytes,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
    devices: int,
    options: bytes,
    output_shardings: list[bytes],
) -> list[bytes] | str | tuple[str, float] | None:
    """Run a program on the CPU.

    Args:
        program: Its number, for remembering what was compiled.
        code: StableHLO as JAX gave it to the plugin.
        inputs: Row-major bytes of the arguments of each device in turn.
        input_shapes: XLA's name of the element type, and dimensions, of each argument.
        output_shapes: The same of each result.
        devices: On how many devices to run it.
        options: The options it was compiled with, serialised.
        output_shardings: How each result lies over the devices, as XLA's serialised message.

    Returns:
        Row-major bytes of the results of each device in turn; an error's message if a function that
        the program calls back raised one; which budget is used up (``program_budget``,
        ``run_budget``), with the seconds that the program has taken; None if the program cannot be
        run on the CPU.
    """
    expected = estimate(program, code)
    refusal = _budget.refusal(program, expected)
    if refusal is not None:
        return refusal, _budget.spent_s(program)
    callbacks = called_by(program)
    forget_errors(callbacks)
    shapes = (input_shapes, output_shapes)
    try:
        if expected <= IN_PROCESS_S:
            executable = _compiled.get(program)
            if executable is None:
                executable = _compiled[program] = _cpu.compile_program(
                    code, options, devices, output_shardings, callbacks
                )
            return _run_here(program, executable, inputs, *shapes, devices, bool(callbacks))
        request = {
            "program": program,
            "code": code,
            "options": options,
            "devices": devices,
            "output_shardings": output_shardings,
            "inputs": inputs,
            "input_shapes": input_shapes,
            "output_shapes": output_shapes,
        }
        data, spent_s = _worker.run(request, callbacks, _budget.allowed_s(program))
        _budget.charge(program, spent_s)
        return data
    except _evaluator.TooLong as error:
        _budget.charge(program, error.spent_s)
        return _budget.refusal(program, expected) or PROGRAM, _budget.spent_s(program)
    except Exception as error:
        if have_raised(callbacks):
            # XLA's message, with the traceback of the callback in it.
            return str(error).removeprefix("INTERNAL: ")
        # Custom calls that only CUDA has, types numpy does not have: the values stay unknown, which
        # the report counts.
        if os.environ.get("VRAMFIT_VERBOSE"):
            traceback.print_exc()
        return None


def _run_here(
    program: int,
    executable: Any,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
    devices: int,
    has_callbacks: bool,
) -> list[bytes] | None:
    wide = has_callbacks or _cpu.is_wide(input_shapes)
    wall, processor = time.monotonic(), time.process_time()
    with _cpu.as_jax_itself(wide):
        data = _cpu.run(executable, inputs, input_shapes, output_shapes, devices, has_callbacks)
    # Neither a busy machine nor busy threads of the user's may change what is known.
    _budget.charge(program, min(time.monotonic() - wall, time.process_time() - processor))
    return data


def costs(module: bytes) -> list[tuple[str, float]]:
    """Return what XLA's cost model says of a serialised module: operations, bytes, and so on."""
    from jax._src.lib import xla_client

    parsed = xla_client.XlaComputation(module).get_hlo_module()
    figures = xla_client._xla.hlo_module_cost_analysis(_cpu.client(1), parsed)
    return list(figures.items())
