"""Ends the processes that a test waits for when it hangs, and tells what they were doing.

pytest-timeout interrupts a test with an exception. A `with` block or a fixture that then waits for
its process would wait on, and nobody would see for what.
"""

import contextlib
import sys
import threading
import traceback

import psutil
from commands import ROOT

LOG = ROOT / "build" / "hanging-tests.log"
# After the exception of pytest-timeout, in which a test can end its processes itself.
_GRACE_S = 20
# Calls of the test's own, and the innermost in the library that it waits in.
_FRAMES = 6


class Watchdog:
    """Watches one test, as a context."""

    def __init__(self, name, timeout):
        self._name = name
        self._timer = threading.Timer(timeout + _GRACE_S, self._end_processes)
        self._timer.daemon = True

    def __enter__(self):
        self._timer.start()

    def __exit__(self, *_):
        self._timer.cancel()

    def _end_processes(self):
        processes = psutil.Process().children(recursive=True)
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("a") as log:
            log.write(f"{self._name} hangs; {describe_machine()}\n")
            frames = sys._current_frames()[threading.main_thread().ident]
            log.writelines(traceback.format_stack(frames)[-_FRAMES:])
            log.writelines(f"{describe_process(process)}\n" for process in processes)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def describe_machine():
    """Return what may make every test slow: memory, load, and who has most of the memory."""
    mebibytes = psutil.virtual_memory().available >> 20
    processes = list(psutil.process_iter(["pid", "memory_info", "cmdline"]))
    processes = [process.info for process in processes if process.info["memory_info"]]
    largest = max(processes, key=lambda found: found["memory_info"].rss)
    resident, words = largest["memory_info"].rss >> 20, " ".join(largest["cmdline"] or [])
    return (
        f"{mebibytes} MiB available, load {psutil.getloadavg()[0]:.0f}, "
        f"largest process {largest['pid']} with {resident} MiB: {words[:200]}"
    )


def describe_process(process):
    """Return the number, parent, state, processor time and command of a process."""
    try:
        with process.oneshot():
            time = sum(process.cpu_times()[:2])
            words = " ".join(process.cmdline()) or process.name()
            state = f"{process.status()}, {time:.0f} s"
            return f"{process.pid} of {process.ppid()}, {state}: {words[:300]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} has ended"
