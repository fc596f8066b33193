"""Runs small programs for real, on JAX's CPU backend, for the virtual GPU.

A dry run does no arithmetic, but a program's path may depend on small values: random keys,
counters, the size of ``nonzero``. When such a value is read, the program that makes it, which is
known exactly, is compiled for the CPU and run: in this process if that is quick for sure, else in
one that can be killed. Called from Rust; relies on JAX's internals.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

from vramfit._inprogram._frames import file_name
from vramfit._inprogram._hosts import exchange_inputs, record_assumption
from vramfit._inprogram._source_info import names, read_site, site
from vramfit._values import _cpu, _evaluator, _module_slice, _module_work
from vramfit._values._budget import PROGRAM_BUDGET, Budget
from vramfit._values._callback_runner import run_callbacks
from vramfit._values._callbacks import (
    begin_execution,
    callbacks_of,
    have_raised,
    record_compiled,
    record_interruption,
    share_callbacks,
)
from vramfit._values._cpu_linalg import calls_linalg
from vramfit._values._module_signature import read_signature

__all__ = [
    "costs",
    "estimate",
    "evaluate",
    "exchange_inputs",
    "file_name",
    "names",
    "read",
    "read_signature",
    "read_site",
    "record_assumption",
    "record_compiled",
    "register_program",
    "run_callbacks",
    "site",
    "slice_calls",
    "slice_outputs",
]

# What is estimated to take longer runs in a process that can be killed.
IN_PROCESS_S = 0.2

_budget = Budget()
_worker = _evaluator.EvaluationProcess()


@dataclasses.dataclass
class _Program:
    """A program that may be run on the CPU, and the executable once it was."""

    # StableHLO as JAX gave it to the plugin.
    code: bytes
    # XLA's name of the element type, and dimensions, of each argument and each result.
    input_shapes: list[tuple[str, list[int]]]
    output_shapes: list[tuple[str, list[int]]]
    # On how many devices it runs.
    devices: int
    # The options it was compiled with, serialized.
    options: bytes
    # How each argument lies over the devices, as XLA's serialized message; empty if not known.
    input_shardings: list[bytes]
    # The same of each result.
    output_shardings: list[bytes]
    executable: Any = None

    @property
    def shardings(self) -> tuple[list[bytes], list[bytes]]:
        """How its arguments, and its results, lie over the devices."""
        return self.input_shardings, self.output_shardings

    @functools.cached_property
    def calls_linalg(self) -> bool:
        """Whether it calls a library for linear algebra that only CUDA has."""
        return calls_linalg(self.code)


_programs: dict[int, _Program] = {}
# By the code of a slice that calls functions of Python: the number of the program it is cut out of.
_calling: dict[bytes, int] = {}


def register_program(program: int, *description: Any) -> None:
    """Remember how to run a program, before its first `evaluate`: the fields of `_Program`."""
    _programs[program] = _Program(*description)
    if (owner := _calling.get(_programs[program].code)) is not None:
        share_callbacks(program, owner)


def estimate(program: int, code: bytes) -> float:
    """Return how many seconds one execution of a program is expected to take on the CPU.

    A loop whose length depends on values is taken to be short (`EXPECTED_TRIPS`): it runs in a
    process that can be killed. Infinite for what cannot be read.
    """
    return _module_work.count_work(program, code).expected_ns * 1e-9


def slice_outputs(
    code: bytes, options: bytes, local_parameters: list[bool], local_outputs: list[bool]
) -> list[tuple[list[int], list[int], int, bytes, bytes]]:
    """Return the parts of a program that compute small results alone.

    Args:
        code: The program as JAX gave it to the plugin.
        options: The options it was compiled with, serialized.
        local_parameters: Of each argument, whether one device has all of it.
        local_outputs: Of each result, the same.

    Returns:
        Of each part which results it returns and which arguments it takes, the bytes of its largest
        array, its code, and its options if all devices run it together, else nothing.
    """
    try:
        has_several_devices = _cpu.device_count(options) > 1
        found = _module_slice.slice_outputs(
            code, local_parameters, local_outputs, has_several_devices
        )
        return [
            (
                each.outputs,
                each.parameters,
                each.largest_array_bytes,
                each.code,
                _cpu.make_slice_options(options, each) if each.on_all_devices else b"",
            )
            for each in found
        ]
    except Exception:
        # What cannot be read is not computed, which the report counts.
        if os.environ.get("VRAMFIT_VALUES_VERBOSE"):
            traceback.print_exc()
        return []


def slice_calls(
    program: int, code: bytes, options: bytes, local_parameters: list[bool]
) -> tuple[list[int], list[int], int, bytes, bytes] | None:
    """Return the part of a program that calls functions of Python, if all calls need small arrays.

    It is to be run with each execution of the program, then, and `run_callbacks` is not: a function
    is called as often as on a GPU, whether its results are read or not.

    Args:
        program: Its number.
        code: The program as JAX gave it to the plugin.
        options: The options it was compiled with, serialized.
        local_parameters: Of each argument, whether one device has all of it.

    Returns:
        What `slice_outputs` returns of a part.
    """
    try:
        if _cpu.device_count(options) > 1 or not callbacks_of(program):
            return None
        found = _module_slice.slice_calls(code, local_parameters)
    except Exception:
        if os.environ.get("VRAMFIT_VALUES_VERBOSE"):
            traceback.print_exc()
        return None
    if found is None:
        return None
    _calling[found.code] = program
    return found.outputs, found.parameters, found.largest_array_bytes, found.code, b""


def evaluate(number: int, inputs: list[Any]) -> list[Any] | str | tuple[str, float] | None:
    """Run a program on the CPU.

    Args:
        number: That of the program, as given to `register_program`.
        inputs: The arguments of each device in turn: row-major bytes, or results of `evaluate`.

    Returns:
        The results of each device in turn, to be read by `read`; an error's message if a function
        that the program calls back raised one; which budget is used up (``program_budget``,
        ``run_budget``), with the seconds that the program has taken; None if the program cannot be
        run on the CPU.
    """
    program = _programs[number]
    # Infinite for a loop whose length depends on values.
    expected = _module_work.count_work(number, program.code).nanoseconds * 1e-9
    refusal = _budget.refusal(number, expected)
    if refusal is not None:
        return refusal, _budget.spent_s(number)
    callbacks = callbacks_of(number)
    begin_execution(callbacks)
    try:
        if expected <= IN_PROCESS_S and not program.calls_linalg:
            return _run_here(number, program, inputs, callbacks)
        request = {
            "program": number,
            "code": program.code,
            "options": program.options,
            "devices": program.devices,
            "shardings": program.shardings,
            "inputs": [read(each) for each in inputs],
            "input_shapes": program.input_shapes,
            "output_shapes": program.output_shapes,
        }
        data, spent_s = _worker.run(request, callbacks, _budget.allowed_s(number))
        _budget.charge(number, spent_s)
        return data
    except _evaluator.EvaluationTimeout as error:
        record_interruption(number)
        _budget.charge(number, error.spent_s)
        return _budget.refusal(number, expected) or PROGRAM_BUDGET, _budget.spent_s(number)
    except Exception as error:
        if have_raised(callbacks):
            # XLA's message, with the traceback of the callback in it.
            return str(error).removeprefix("INTERNAL: ")
        record_interruption(number)
        # Custom calls that only CUDA has, types numpy does not have: the values stay unknown, which
        # the report counts.
        if os.environ.get("VRAMFIT_VALUES_VERBOSE"):
            traceback.print_exc()
        return None


def _run_here(
    number: int, program: _Program, inputs: list[Any], callbacks: Sequence[Any]
) -> list[Any] | None:
    if program.executable is None:
        program.executable = _cpu.compile_program(
            program.code, program.options, program.devices, program.shardings, callbacks
        )
    shapes = (program.input_shapes, program.output_shapes)
    wall, processor = time.monotonic(), time.process_time()
    if program.devices == 1 and not callbacks:
        results = _cpu.run_on_one_device(program.executable, inputs, *shapes)
    else:
        data = [read(each) for each in inputs]
        with _cpu.default_jax_config(_cpu.is_wide(program.input_shapes) or bool(callbacks)):
            results = _cpu.run(program.executable, data, *shapes, program.devices, bool(callbacks))
    # Neither a busy machine nor busy threads of the user's may change what is known.
    _budget.charge(number, min(time.monotonic() - wall, time.process_time() - processor))
    return results


def read(result: Any) -> bytes:
    """Return the row-major bytes of what `evaluate` returned."""
    if isinstance(result, bytes):
        return result
    with _cpu.default_jax_config():
        return _cpu.bytes_of(result)


def costs(module: bytes) -> list[tuple[str, float]]:
    """Return what XLA's cost model says of a serialized module: operations, bytes, and so on."""
    from jax._src.lib import xla_client

    parsed = xla_client.XlaComputation(module).get_hlo_module()
    figures = xla_client._xla.hlo_module_cost_analysis(_cpu.client(1), parsed)
    return list(figures.items())
