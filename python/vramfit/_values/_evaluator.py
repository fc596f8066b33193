"""The process that computes values which may take long, as seen from the program's.

It runs ``_worker.py``. It is started when it is first needed, costs about a second and 250 MB, and
is killed when a computation exceeds what it is allowed.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from vramfit._values import _messages

# How long the process may take to import JAX, on a machine that is busy with other things.
START_TIMEOUT_S = 120.0
# How often it is looked whether a computation has used up its time.
POLL_S = 0.02
# A computation that waits for something and computes nothing is given up after so many times the
# seconds that it may compute.
IDLE_FACTOR = 10.0


class EvaluationTimeout(Exception):
    """A computation was given up because it took longer than it was allowed."""

    def __init__(self, spent_s: float) -> None:
        super().__init__(f"given up after {spent_s:.1f} s")
        self.spent_s = spent_s


class EvaluationFailed(Exception):
    """A computation failed, in the words of XLA."""


class EvaluationProcess:
    """Computes in a process of its own. Safe to be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._known: set[int] = set()

    def run(
        self, request: dict[str, Any], callbacks: Sequence[Any], allowed_s: float
    ) -> tuple[list[bytes], float]:
        """Run a program.

        Args:
            request: What ``_worker.py`` reads: the program's number, code and options, its inputs.
            callbacks: The user's functions that it calls; they are called in this process.
            allowed_s: Seconds that it may compute, compiling included.

        Returns:
            The results as `_cpu.run` gives them, and the seconds that they took.

        Raises:
            EvaluationTimeout: If it was given up.
            EvaluationFailed: If it failed, or the process died of it.
        """
        with self._lock:
            process = self._started()
            request["callbacks"] = len(callbacks)
            if request["program"] in self._known:
                request["code"] = b""
            assert process.stdin is not None
            assert process.stdout is not None
            meter = _ProcessTimer(process.pid)
            try:
                _messages.send(process.stdin.fileno(), ("run", request))
                while True:
                    self._wait(process.stdout.fileno(), meter, allowed_s)
                    kind, *content = _messages.receive(process.stdout.fileno())
                    if kind != "call":
                        break
                    with meter.paused():
                        answer = _call(callbacks[content[0]], content[1])
                    _messages.send(process.stdin.fileno(), ("returned", *answer))
            except (EOFError, OSError) as error:
                self._kill()
                raise EvaluationFailed("the process that computed it has died") from error
            if kind == "impossible":
                raise EvaluationFailed(content[0])
            self._known.add(request["program"])
            return content[0], meter.spent_s()

    def _started(self) -> subprocess.Popen[bytes]:
        process = self._process
        # A forked process must not write into its parent's pipe.
        if process is not None and self._owner == os.getpid() and process.poll() is None:
            return process
        self._known.clear()
        worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker.py")
        try:
            process = subprocess.Popen(
                [sys.executable, "-S", worker],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError) as error:
            raise EvaluationFailed("no process can be started to compute it") from error
        self._process, self._owner = process, os.getpid()
        assert process.stdout is not None
        try:
            if not select.select([process.stdout], [], [], START_TIMEOUT_S)[0]:
                raise EOFError
            _messages.receive(process.stdout.fileno())
        except (EOFError, OSError) as error:
            self._kill()
            raise EvaluationFailed("the process that computes values does not start") from error
        return process

    def _wait(self, pipe: int, meter: _ProcessTimer, allowed_s: float) -> None:
        while not select.select([pipe], [], [], POLL_S)[0]:
            if meter.spent_s() > allowed_s or meter.wall_s() > IDLE_FACTOR * allowed_s:
                spent_s = meter.spent_s()
                self._kill()
                raise EvaluationTimeout(spent_s)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            process.wait(5)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class _ProcessTimer:
    """Measures what a process spends: seconds of its processors, but not more than have passed.

    So neither a busy machine nor several threads of XLA's change what can be computed.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._wall = time.monotonic()
        self._processor = _processor_s(pid)

    def wall_s(self) -> float:
        return time.monotonic() - self._wall

    def spent_s(self) -> float:
        return min(self.wall_s(), _processor_s(self._pid) - self._processor)

    @contextlib.contextmanager
    def paused(self) -> Any:
        begin = time.monotonic()
        yield
        self._wall += time.monotonic() - begin


def _processor_s(pid: int) -> float:
    """Return the processor time of a process, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command may have spaces in it; the fields count from behind it.
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _call(callback: Any, arguments: list[Any]) -> tuple[Any, str | None]:
    import numpy as np

    try:
        return [np.asarray(each) for each in callback(*arguments)], None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def _environment() -> dict[str, str]:
    """Return an environment in which JAX is found where it is here, and has only the CPU."""
    mine = ("JAX_", "XLA_", "VRAMFIT_", "TF_", "CUDA_", "NVIDIA_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    shim = os.path.join(package, "_inprogram", "_jax_shim")
    folders = [folder for folder in sys.path if folder and os.path.abspath(folder) != shim]
    return kept | {
        "PYTHONPATH": os.pathsep.join(folders),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
