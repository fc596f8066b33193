"""Calls the Python functions of programs whose values are not computed, with placeholders.

A script may wait for what such a function does (a queue of metrics, a progress bar), so a dry run
calls those that return nothing. What one returns would decide about the program's results, which
are placeholders anyway, so the others are not called.
"""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import logging
import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from vramfit._inprogram import _source_info
from vramfit._inprogram._jax_shim.run_config import run_config
from vramfit._values import _cpu, _module_work, _read_use
from vramfit._values._callbacks import (
    callbacks_of,
    function_behind,
    line_of_function,
    take_interruption,
)

# How often a function is called in one execution at most: a scan may have a million rounds.
MAX_CALLS = 1000
# There are no placeholders for arguments larger than this.
MAX_ARGUMENT_BYTES = 256 << 20
# How long an execution waits for its functions. On a GPU it does not, so a function may wait for
# the program; the functions of later executions are called after it all the same.
CALLBACK_WAIT_S = 5.0

# How long the end of the program waits for them; JAX waits at its end as long as they take.
END_WAIT_S = 20.0
# After that, how long for the one function that runs.
LAST_CALL_WAIT_S = 2.0

# Why a function is not called; the numbers are those of a trace.
_RESULTS, _REQUEST, _BRANCH, _BOUND = range(4)

# By the function's code, and whether it is called.
_deciding: dict[tuple[CodeType, bool], str | None] = {}

# JAX logs what a function raises; of placeholders that says nothing.
_LOGGERS = ("jax._src.callback", "jax._src.debugging")


CallbackTuple = tuple[str, int, int, str, int, int | None, str | None, int]


@dataclasses.dataclass
class _CallbackOutcome:
    """What became of one place that calls a function, in one execution."""

    line: str
    calls: int = 0
    errors: int = 0
    error: str = ""
    skipped: int = 0
    reason: int | None = None
    # The parameter of the function by which it decides what the program does next; where it is not
    # called, the call that would have decided.
    parameter: str | None = None
    argument_bytes: int = 0

    def to_tuple(self) -> CallbackTuple:
        called = (self.line, self.calls, self.errors, self.error, self.skipped, self.reason)
        return (*called, self.parameter, self.argument_bytes)


def run_callbacks(program: int, code: bytes, devices: int) -> list[CallbackTuple]:
    """Call the functions of a program, as one execution of it would.

    Args:
        program: Its number.
        code: StableHLO as JAX gave it to the plugin.
        devices: On how many devices it runs.

    Returns:
        For each place that calls a function: the user's line, how often it was called, how many of
        the calls raised an error, the last error, how often it was not called, why (0: it has
        results, 1: on request, 2: in a branch that is not taken, 3: too often or too large), the
        parameter by which it decides what the program does next (if it was not called, the call by
        which it would have), and the bytes of its arguments.
    """
    functions = callbacks_of(program)
    # None is called twice.
    is_interrupted = take_interruption(program)
    planned: list[tuple[_module_work.CallbackSite, _CallbackOutcome]] = []
    for call in _module_work.count_work(program, code).calls if functions else ():
        times = 1 if call.times is None else call.times
        times *= devices if call.per_device else 1
        # Where JAX's location has none of the program's lines: where its function is, or runs.
        line = (
            call.site.line
            or line_of_function(functions[call.site.index])
            or _source_info.site()
            or ""
        )
        done = _CallbackOutcome(line)
        planned.append((call.site, done))
        done.argument_bytes = _argument_bytes(call)
        done.reason = _BOUND if is_interrupted else _reason_to_skip(call)
        if done.reason is not None:
            done.skipped = max(times, 1)
        elif times > MAX_CALLS:
            done.calls, done.skipped, done.reason = MAX_CALLS, times - MAX_CALLS, _BOUND
        else:
            done.calls = times
        done.parameter = _decision_of(functions[call.site.index], is_called=done.calls > 0)
    if any(done.calls for _, done in planned):
        _thread.run(lambda: _make_calls(functions, planned))
    return [done.to_tuple() for _, done in planned]


