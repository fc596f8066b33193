"""The error that ends a program: an exception that nothing in it caught, or why it exits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from vramfit import _native
from vramfit._inprogram._frames import is_library, site_of

if TYPE_CHECKING:
    from vramfit._inprogram._jax_shim.program_end import Failure


def count_executions() -> None:
    """Let what notes the errors know how many programs have been executed by then."""
    if (noted := _noted()) is not None:
        noted.executions = _native.executions


def uncaught_error(status: object = None) -> tuple[str, str, str] | None:
    """Return class, first line of the message and line of the error that ends the program, if any.

    To be asked while the interpreter exits: Python keeps the exception it has just printed. In an
    interactive session that is the last of many, none of which ended the program.

    Args:
        status: That of ``os._exit``, where the program ends so.
    """
    noted = _noted()
    if noted is None:
        return None
    error = last_error()
    failure = noted.failure_of(error) if error is not None else None
    if not isinstance(error, Exception):
        # What interrupts the main thread may be the error of another one.
        others = noted.exit_reason(status) or noted.exit_failure() or noted.thread_failure()
        failure = others or failure or noted.exit_message()
    return None if failure is None else (failure.name, failure.message, _site(failure))


def _noted() -> Any:
    """Return `program_end`, which was loaded when Python started."""
    return sys.modules.get("_vramfit_program_end")


def last_error() -> BaseException | None:
    """Return the exception that Python, or the shell of a notebook, has shown at last."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        # A notebook that is executed as a whole ends with the cell that fails.
        result: Any = getattr(shell, "last_execution_result", None)
        error = getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
    elif hasattr(sys, "ps1") and getattr(getattr(shell, "parent", None), "interact", True):
        return None
    return error if isinstance(error, BaseException) else None


def _site(failure: Failure) -> str:
    """Return the innermost line of the program's own files that the error went through."""
    for code, line in reversed(failure.places):
        if not is_library(code.co_filename):
            return site_of(code, line)
    return ""
