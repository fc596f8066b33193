"""The pytest plugin: tests that fail when a program needs too much GPU memory, without a GPU.

Loaded by pytest wherever vramfit is installed, so it imports nothing before a test asks for it.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vramfit._functions._pytest_child import Outcome
    from vramfit.report import DryrunReport

MARKER = """\
vramfit(gpu, max=None, spare=None, fraction=None): run the test on a virtual GPU such as "l4", and \
fail if its peak exceeds `max` (bytes, such as "20GiB"), leaves less than `spare` (bytes or \
percent) of the pool, or does not fit. With the fixture `vramfit_estimate`: what is estimated."""

# Set in the process that runs one test on a virtual GPU (`_pytest_child`).
_CHILD = "VRAMFIT_PYTEST"
# Lines of a failure: the sentence, and the largest owners or the end of the output.
_MAX_LINES = 10


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a test may need, and where."""

    gpu: str
    max: str | int | None = None
    spare: str | int | None = None
    fraction: float | None = None


if _CHILD in os.environ:
    # Before any `conftest.py` is loaded.
    from vramfit._functions import _pytest_child

    _pytest_child.keep_virtual_gpu()


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say how the test on a virtual GPU ended."""
    if _CHILD in os.environ:
        _pytest_child.write_outcome(report)


def pytest_runtest_setup() -> None:
    """Say that the test on a virtual GPU begins."""
    if _CHILD in os.environ:
        _pytest_child.write_start()


@pytest.fixture
def vramfit_estimate(request: pytest.FixtureRequest) -> Callable[..., DryrunReport]:
    """Estimate the GPU memory of a function, and fail the test if it needs too much.

    Called as ``vramfit_estimate(step, *args, gpu="l4", max="20GiB", spare="5%", **kwargs)``. What
    is not given comes from the marker ``vramfit``. Returns the report of `vramfit.estimate`.
    """
    marker = request.node.get_closest_marker("vramfit")
    defaults = marker.kwargs if marker else {}

    def estimate(step: Callable[..., Any], *args: Any, **kwargs: Any) -> DryrunReport:
        import vramfit

        names = [field.name for field in dataclasses.fields(Limits)]
        given = {name: kwargs.pop(name) for name in names if name in kwargs}
        limits = read_limits({**defaults, **given})
        report = vramfit.estimate(step, *args, gpu=limits.gpu, fraction=limits.fraction, **kwargs)
        name = getattr(step, "__name__", type(step).__name__)
        fail_beyond(report, limits, f"`{name}`")
        return report

    return estimate


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test on a virtual GPU, in a process of its own."""
    marker = pyfuncitem.get_closest_marker("vramfit")
    is_run_here = "vramfit_estimate" in pyfuncitem.fixturenames or _CHILD in os.environ
    if marker is None or is_run_here:
        return None
    if marker.args:
        pytest.fail("write `@pytest.mark.vramfit(gpu=...)`: it has no positional arguments", False)
    limits = read_limits(marker.kwargs)
    with tempfile.TemporaryDirectory(prefix="vramfit-") as folder:
        trace, outcome_file = (os.path.join(folder, name) for name in ("run.trace", "outcome"))
        fraction = [] if limits.fraction is None else ["--fraction", str(limits.fraction)]
        root = pyfuncitem.config.rootpath
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "vramfit", "--quiet", "dryrun", "--gpu", limits.gpu),
                *(*fraction, "--trace", trace, "--"),
                *(sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
                *("--rootdir", str(root), pyfuncitem.nodeid),
            ],
            cwd=root,
            env=_child_environment(outcome_file),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        from vramfit._functions._pytest_child import read_outcome

        outcome = read_outcome(outcome_file)
        if outcome is None or not outcome.is_out_of_memory:
            _adopt_outcome(outcome, done, limits)
        if not os.path.exists(trace):
            _fail("the test did not use JAX on the virtual GPU, so nothing was measured", [])
        from vramfit.report import dryrun_report

        fail_beyond(dryrun_report(trace), limits, "the test")
        # It has asked for too much, and something else is wrong.
        _adopt_outcome(outcome, done, limits)
    return True


def _adopt_outcome(
    outcome: Outcome | None, done: subprocess.CompletedProcess[str], limits: Limits
) -> None:
    """End the test as it ended on the virtual GPU, unless it passed there."""
    if outcome is None:
        error = done.stderr.strip() or done.stdout.strip()
        _fail("the test could not be run on a virtual GPU", error.splitlines())
    elif outcome.kind == "skipped":
        raise pytest.skip.Exception(outcome.reason, _use_item_location=True)
    elif outcome.kind == "xfailed":
        pytest.xfail(outcome.reason)
    elif outcome.kind == "failed":
        lines = [line for line in outcome.reason.splitlines() if line.startswith("E ")]
        _fail(f"the test failed on a virtual {limits.gpu}", lines)


def read_limits(values: Mapping[str, Any]) -> Limits:
    """Return the limits of a marker or a call; fails the test if they are not valid."""
    names = [field.name for field in dataclasses.fields(Limits)]
    unknown = [name for name in values if name not in names]
    if unknown:
        pytest.fail(f"vramfit: unknown argument `{unknown[0]}`; known: {', '.join(names)}", False)
    if "gpu" not in values:
        pytest.fail('vramfit: no GPU; write `@pytest.mark.vramfit(gpu="l4")`', False)
    return Limits(**values)


def fail_beyond(report: DryrunReport, limits: Limits, what: str) -> None:
    """Fail the test if a report exceeds limits."""
    from vramfit import _native

    show = _native.show_bytes
    peak, limit = report.peak_bytes, report.limit_bytes
    if report.fits is False:
        reason = report.headline
    elif limits.max is not None and peak > _bytes(limits.max):
        over = show(peak - _bytes(limits.max))
        reason = f"needs {show(peak)} on {limits.gpu}, {over} more than `max={limits.max}`"
    elif limits.spare is not None and limit - peak < _bytes(limits.spare, limit):
        left = show(max(limit - peak, 0))
        reason = f"leaves {left} of {show(limit)} on {limits.gpu}, less than `spare={limits.spare}`"
    else:
        return
    entries = sorted(report.attribution, key=lambda entry: -entry.bytes)
    lines = []
    for entry in entries:
        place = ", ".join(text for text in (entry.path, entry.site, entry.shape) if text)
        lines.append(f"{show(entry.bytes):>10}  {entry.owner}: {place}".rstrip(": "))
    _fail(f"{what} {reason}", lines)


def _fail(summary: str, lines: list[str]) -> None:
    shown = lines[: _MAX_LINES - 1]
    pytest.fail("\n".join([f"vramfit: {summary}", *(f"  {line}" for line in shown)]), False)


def _bytes(amount: str | int, whole: int = 0) -> int:
    """Return an amount in bytes; a percentage is one of `whole`."""
    from vramfit import _native

    text = str(amount).strip()
    if text.endswith("%"):
        return int(whole * float(text[:-1]) / 100)
    return _native.parse_bytes(text)


def _child_environment(outcome_file: str) -> dict[str, str]:
    """Return the environment of a test on a virtual GPU: without what keeps this one on the CPU."""
    from vramfit._functions._command import PLATFORM_VARIABLES

    variables = {k: v for k, v in os.environ.items() if k not in PLATFORM_VARIABLES}
    # Set by pytest, and by plugins that run tests in several processes.
    for name in ("PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        variables.pop(name, None)
    return {**variables, _CHILD: outcome_file}