def _reason_to_skip(call: _module_work.Call) -> int | None:
    if not run_config().get("callbacks", True):
        return _REQUEST
    if call.site.has_results:
        return _RESULTS
    if call.times == 0:
        return _BRANCH
    return _BOUND if _argument_bytes(call) > MAX_ARGUMENT_BYTES else None


def _argument_bytes(call: _module_work.Call) -> int:
    operands = (each for each in call.site.operands if each[0] != "token")
    return sum(math.prod(dims) * _cpu.dtype_of(kind).itemsize for kind, dims in operands)


def _decision_of(callback: Any, is_called: bool) -> str | None:
    function = function_behind(callback)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    key = (code, is_called)
    if key not in _deciding:
        find = _read_use.deciding_parameter if is_called else _read_use.deciding_call
        _deciding[key] = find(function)
    return _deciding[key]


def _make_calls(
    functions: Sequence[Any], planned: list[tuple[_module_work.CallbackSite, _CallbackOutcome]]
) -> None:
    arguments = {
        site.index: [_placeholder_array(kind, dims) for kind, dims in site.operands]
        for site, done in planned
        if done.calls
    }
    for site, done in _in_program_order(planned):
        if _thread.is_over:
            return
        try:
            functions[site.index](*arguments[site.index])
        except BaseException as error:
            done.errors += 1
            done.error = f"{type(error).__name__}: {error}"


def _in_program_order(
    planned: list[tuple[_module_work.CallbackSite, _CallbackOutcome]],
) -> Iterator[tuple[_module_work.CallbackSite, _CallbackOutcome]]:
    """Yield the calls in the order of a program in which equally frequent ones share a loop."""
    for times, loop in itertools.groupby(planned, key=lambda each: each[1].calls):
        places = list(loop)
        for _ in range(times):
            yield from places


def _placeholder_array(kind: str, dims: Sequence[int]) -> Any:
    """Return a placeholder, with the contents that the dry run gives it."""
    import numpy as np

    if kind == "token":
        return np.zeros(0, bool)
    dtype = _cpu.dtype_of(kind)
    return np.full(tuple(dims), 1 if run_config().get("fill") == "ones" else 0, dtype)


class _CallbackThread:
    """A thread that calls functions one after the other, as a run time's own threads do."""

    def __init__(self) -> None:
        # Whether the program has ended: a function that runs then ends the process by a signal.
        self.is_over = False
        self._thread: threading.Thread | None = None
        self._process = 0
        self._work: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]

    def run(self, work: Callable[[], None]) -> None:
        """Do something there, and wait a while for its end."""
        if threading.current_thread() is self._thread:
            work()  # a function that runs a program with functions of its own
            return
        self._start()
        done = threading.Event()
        self._work.put((work, done))
        done.wait(CALLBACK_WAIT_S)

    def _finish(self) -> None:
        """Wait at the end of the program, and see to it that no function runs after it."""
        if self._thread is None or self._process != os.getpid():
            return
        done = threading.Event()
        self._work.put((lambda: None, done))
        done.wait(END_WAIT_S)
        self.is_over = True
        done.wait(LAST_CALL_WAIT_S)

    def is_current(self) -> bool:
        """Say whether this is its thread."""
        return threading.current_thread() is self._thread

    def _start(self) -> None:
        if self._thread is not None and self._process == os.getpid():
            return
        self._work = queue.SimpleQueue()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="vramfit-callbacks", daemon=True)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_is_of_real_arguments)
        atexit.register(self._finish)
        self._thread.start()

    def _run(self) -> None:
        while True:
            work, done = self._work.get()
            try:
                work()
            finally:
                done.set()


_thread = _CallbackThread()


def _is_of_real_arguments(_: logging.LogRecord) -> bool:
    return not _thread.is_current()
