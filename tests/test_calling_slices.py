"""The part of a program that calls functions of Python, run beside what is not computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir
from jax._src.lib import xla_client

from vramfit._values import _callbacks, _cpu_eval

NUMBER = 1_000_001
OPTIONS = xla_client.CompileOptions().SerializeAsString()


@pytest.fixture
def called():
    return []


@pytest.fixture
def slice_of(monkeypatch):
    """Return a function that makes a slice of a program known to be run, and gives its number."""
    monkeypatch.setattr(_callbacks, "_callbacks", {})
    monkeypatch.setattr(_callbacks, "_owners", {})
    monkeypatch.setattr(_cpu_eval, "_calling", {})

    def make(function, shapes):
        lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((4096, 4096), jnp.float32), 0)
        callbacks = lowered._lowering.compile_args["host_callbacks"]
        _callbacks._callbacks[NUMBER] = [_callbacks.Callback(each) for each in callbacks]
        code = mlir.module_to_bytecode(lowered.compiler_ir())
        outputs, parameters, _, part, _ = _cpu_eval.slice_calls(NUMBER, code, OPTIONS, [True] * 2)
        assert parameters == [1]
        shapes = [shapes[place] for place in outputs]
        _cpu_eval.register_program(NUMBER + 1, part, [("s32", [])], shapes, 1, b"", [], [])
        return NUMBER + 1, code

    return make


def test_each_execution_calls_the_functions_once_with_the_real_arguments(slice_of, called):
    def double(n):
        called.append(int(n))
        return np.int32(2 * n + 1)

    def step(weights, n):
        return weights + 1, jax.pure_callback(double, jax.ShapeDtypeStruct((), jnp.int32), n)

    number, _ = slice_of(step, [None, ("s32", [])])
    n, rounds = np.int32(0).tobytes(), 0
    while int.from_bytes(n, "little") < 100:
        (n,), rounds = _cpu_eval.evaluate(number, [n]), rounds + 1
    assert (rounds, called) == (7, [0, 1, 3, 7, 15, 31, 63])


def test_what_an_interrupted_execution_has_called_is_not_called_again(
    slice_of, called, monkeypatch
):
    def note(n):
        called.append(int(n))

    def step(weights, n):
        jax.debug.callback(note, n)
        return weights + 1

    number, code = slice_of(step, [])
    run = _cpu_eval._cpu.run

    def interrupted(*arguments):
        run(*arguments)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(_cpu_eval._cpu, "run", interrupted)
    assert _cpu_eval.evaluate(number, [np.int32(3).tobytes()]) is None
    ((_, calls, _, _, skipped, *_),) = _cpu_eval.run_callbacks(NUMBER, code, 1)
    assert (called, calls, skipped) == ([3], 0, 1)
    # The next execution, with arguments that are not known.
    ((_, calls, _, _, skipped, *_),) = _cpu_eval.run_callbacks(NUMBER, code, 1)
    assert (called, calls, skipped) == ([3, 0], 1, 0)
