"""How long a dry run computes values: each program, and all programs of a run together."""

import math
from types import SimpleNamespace

import pytest

from vramfit._values import _cpu_eval
from vramfit._values._budget import PROGRAM_BUDGET, RUN_BUDGET, Budget
from vramfit._values._module_work import Work


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
        monkeypatch.setattr(_cpu_eval, "time", fake)
        monkeypatch.setattr(_cpu_eval._cpu, "compile_program", compile_)
        monkeypatch.setattr(_cpu_eval._cpu, "run_on_one_device", run_)
        monkeypatch.setattr(_cpu_eval._module_work, "count_work", lambda *_: Work(1e3))
        monkeypatch.setattr(_cpu_eval, "_programs", {})
        monkeypatch.setattr(_cpu_eval, "_budget", Budget(6.0))
        _cpu_eval.register_program(1, b"code", [], [], 1, b"", [], [])
        return [_cpu_eval.evaluate(1, []) for _ in range(2)]

    return run


def test_a_program_that_computes_for_long_is_run_once(evaluate):
    assert evaluate(running=(3.0, 3.0)) == [[b"result"], (PROGRAM_BUDGET, 3.0)]


def test_a_quick_program_is_run_again(evaluate):
    assert evaluate(running=(0.9, 0.9)) == [[b"result"]] * 2


def test_a_busy_machine_changes_nothing(evaluate):
    assert evaluate(running=(60.0, 0.9)) == [[b"result"]] * 2


def test_busy_threads_of_the_program_change_nothing(evaluate):
    assert evaluate(running=(0.9, 60.0)) == [[b"result"]] * 2


def test_compiling_does_not_count_because_it_is_done_once(evaluate):
    assert evaluate(compiling=(60.0, 60.0)) == [[b"result"]] * 2


def test_executions_of_a_program_count_together():
    budget = Budget(30.0)
    for _ in range(80):
        assert budget.refusal(1, 1e-3) is None
        budget.charge(1, 0.125)
    assert (budget.refusal(1, 1e-3), round(budget.spent_s(1))) == (PROGRAM_BUDGET, 10)


def test_the_run_has_a_budget_of_its_own_and_quick_programs_continue():
    budget = Budget(30.0)
    budget.charge(9, 1e-4)  # a counter
    for program in range(4):
        budget.charge(program, 8.0)
    assert budget.refusal(4, 1.0) == RUN_BUDGET
    assert budget.refusal(5, math.inf) == RUN_BUDGET
    assert budget.refusal(9, 1.0) is None  # it was quick, whatever was expected
    assert budget.refusal(6, 1e-5) is None


def test_what_is_expected_to_take_much_longer_is_not_tried():
    budget = Budget(30.0)
    assert budget.refusal(1, 99.0) is None  # an estimate
    assert budget.refusal(1, 101.0) == PROGRAM_BUDGET
    assert budget.refusal(1, math.inf) is None  # nobody knows


def test_the_budget_can_be_set(monkeypatch):
    monkeypatch.setenv("VRAMFIT_VALUES_BUDGET", "6")
    assert (Budget().run_s, Budget().program_s) == (6.0, 2.0)
    monkeypatch.setenv("VRAMFIT_VALUES_BUDGET", "much")
    assert Budget().run_s == 30.0
