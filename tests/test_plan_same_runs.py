"""A plan changes no result: training runs of many kinds, with every function cut everywhere."""

import sys

import pytest
from planning import check_runs, run_names

NAMES = run_names()
# A process for so many runs.
GROUP = 6


def test_there_are_many_kinds_of_runs():
    assert len(NAMES) >= 60
    assert len(run_names(of_libraries=False)) >= 55


@pytest.mark.parametrize("first", range(0, len(NAMES), GROUP))
def test_a_plan_changes_no_result(first):
    check_runs([sys.executable], NAMES[first : first + GROUP])
