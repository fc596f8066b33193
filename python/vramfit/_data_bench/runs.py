"""Running all ways in turn, and what comes out of it."""

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

from vramfit._data_bench.machine import cached_share, warm
from vramfit._data_bench.request import Request
from vramfit._data_bench.way import Way
from vramfit._data_bench.ways import WAYS
from vramfit._errors import VramfitError

MAX_DURATION_FACTOR = 30
"""A run lasts no more than so many times as long as it was meant to."""


@dataclass(frozen=True)
class Run:
    """One run of one way.

    Attributes:
        rows: Rows handed out.
        seconds: By the clock, from before the file was opened.
        first_batch_seconds: So much of it until the first batch was there.
        processor_seconds: Of all threads and processes that took part.
    """

    rows: int
    seconds: float
    first_batch_seconds: float
    processor_seconds: float


def compare(request: Request, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Run every way that is installed, in turn, so that the machine is the same for all.

    Raises:
        VramfitError: Our own loader cannot read the file.
    """
    with tempfile.TemporaryDirectory(prefix="vramfit-bench-") as scratch:
        return _compare(replace(request, scratch=scratch), progress)


def _compare(request: Request, progress: Callable[[int, int], None]) -> dict[str, Any]:
    absent = {way.id: _absent(way, request) for way in WAYS}
    left = [way for way in WAYS if absent[way.id] is None]
    runs: dict[str, list[Run]] = {way.id: [] for way in WAYS}
    was_warmed = warm(request.file)
    cached, load = cached_share(request.file), os.getloadavg()[0]
    done, total = 0, request.runs * len(left)
    for _ in range(request.runs):
        for way in tuple(left):
            try:
                runs[way.id].append(run(way, request))
            except (VramfitError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                # Whatever another package does not like about the file is no failure of ours. Those
                # in Rust panic with what is no `Exception`.
                absent[way.id] = _failure(error)
                left.remove(way)
                runs[way.id].clear()
            done += 1
            progress(done, total)
    answers = [_answer(way, runs[way.id], absent[way.id], request) for way in WAYS]
    for answer in answers:
        _add_ratios(answer, answers[0])
    return {
        "ways": answers,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "was_warmed": was_warmed,
        "cached_before": cached,
        "cached_after": cached_share(request.file),
        "python": sys.executable,
    }


def run(way: Way, request: Request) -> Run:
    """Read by one way for so long, one batch at least.

    Who mixes rows in memory reads all of that before the first batch, and has them ready then.
    Such a run goes on until as many rows were handed out, so that neither the one nor the other
    counts alone; but for no more than `MAX_DURATION_FACTOR` times as long.
    """
    enough = request.pool_rows if way.mixes else 1
    used, begin, rows = _processor_seconds(), time.perf_counter(), 0
    first = None
    with contextlib.closing(way.read(request)) as steps:  # type: ignore[type-var]
        for count in steps:
            rows += count
            seconds = time.perf_counter() - begin
            first = first or seconds
            runs = seconds / request.seconds
            if (runs >= 1 and rows >= enough) or runs >= MAX_DURATION_FACTOR:
                break
        seconds = time.perf_counter() - begin
    return Run(rows, seconds, first or seconds, _processor_seconds() - used)


def _absent(way: Way, request: Request) -> str | None:
    """Prepare a way, and return why it cannot be run, if so."""
    if _not_installed(way):
        return "not installed"
    try:
        return way.prepare(request) if way.prepare is not None else None
    except Exception as error:
        return _failure(error)


def _not_installed(way: Way) -> list[str]:
    return [package for package in way.packages if importlib.util.find_spec(package) is None]


def _failure(error: BaseException) -> str:
    return f"failed: {type(error).__name__}: {error}"


def _processor_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _answer(way: Way, runs: list[Run], absent: str | None, request: Request) -> dict[str, Any]:
    speeds = [run.rows * request.row_bytes / run.seconds / 1e6 for run in runs]
    used = [run.processor_seconds / max(1, run.rows) for run in runs]
    return {
        "id": way.id,
        "title": way.title,
        "version": _version(way.packages[0]),
        "absent": absent,
        "not_installed": _not_installed(way),
        "megabytes_per_second": statistics.median(speeds) if runs else None,
        "first_batch_seconds": (
            statistics.median(run.first_batch_seconds for run in runs) if runs else None
        ),
        "slowest": min(speeds) if runs else None,
        "fastest": max(speeds) if runs else None,
        "processor_seconds_per_gigabyte": (
            statistics.median(used) / request.row_bytes * 1e9 if runs else None
        ),
        "runs": [asdict(run) for run in runs],
    }


def _add_ratios(way: dict[str, Any], ours: dict[str, Any]) -> None:
    """Add how many times as fast ours is, by the clock and by the processor time of a row."""
    speed, cost = "megabytes_per_second", "processor_seconds_per_gigabyte"
    is_known = way[speed] is not None and ours[speed] is not None
    way["ours_is_faster"] = ours[speed] / way[speed] if is_known else None
    way["ours_is_cheaper"] = way[cost] / ours[cost] if is_known and ours[cost] else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
