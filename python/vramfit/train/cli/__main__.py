"""The program behind ``vramfit train``, ``predict`` and ``export``.

It is given a request, complete and checked, as a JSON file, and writes the outcome beside it. What
people read comes from ``fit`` while it runs, and from the command line when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType

from vramfit._functions import _child
from vramfit._inprogram import _plugin_errors
from vramfit.errors import (
    InsufficientMemoryError,
    IoError,
    VramfitError,
    VramfitWarning,
    first_line,
)
from vramfit.train.checkpoint.manager import SYSTEM_ERRORS
from vramfit.train.cli.actions import perform
from vramfit.train.loop.memory import is_out_of_memory
from vramfit.train.messages import for_cli, is_during_training
from vramfit.train.run_record import null_non_finite

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_PARENT_DEATH_SIGNAL = signal.SIGUSR1


def main(path: Path) -> int:
    """Run the request in a file, and return the exit code."""
    # Before and after `fit`, which handles signals itself, they end the process: there is nothing
    # to save, and a traceback from the middle of an import would help nobody.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.formatwarning = _format_warning
    request = json.loads(path.read_text())
    if request["progress"] == "none":
        # Standard output is for the result alone, whatever code of the user's prints.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if request["parent_pid"] is not None:
        _stop_with_parent(request["parent_pid"])
    try:
        with for_cli(), _plugin_errors.captured():
            outcome = perform(request)
    except VramfitError as error:
        outcome = {"outcome": _outcome(error), "error": _child.failure(error)}
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        failed = IoError(
            f"cannot write `{error.filename}`" if error.filename else "cannot write a file",
            cause=error.strerror,
            hint="free space there or fix permissions, or choose another directory",
        )
        outcome = {"outcome": "failed", "error": _child.failure(failed)}
    except Exception as error:
        # Outside of the step: in the first state, or an evaluation.
        if not is_out_of_memory(error):
            raise
        shortage = InsufficientMemoryError("out of memory", cause=first_line(error))
        outcome = {"outcome": "out-of-memory", "error": _child.failure(shortage)}
    # The command is gone, and with it the folder; or its disk is full.
    with contextlib.suppress(OSError):
        path.with_name("outcome.json").write_text(json.dumps(null_non_finite(outcome)))
    return 0 if outcome["outcome"] in ("finished", "early", "signal") else 1


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return a warning as a line, without where it is from if it is one of vramfit's."""
    if issubclass(category, VramfitWarning):
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _outcome(error: VramfitError) -> str:
    """Return what an error means: that the request is wrong, or that it failed."""
    if isinstance(error, InsufficientMemoryError):
        return "out-of-memory"
    return "failed" if isinstance(error, IoError) or is_during_training(error) else "rejected"


def _stop_with_parent(parent_pid: int) -> None:
    """Have the system send a signal, which saves the state and stops, when the parent dies.

    A `vramfit train` that is killed would otherwise leave a run behind that nobody sees.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:  # not Linux
        return
    signal.signal(_PARENT_DEATH_SIGNAL, _on_parent_death)
    prctl(_PR_SET_PDEATHSIG, int(_PARENT_DEATH_SIGNAL), 0, 0, 0)
    if os.getppid() != parent_pid:  # it has died already
        signal.raise_signal(signal.SIGTERM)


def _on_parent_death(number: int, _frame: FrameType | None) -> None:
    """Ask the run to stop, once: the signal arrives for each thread of the parent that dies."""
    signal.signal(number, signal.SIG_IGN)
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
