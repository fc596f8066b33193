"""Python functions that programs call back: which, and whether they have raised an error.

They never reach a plugin: JAX's own run time calls them. On the virtual GPU they are called when a
program that is run on the CPU calls them. Relies on JAX's internals.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from vramfit._inprogram._frames import is_library, site_of

# Functions that are looked at behind a callback: wrappers of JAX hold each other, and much else.
MAX_WRAPPED_FUNCTIONS = 64
# Where `functools` and bound methods keep what they wrap; others have it among their attributes.
_WRAPPED = ("func", "__func__")

# By the number of a program; and those of the program that this thread is compiling.
_callbacks: dict[int, Sequence[Any]] = {}
_compiling = threading.local()
# By the number of a slice: that of the program whose functions it calls.
_owners: dict[int, int] = {}
# Programs of which an execution has called some functions, and then came to no end.
_interrupted: set[int] = set()


def callbacks_of(program: int) -> Sequence[Any]:
    """Return the functions that a program calls back."""
    return _callbacks.get(_owners.get(program, program), ())


def share_callbacks(program: int, owner: int) -> None:
    """Let a program call the functions of another one, of which it is a slice."""
    _owners[program] = owner


def record_interruption(program: int) -> None:
    """Note that an execution came to no end, if it has called a function by then."""
    if any(getattr(callback, "was_called", False) for callback in callbacks_of(program)):
        _interrupted.add(_owners.get(program, program))


def take_interruption(program: int) -> bool:
    """Return whether the execution that goes on now has called functions; once for each."""
    is_interrupted = program in _interrupted
    _interrupted.discard(program)
    return is_interrupted


def line_of_function(callback: Any) -> str:
    """Return where the program's own function behind a callback is defined, or nothing."""
    code = getattr(function_behind(callback), "__code__", None)
    return "" if code is None else site_of(code, code.co_firstlineno)


def function_behind(callback: Any) -> Any:
    """Return the program's own function behind a callback, or None.

    JAX wraps what it is given in functions of its own, and so do other libraries.
    """
    behind = [callback]
    for _ in range(MAX_WRAPPED_FUNCTIONS):
        if not behind:
            break
        function = behind.pop(0)
        code = getattr(function, "__code__", None)
        if code is not None and not is_library(code.co_filename):
            return function
        cells = getattr(function, "__closure__", None) or ()
        held = [cell.cell_contents for cell in cells if not _is_empty(cell)]
        names = (*_WRAPPED, *getattr(type(function), "__slots__", ()))
        held += [getattr(function, name, None) for name in names]
        held += getattr(function, "args", ()) if isinstance(function, functools.partial) else ()
        held += getattr(function, "__dict__", {}).values()
        behind += [each for each in held if callable(each) and not isinstance(each, type)]
    return None


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        return True


def begin_execution(callbacks: Sequence[Any]) -> None:
    """Begin to take note of calls and errors anew."""
    for callback in callbacks:
        if isinstance(callback, Callback):
            callback.was_called = callback.has_raised = False


def have_raised(callbacks: Sequence[Any]) -> bool:
    """Return whether one of the functions has raised an error."""
    return any(getattr(callback, "has_raised", False) for callback in callbacks)


def record_compiled(program: int) -> None:
    """Note that this thread has compiled a program, with the callbacks JAX gave for it."""
    callbacks = getattr(_compiling, "callbacks", None)
    if callbacks:
        _callbacks[program] = callbacks


def record_callbacks() -> None:
    """Let JAX's compile function tell which Python functions a program calls back."""
    from jax._src import compiler

    compile_and_load = compiler.backend_compile_and_load

    @functools.wraps(compile_and_load)
    def recording(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any
    ) -> Any:
        _compiling.callbacks = [
            Callback(each) if callable(each) else each for each in host_callbacks
        ]
        try:
            return compile_and_load(backend, module, executable_devices, options, host_callbacks)
        finally:
            _compiling.callbacks = None

    compiler.backend_compile_and_load = recording


class Callback:
    """A function that a program calls back, which remembers that it was called, and an error.

    It sees the user's setting for 64-bit types, not that of `default_jax_config`: JAX converts
    what it returns by this setting.
    """

    def __init__(self, function: Any) -> None:
        from jax._src import config

        functools.update_wrapper(self, function)
        self._function = function
        self._with_users_widths = functools.partial(config.enable_x64, config.enable_x64.value)
        self.was_called = self.has_raised = False

    def __call__(self, *arguments: Any) -> Any:
        self.was_called = True
        with self._with_users_widths():
            try:
                return self._function(*arguments)
            except Exception:
                self.has_raised = True
                raise
