"""Which small programs are run again on the CPU: those that do not compute for long."""

import contextlib
from types import SimpleNamespace

import pytest

from vramfit import _values


@pytest.fixture
def evaluate(monkeypatch):
    """Return a function that evaluates a program twice and says which time it was run.

    It takes the seconds that compiling and running take: on the wall, and of the processor.
    """

    def run(*, compiling=(0.0, 0.0), running=(0.0, 0.0)):
        clock = [0.0, 0.0]

        def spend(seconds):
            clock[0] += seconds[0]
            clock[1] += seconds[1]

        def compile_(*_):
            spend(compiling)
            return object()

        def run_(*_):
            spend(running)
            return [b"result"]

        fake = SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[1])
        monkeypatch.setattr(_values, "time", fake)
        monkeypatch.setattr(_values, "_compile", compile_)
        monkeypatch.setattr(_values, "_run", run_)
        monkeypatch.setattr(_values, "_as_jax_itself", contextlib.nullcontext)
        monkeypatch.setattr(_values, "_compiled", {})
        monkeypatch.setattr(_values, "_too_slow", set())
        calls = (1, b"code", [], [], [], 1, b"", [])
        return [_values.evaluate(*calls) is not None for _ in range(2)]

    return run


def test_a_program_that_computes_for_long_is_run_once(evaluate):
    assert evaluate(running=(3.0, 3.0)) == [True, False]


def test_a_quick_program_is_run_again(evaluate):
    assert evaluate(running=(1.0, 1.0)) == [True, True]


def test_a_busy_machine_changes_nothing(evaluate):
    assert evaluate(running=(60.0, 1.0)) == [True, True]


def test_busy_threads_of_the_program_change_nothing(evaluate):
    assert evaluate(running=(1.0, 60.0)) == [True, True]


def test_compiling_does_not_count_because_it_is_done_once(evaluate):
    assert evaluate(compiling=(60.0, 60.0)) == [True, True]
