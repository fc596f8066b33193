"""The process that runs one marked test on a virtual GPU: keeps it there, and says how it ended."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import vramfit

# Names the file in which that process writes how its test ended.
OUTCOME = "VRAMFIT_PYTEST"
_PLATFORMS = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
# What the dry run has set, before a `conftest.py` can.
_platforms = {name: os.environ.get(name) for name in _PLATFORMS}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a test ended."""

    kind: Literal["passed", "failed", "skipped", "xfailed"]
    # Why it was skipped or expected to fail; the lines of an error.
    reason: str = ""

    @property
    def is_out_of_memory(self) -> bool:
        """Whether it failed because the GPU was full."""
        return self.kind == "failed" and "RESOURCE_EXHAUSTED" in self.reason


def keep_virtual_gpu() -> None:
    """Let JAX use the virtual GPU, whatever a ``conftest.py`` selects."""
    shim = os.path.join(os.path.dirname(vramfit.__file__), "_inprogram", "_jax_shim")
    finder = runpy.run_path(os.path.join(shim, "module_finder.py"))["ModuleFinder"]
    sys.meta_path.insert(0, finder({"jax": ["vramfit._functions._pytest_child.pin_platforms"]}))


def pin_platforms(jax: Any) -> None:
    """Give JAX the platforms of the dry run, and let nobody change them."""
    plain = jax.config.update

    def update(name: str, value: Any) -> None:
        if name not in ("jax_platforms", "jax_platform_name"):
            plain(name, value)

    plain("jax_platforms", _platforms["JAX_PLATFORMS"])
    plain("jax_platform_name", _platforms["JAX_PLATFORM_NAME"] or "")
    jax.config.update = update


def write_outcome(report: pytest.TestReport) -> None:
    """Write how a phase of the test ended, unless it simply passed."""
    text = report.longreprtext
    if report.outcome == "failed" and text.startswith("[XPASS(strict)]"):
        return  # the process that asked for it finds that, too
    if hasattr(report, "wasxfail") and report.outcome == "skipped":
        outcome = Outcome("xfailed", report.wasxfail)
    elif report.outcome == "skipped":
        # File, line and reason.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else text
        outcome = Outcome("skipped", reason.removeprefix("Skipped: "))
    elif report.outcome == "failed":
        outcome = Outcome("failed", text)
    else:
        return
    _write(outcome)


def write_start() -> None:
    """Write that the test was found."""
    if read_outcome(os.environ[OUTCOME]) is None:
        _write(Outcome("passed"))


def _write(outcome: Outcome) -> None:
    Path(os.environ[OUTCOME]).write_text(json.dumps(dataclasses.asdict(outcome)), encoding="utf-8")


def read_outcome(path: str) -> Outcome | None:
    """Return how a test ended; None if it was not reached."""
    try:
        return Outcome(**json.loads(Path(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
