"""Tracebacks that orbax and tensorstore print of errors that are reported in one line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any


class TracebackFilter(logging.Filter):
    """Drops what orbax's threads log of an error, and what tensorstore's print after one.

    When one array of a checkpoint cannot be written orbax closes its event loop. Writes of other
    arrays that fail later find it closed, and tensorstore prints that from a thread of its own.
    That can be after the manager was closed, so `sys.unraisablehook` stays replaced.
    """

    def __init__(self) -> None:
        super().__init__()
        self._print = sys.unraisablehook

    def install(self) -> None:
        """Begin to drop them."""
        logging.getLogger("absl").addFilter(self)
        if sys.unraisablehook != self._unraisablehook:
            self._print = sys.unraisablehook
            sys.unraisablehook = self._unraisablehook

    def remove(self) -> None:
        """Let orbax log tracebacks again."""
        logging.getLogger("absl").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        is_orbax = f"{os.sep}orbax{os.sep}" in record.pathname
        return not (is_orbax and record.levelno >= logging.ERROR and record.exc_info)

    def _unraisablehook(self, unraisable: Any) -> None:
        # Only tensorstore calls asyncio without a Python frame around.
        traceback = unraisable.exc_traceback
        code = None if traceback is None else traceback.tb_frame.f_code
        is_late_write = code is not None and code.co_name == "call_soon_threadsafe"
        if not (is_late_write and isinstance(unraisable.exc_value, RuntimeError)):
            self._print(unraisable)


TRACEBACK_FILTER = TracebackFilter()
"""The one of this process."""
