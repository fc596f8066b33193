"""Explains why a program ran out of memory, after an exception that nothing in it caught.

Loaded when Python starts in a program that ``vramfit run`` starts. It does nothing before the
program ends: Python keeps the exception it has printed last.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))

# The end of a log that is read; what failed is there.
MAX_LOG_BYTES = 8 << 20


def install() -> None:
    """Explain the failure when the program has ended, where memory is the cause.

    ``VRAMFIT_EXPLAIN`` is ``1``, or the path of a file: then the process that started this one
    explains, from the state that is written there.
    """
    target = os.environ["VRAMFIT_EXPLAIN"]
    if target == "1":
        atexit.register(_report, _file_size())
    else:
        atexit.register(_write_state, target)


def _write_state(path: str) -> None:
    if "jax" not in sys.modules:
        return
    with contextlib.suppress(Exception):  # the explanation is less precise without it
        _native().write_process_state(path, _environment(), _array_holders())


def _report(begin: int | None) -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    # Python still has to die of the signal behind a KeyboardInterrupt, which is no Exception.
    if not isinstance(error, Exception) or hasattr(sys, "ps1"):
        return
    try:
        text = _explain(_log(error, begin))
    except Exception:  # the program has its own error to show
        return
    if text:
        from vramfit import _stderr

        _stderr.write_line(f"vramfit: {text}")


def _explain(log: bytes) -> str | None:
    jax = getattr(sys.modules.get("jax"), "__version__", None)
    text: str | None = _native().explain_failure(
        log, _environment(), jax, _command(), _array_holders()
    )
    return text


def _native() -> Any:
    runpy.run_path(os.path.join(_HERE, "package_import.py"))["make_importable"]()
    from vramfit import _native

    return _native


def _environment() -> dict[str, str]:
    """Return what JAX has read of the environment."""
    from vramfit._inprogram._late_settings import watcher
    from vramfit._settings._environment import text_variables

    return text_variables(watcher().environment_as_read())


def _array_holders() -> Any:
    """Return the variables that held arrays, as found before JAX's own exit handlers."""
    from vramfit._inprogram._array_holders import found_at_exit

    return found_at_exit()


def _command() -> str:
    """Return how the program was started; nothing where its text is a part of that."""
    import itertools
    import shlex

    interpreter, *arguments = sys.orig_argv
    if "-c" in itertools.takewhile(lambda word: word.startswith("-"), arguments):
        return ""
    return shlex.join([os.path.basename(interpreter), *arguments])


def _log(error: BaseException, begin: int | None) -> bytes:
    """Return what was written to standard error, if that is a file, else the traceback."""
    import traceback

    size = _file_size()
    if begin is not None and size is not None and size > begin:
        with open("/proc/self/fd/2", "rb") as log:
            log.seek(max(begin, size - MAX_LOG_BYTES))
            return log.read(MAX_LOG_BYTES)
    return "".join(traceback.format_exception(error)).encode(errors="replace")


def _file_size() -> int | None:
    """Return the size of the file that standard error is, None where it is no file."""
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
