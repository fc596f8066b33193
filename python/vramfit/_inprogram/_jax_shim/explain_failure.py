"""Says in one line why a program ran out of memory, after an exception that nothing in it caught.

Loaded when Python starts in a program that ``vramfit run`` starts. It does nothing before the
program ends: Python keeps the exception it has printed last.
"""

from __future__ import annotations

import atexit
import os
import runpy
import stat
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))

# The end of a log that is read; what failed is there.
MAX_LOG_BYTES = 8 << 20


def install() -> None:
    """Print the line when the program has ended, where memory is the cause."""
    begin = _file_size()
    atexit.register(_report, begin)


def _report(begin: int | None) -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    # Python still has to die of the signal behind a KeyboardInterrupt, which is no Exception.
    if not isinstance(error, Exception) or hasattr(sys, "ps1"):
        return
    try:
        line = _explain(_log(error, begin))
    except Exception:  # the program has its own error to show
        return
    if line:
        print(f"vramfit: {line}", file=sys.stderr, flush=True)


def _explain(text: bytes) -> str | None:
    runpy.run_path(os.path.join(_HERE, "package_import.py"))["make_importable"]()
    from vramfit import _native

    return _native.explain_failure(text)


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
