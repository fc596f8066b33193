"""Runs programs on the CPU as a dry run evaluates them."""

import numpy as np
from jax._src.lib import xla_client

from vramfit._values import _cpu

XLA_NAMES = {
    "bool": "pred",
    "complex64": "c64",
    "float32": "f32",
    "int32": "s32",
    "uint32": "u32",
}


def run_on_cpu(code, inputs, outputs, callbacks=()):
    """Run a program for one device; return its results.

    Args:
        code: StableHLO.
        inputs: Its arguments.
        outputs: Arrays of the types and shapes of its results.
        callbacks: The functions that it calls.
    """

    def types(arrays):
        return [(XLA_NAMES[str(array.dtype)], list(array.shape)) for array in arrays]

    options = xla_client.CompileOptions().SerializeAsString()
    executable = _cpu.compile_program(code, options, 1, ([], []), callbacks)
    inputs = [np.asarray(each) for each in inputs]
    data = [array.tobytes() for array in inputs]
    shapes = (types(inputs), types(outputs))
    if callbacks:
        results = _cpu.run(executable, data, *shapes, 1)
        return [
            _cpu.array_of(result, kind, dims)
            for result, (kind, dims) in zip(results, shapes[1], strict=True)
        ]
    return _cpu.run_on_one_device(executable, data, *shapes)
