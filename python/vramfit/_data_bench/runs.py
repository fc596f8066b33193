"""Runs all backends in turn, and summarizes the results."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from vramfit._data_bench.backend import Backend
from vramfit._data_bench.backends import BACKENDS
from vramfit._data_bench.machine import cached_fraction, warm
from vramfit._data_bench.options import BenchOptions
from vramfit.errors import VramfitError

MAX_DURATION_FACTOR = 30
"""A run lasts at most this many times its intended duration."""


@dataclass(frozen=True)
class Run:
    """One run of one backend.

    Attributes:
        rows: Rows handed out.
        seconds: Wall-clock time, including opening the file.
        first_batch_seconds: Time until the first batch.
        processor_seconds: CPU time of all threads and processes.
    """

    rows: int
    seconds: float
    first_batch_seconds: float
    processor_seconds: float


def compare(options: BenchOptions, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Run all installed backends in turn, so that conditions are the same for all.

    Raises:
        VramfitError: vramfit's loader cannot read the file.
    """
    with tempfile.TemporaryDirectory(prefix="vramfit-bench-") as scratch:
        return _compare(replace(options, scratch=scratch), progress)


def _compare(options: BenchOptions, progress: Callable[[int, int], None]) -> dict[str, Any]:
    skipped = {backend.id: _skip_reason(backend, options) for backend in BACKENDS}
    remaining = [backend for backend in BACKENDS if skipped[backend.id] is None]
    runs: dict[str, list[Run]] = {backend.id: [] for backend in BACKENDS}
    was_warmed = warm(options.file)
    cached, load = cached_fraction(options.file), os.getloadavg()[0]
    done, total = 0, options.runs * len(remaining)
    for _ in range(options.runs):
        for backend in tuple(remaining):
            try:
                runs[backend.id].append(run(backend, options))
            except (VramfitError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                # A failure of another package is part of the result. Packages in Rust panic with
                # what is not an `Exception`.
                skipped[backend.id] = _failure(error)
                remaining.remove(backend)
                runs[backend.id].clear()
            done += 1
            progress(done, total)
    results = [
        _summarize(backend, runs[backend.id], skipped[backend.id], options) for backend in BACKENDS
    ]
    for result in results:
        _add_ratios(result, results[0])
    return {
        "backends": results,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "was_warmed": was_warmed,
        "cached_before": cached,
        "cached_after": cached_fraction(options.file),
        "python": sys.executable,
    }


def run(backend: Backend, options: BenchOptions) -> Run:
    """Run one backend for the intended duration, at least one batch.

    A backend with a shuffle buffer fills it before the first batch, and then has many ready.
    Its run continues until all of the buffer was handed out, so that both count; but for no more
    than `MAX_DURATION_FACTOR` times the duration.
    """
    min_rows = options.buffer_rows if backend.mixes else 1
    used, start, rows = _processor_seconds(), time.perf_counter(), 0
    first = None
    with contextlib.closing(backend.read(options)) as steps:  # type: ignore[type-var]
        for count in steps:
            rows += count
            seconds = time.perf_counter() - start
            first = first or seconds
            runs = seconds / options.seconds
            if (runs >= 1 and rows >= min_rows) or runs >= MAX_DURATION_FACTOR:
                break
        seconds = time.perf_counter() - start
    return Run(rows, seconds, first or seconds, _processor_seconds() - used)


def _skip_reason(backend: Backend, options: BenchOptions) -> str | None:
    """Prepare a backend, and return why it cannot run, if so."""
    if _not_installed(backend):
        return "not installed"
    try:
        return backend.prepare(options) if backend.prepare is not None else None
    except Exception as error:
        return _failure(error)


def _not_installed(backend: Backend) -> list[str]:
    return [package for package in backend.packages if importlib.util.find_spec(package) is None]


def _failure(error: BaseException) -> str:
    return f"failed: {type(error).__name__}: {error}"


def _processor_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _summarize(
    backend: Backend, runs: list[Run], reason: str | None, options: BenchOptions
) -> dict[str, Any]:
    speeds = [run.rows * options.row_bytes / run.seconds / 1e6 for run in runs]
    used = [run.processor_seconds / max(1, run.rows) for run in runs]
    return {
        "id": backend.id,
        "title": backend.title,
        "version": _version(backend.packages[0]),
        "skipped": reason,
        "not_installed": _not_installed(backend),
        "megabytes_per_second": statistics.median(speeds) if runs else None,
        "first_batch_seconds": (
            statistics.median(run.first_batch_seconds for run in runs) if runs else None
        ),
        "slowest": min(speeds) if runs else None,
        "fastest": max(speeds) if runs else None,
        "processor_seconds_per_gigabyte": (
            statistics.median(used) / options.row_bytes * 1e9 if runs else None
        ),
        "runs": [asdict(run) for run in runs],
    }


def _add_ratios(result: dict[str, Any], own: dict[str, Any]) -> None:
    """Add how many times as fast vramfit is, by wall-clock and CPU time."""
    speed, cost = "megabytes_per_second", "processor_seconds_per_gigabyte"
    is_known = result[speed] is not None and own[speed] is not None
    result["speedup"] = own[speed] / result[speed] if is_known else None
    result["cpu_speedup"] = result[cost] / own[cost] if is_known and own[cost] else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
