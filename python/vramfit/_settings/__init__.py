"""Applies memory settings to this process, before its JAX reads them.

Rust decides what is set, as for ``vramfit run``. Here it is written where the JAX of this process
will read it: into the environment, and where JAX has read that already, into its configuration.

Imports next to nothing: ``typing`` alone would take as long as all of this.
"""

from __future__ import annotations

import os
import sys

from vramfit import _native
from vramfit._settings._environment import text_variables
from vramfit.errors import InvalidArgumentError, JaxAlreadyInitializedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Applied:
    """Settings that were applied to this process."""

    __slots__ = ("jax_version", "lost", "notes", "settings")

    def __init__(
        self,
        settings: _native.ResolvedSettings,
        lost: dict[str, str],
        jax_version: str | None,
    ) -> None:
        self.settings = settings
        # By variable, that the program has set it after JAX read it; also among the notes.
        self.lost = lost
        self.notes = [*settings.notes, *lost.values()]
        self.jax_version = jax_version


# By variable: its value before we changed it, and the value that we gave it.
_changed_variables: dict[str, tuple[str | None, str | None]] = {}
# The same for JAX's configuration, by option.
_changed_options: dict[str, tuple[Any, Any]] = {}

# Variables that JAX reads while it is imported; afterwards its configuration counts. Their values
# there are strings, except for these.
_BOOLEANS = {"JAX_ENABLE_X64", "JAX_DISABLE_JIT", "JAX_COMPILER_ENABLE_REMAT_PASS"}
_CONFIG_VARIABLES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", *sorted(_BOOLEANS))


def apply(options: Mapping[str, Any], *, detailed: bool) -> Applied:
    """Apply options, and defaults where neither they nor the environment set anything.

    Each call starts with the environment as it was before the first: what an earlier one set and
    this one does not is restored. With ``detailed`` the driver is asked also where its answer only
    makes reasons and notes more detailed.

    Raises:
        JaxAlreadyInitializedError: If JAX has created its devices and reads no settings any more.
        InvalidArgumentError: If an option is out of range, or excludes another.
    """
    jax = sys.modules.get("jax")
    if is_started():
        from vramfit._inprogram._import_site import first_import_site

        raise JaxAlreadyInitializedError(
            "JAX has already created its devices and reads no memory settings any more",
            cause=first_import_site(),
            hint="move `import vramfit.jax_memory_fix` to the first line of the program, or to the "
            "first cell after a restart; or start the program with `vramfit run`",
        )
    _check(options)
    lost = _changes_after_import(jax) if jax is not None else {}
    environment = text_variables(_original_environment())
    if jax is not None:
        environment |= _configuration(jax)
    version = jax.__version__ if jax is not None else installed_version()
    settings = _native.resolve_settings(environment, version, detailed=detailed, **options)
    _restore(jax)
    for setting in settings.set:
        _set_env(setting.name, setting.value)
        if setting.read_at_import and jax is not None:
            _configure(jax, setting.name, setting.value)
    for name in settings.removed:
        _set_env(name, None)
    return Applied(settings, lost, version)


def _changes_after_import(jax: Any) -> dict[str, str]:
    """Return a note for each variable that the program has set after JAX read it, by its name.

    Nothing may have watched the environment; but its initial values are known, and the values that
    JAX uses. Where a variable has changed and JAX uses another value, the change was lost.
    """
    from vramfit._inprogram import _late_settings

    seen = _late_settings.watcher()
    before = {name for name, _, _, _, stage in seen.changes if stage == "before"}
    notes = {}
    for name, value in os.environ.items():
        option = name.lower()
        if (
            not name.startswith("JAX_")
            or option not in jax.config.values
            or name in _changed_variables
        ):
            continue
        lost = not seen._is(jax.config.values[option], value)
        if lost and name not in before and _initial_environment().get(name) != value:
            notes[name] = (
                f"`{name}={value}` was set after JAX was imported and has no effect: call "
                f'`jax.config.update("{option}", …)`, or set it before `import jax`'
            )
    return notes


def _initial_environment() -> dict[str, str]:
    """Return the environment that this process was started with, if available."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def is_started() -> bool:
    """Return whether JAX in this process has made a backend."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    # One of JAX's internals, there since 0.4; nothing public says it without starting JAX.
    return bool(getattr(bridge, "_backends", None))


def installed_version() -> str | None:
    """Return the version of the JAX that would be imported, without importing it."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("jax")
    if spec is None or spec.origin is None:
        return None
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    # `importlib.metadata` takes longer to import than all of this.
    for line in lines:
        if line.startswith("_version = "):
            return line.removeprefix("_version = ").strip("\"' ")
    return None


def environment() -> dict[str, str]:
    """Return the settings of JAX in this process: the environment, and its configuration."""
    jax = sys.modules.get("jax")
    return text_variables(os.environ) | (_configuration(jax) if jax is not None else {})


def _check(options: Mapping[str, Any]) -> None:
    """Reject values of the wrong type, with a message that mentions no type of Rust."""
    for name, value in options.items():
        if value is None:
            continue
        kinds: tuple[type, ...] = (bool,)
        example = "True or False"
        if name == "fraction":
            kinds, example = (float, int), "a number such as 0.9"
        elif name in ("limit", "keep_free", "allocator"):
            kinds = (str,)
            example = "'cuda_async'" if name == "allocator" else "a size such as '8GiB'"
        elif name in ("processes", "host_devices"):
            kinds, example = (int,), "a number such as 2"
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InvalidArgumentError(
                f"`{name}={value!r}` has type {type(value).__name__}", hint=f"write {example}"
            )
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < 1 << 32:
            raise InvalidArgumentError(f"`{name}={value}` is out of range", hint=f"write {example}")


def _original_environment() -> dict[str, str]:
    """Return the environment without our changes."""
    original = dict(os.environ)
    for name, (before, ours) in _changed_variables.items():
        if original.get(name) != ours:
            continue  # the program has changed it since
        original.pop(name, None)
        if before is not None:
            original[name] = before
    return original


def _set_env(name: str, value: str | None) -> None:
    _changed_variables[name] = (os.environ.get(name), value)
    _write_env(name, value)


def _write_env(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _restore(jax: Any) -> None:
    """Undo our changes, except where the program has changed a value since."""
    for name, (before, ours) in _changed_variables.items():
        if os.environ.get(name) == ours:
            _write_env(name, before)
    _changed_variables.clear()
    for option, (before, ours) in _changed_options.items():
        if jax.config.values.get(option) == ours:
            jax.config.update(option, before)
    _changed_options.clear()


def _configuration(jax: Any) -> dict[str, str]:
    """Return the configuration of an imported JAX as its variables, without our changes."""
    found = {}
    for name in _CONFIG_VARIABLES:
        option = name.lower()
        value = jax.config.values.get(option)
        if option in _changed_options and _changed_options[option][1] == value:
            value = _changed_options[option][0]
        if value:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            # The variable may have been set since then, without effect.
            found[name] = "false" if name in _BOOLEANS and value is False else ""
    return found


def _configure(jax: Any, name: str, value: str) -> None:
    option = name.lower()
    if option not in jax.config.values:
        return  # this release does not have it, and would not read the variable either
    ours = value == "true" if name in _BOOLEANS else value
    _changed_options[option] = (jax.config.values[option], ours)
    jax.config.update(option, ours)
