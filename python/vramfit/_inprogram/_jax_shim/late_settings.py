"""Notes changes that a program makes to its environment, and how far JAX had come by then.

``os.environ["JAX_ENABLE_X64"] = "1"`` behind ``import jax`` changes nothing, and nothing says so.
So each change is noted with its line. What it means is decided in Rust (the rule
``set-too-late``), which knows when each variable is read.

Python calls ``os.putenv`` for each change of ``os.environ``; that function is replaced by one that
notes the change and then does what it did. What C code changes in the environment is not seen.

Loaded when Python starts, in a program that vramfit starts, and by ``vramfit.jax_memory_fix``;
always under the name `NAME`, so that there is one of it. Imports nothing that Python has not
loaded anyway.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    # Name, value before, value after, line, stage.
    Change: TypeAlias = tuple[str, str | None, str | None, str, str]

NAME = "_vramfit_late_settings"

# What JAX, XLA, its plugin, CUDA and NCCL look up. All else is of no interest.
VARIABLE_PREFIXES = ("JAX_", "XLA_", "PJRT_", "TF_", "CUDA_", "NCCL_")
# Changes that these make are not the user's: JAX sets defaults while it is imported.
LIBRARY_PACKAGES = (
    "os",
    "_collections_abc",
    "contextlib",
    "jax",
    "jaxlib",
    "jax_plugins",
    "vramfit",
)

# Every change of such a variable, in order.
changes: list[Change] = []
# The variables that were spoken of.
told: set[str] = set()
# Called with each change once it was made.
listeners: list[Callable[[Change], object]] = []


def install() -> None:
    """Begin to note changes; again, it does nothing."""
    put, unset = os.putenv, os.unsetenv
    if getattr(put, "is_recording", False):
        return

    def putenv(name: Any, value: Any, /) -> None:
        change = _change(name, value)
        put(name, value)
        _note(change)

    def unsetenv(name: Any, /) -> None:
        change = _change(name, None)
        unset(name)
        _note(change)

    putenv.is_recording = True  # type: ignore[attr-defined]
    os.putenv, os.unsetenv = putenv, unsetenv


def stage() -> str:
    """Return how far the JAX of this process has come.

    One of ``before``, ``imported`` (its options were read), ``discovered`` (what it hands to the
    clients of plugins was read) and ``started`` (there is a backend).
    """
    modules = sys.modules
    if "jax._src.config" not in modules:
        return "before"
    # Internals of JAX; nothing public tells it without starting JAX.
    bridge = modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_backends", None):
        return "started"
    return "discovered" if getattr(bridge, "_plugins_registered", False) else "imported"


def find_late_changes(jax: Any = None) -> list[Change]:
    """Return the changes that JAX may have missed.

    A change of an option that JAX's configuration now has is none: the program has said the same by
    ``jax.config.update``, too. Names that look like options and are none, such as
    ``JAX_COORDINATOR_ADDRESS``, are read when they are needed.
    """
    jax = jax or sys.modules.get("jax")
    options: Mapping[str, Any] = getattr(getattr(jax, "config", None), "values", {})
    latest = {name: new for name, _, new, _, _ in changes}
    found = []
    for change in changes:
        name, how_far = change[0], change[4]
        if how_far == "before":
            continue
        if name.startswith("JAX_"):
            option = name.lower()
            if option not in options or _is(options[option], latest[name]):
                continue
        found.append(change)
    return found


def environment_as_read() -> dict[str, str]:
    """Return the environment as JAX has read it, as far as it has come.

    What was changed since has the value from before.
    """
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(VARIABLE_PREFIXES)
    }
    reverted = set()
    for name, old, _, _, how_far in changes:
        of_jax = name.startswith("JAX_")
        is_late = how_far == "started" or (how_far != "before" and of_jax)
        if how_far == "discovered" and name.startswith(("XLA_PYTHON_CLIENT_", "XLA_CLIENT_")):
            is_late = True
        if not is_late or name in reverted:
            continue
        reverted.add(name)
        environment.pop(name, None)
        if old is not None:
            environment[name] = old
    return environment


def _change(name: Any, value: Any) -> Change | None:
    """Return what is about to be changed, if it is of interest and the user's."""
    name = os.fsdecode(name)
    if not name.startswith(VARIABLE_PREFIXES):
        return None
    line = _caller_line()
    if line is None:
        return None
    new = None if value is None else os.fsdecode(value)
    return name, os.environ.get(name), new, line, stage()


def _note(change: Change | None) -> None:
    if change is None or change[1] == change[2]:
        return
    changes.append(change)
    for listener in listeners:
        try:
            listener(change)
        except Exception:  # a program must not suffer from being watched
            continue


def _caller_line() -> str | None:
    """Return the line that changes the environment; None if it is not the user's."""
    frame = sys._getframe(3)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in LIBRARY_PACKAGES:
            code = frame.f_code
            return f"{code.co_filename}:{frame.f_lineno} ({code.co_name})"
        if package in ("jax", "jaxlib", "jax_plugins", "vramfit"):
            return None
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def _is(configured: Any, text: str | None) -> bool:
    """Return whether JAX's configuration holds what a text means."""
    text = (text or "").lower()
    if isinstance(configured, bool):
        words = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0", "")
        return text in words[0 if configured else 1]
    return str("" if configured is None else configured).lower() == text
