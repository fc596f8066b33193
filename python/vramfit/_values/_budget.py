"""How long a dry run may compute values: each program, and all programs together."""

from __future__ import annotations

import os
import threading

# Seconds that all programs together may compute, unless `VRAMFIT_VALUES_BUDGET` says otherwise.
RUN_BUDGET_S = 30.0
# The share of that which one program may have, with all of its executions.
PROGRAM_SHARE = 1 / 3
# An execution that takes no longer costs about as much as the call itself, and does not count: keys
# and counters stay known to the end of a long run.
FREE_S = 1e-3

PROGRAM_BUDGET = "program_budget"
RUN_BUDGET = "run_budget"


class Budget:
    """The seconds that were spent, by program. Safe to be used by several threads."""

    def __init__(self, run_s: float | None = None) -> None:
        self.run_s = _asked_for() if run_s is None else run_s
        self.program_s = self.run_s * PROGRAM_SHARE
        self._lock = threading.Lock()
        self._spent: dict[int, float] = {}
        self._total_s = 0.0
        self._quick: set[int] = set()

    def spent_s(self, program: int) -> float:
        """Return the seconds that a program has computed."""
        return self._spent.get(program, 0.0)

    def allowed_s(self, program: int) -> float:
        """Return the seconds that the next execution of a program may take."""
        return min(self.program_s - self.spent_s(program), self.run_s - self._total_s)

    def refusal(self, program: int, estimated_s: float) -> str | None:
        """Return why a program is not to be run, `PROGRAM_BUDGET` or `RUN_BUDGET`; None if it is.

        Args:
            program: Its number.
            estimated_s: What one execution is expected to take; infinite if it cannot be told.
        """
        if self.spent_s(program) >= self.program_s:
            return PROGRAM_BUDGET
        # An estimate may be wrong by a few times; what is beyond that need not be tried.
        if self.program_s * 10 < estimated_s < float("inf"):
            return PROGRAM_BUDGET
        if self._total_s >= self.run_s and program not in self._quick and estimated_s > FREE_S:
            return RUN_BUDGET
        return None

    def charge(self, program: int, seconds: float) -> None:
        """Count what one execution of a program has taken."""
        with self._lock:
            if seconds <= FREE_S:
                self._quick.add(program)
                return
            self._quick.discard(program)
            self._spent[program] = self._spent.get(program, 0.0) + seconds
            self._total_s += seconds


def _asked_for() -> float:
    try:
        return max(0.0, float(os.environ["VRAMFIT_VALUES_BUDGET"]))
    except (KeyError, ValueError):
        return RUN_BUDGET_S
