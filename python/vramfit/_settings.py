"""Applies memory settings to this process, before its JAX reads them.

What is set is decided in Rust, as for ``vramfit run``. Here it is put where the JAX of this process
will look: into the environment, and where JAX has read that already, into its configuration.

Imports next to nothing: ``typing`` alone would take as long as all of this.
"""

from __future__ import annotations

import os
import sys

from vramfit import _native
from vramfit._environment import text_variables
from vramfit._errors import InvalidArgumentError, JaxAlreadyInitializedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    # What to set (name, value, why, whether JAX reads it at its import), what to remove, what goes
    # before a default (name, value, why), notes, and the version of JAX.
    Decided: TypeAlias = tuple[
        list[tuple[str, str, str, bool]],
        list[str],
        list[tuple[str, str, str]],
        list[str],
        str | None,
    ]


# By name: what the environment held before we set it, and what we set it to.
_ours: dict[str, tuple[str | None, str | None]] = {}
# The same for JAX's configuration, by option.
_ours_in_jax: dict[str, tuple[Any, Any]] = {}

# Variables that JAX reads while it is imported, and for which its configuration is asked later.
# All are texts there but these.
_TRUTH_VALUES = {"JAX_ENABLE_X64", "JAX_DISABLE_JIT", "JAX_COMPILER_ENABLE_REMAT_PASS"}
_IN_CONFIGURATION = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", *sorted(_TRUTH_VALUES))


def apply(wishes: Mapping[str, Any], *, look_at_cards: bool) -> Decided:
    """Apply what is wished for, and the defaults where nothing is said.

    Each call begins with the environment as it was before the first: what an earlier one set and
    this one does not want is taken back.

    Raises:
        JaxAlreadyInitializedError: If JAX has made its devices and reads no settings any more.
        InvalidArgumentError: If a wish cannot be met, or excludes another.
    """
    jax = sys.modules.get("jax")
    if is_started():
        from vramfit._importers import first_importer

        raise JaxAlreadyInitializedError(
            "JAX has made its devices already, and reads no memory settings any more",
            cause=first_importer(),
            hint="move `import vramfit.jax_memory_fix` to the first line of the program, or to the "
            "first cell after a restart; or start the program with `vramfit run`",
        )
    _check(wishes)
    ignored = _set_after_import(jax) if jax is not None else []
    environment = text_variables(_environment_before_us())
    if jax is not None:
        environment |= _configured(jax)
    version = jax.__version__ if jax is not None else installed_version()
    changes, removed, kept, notes = _native.decide_settings(
        environment, version, look_at_cards=look_at_cards, **wishes
    )
    _take_back(jax)
    for name, value, _, at_import in changes:
        _put(name, value)
        if at_import and jax is not None:
            _configure(jax, name, value)
    for name in removed:
        _put(name, None)
    return changes, removed, kept, [*notes, *ignored], version


def _set_after_import(jax: Any) -> list[str]:
    """Tell of options that the program has set in the environment after JAX has read them.

    Nobody has watched, perhaps; but what the environment of a process began with is known, and what
    JAX goes by. Where the first was changed and the second is something else, the change was lost.
    """
    from vramfit import _late

    seen = _late.watcher()
    before = {name for name, _, _, _, stage in seen.changes if stage == "before"}
    notes = []
    for name, value in os.environ.items():
        option = name.lower()
        if not name.startswith("JAX_") or option not in jax.config.values or name in _ours:
            continue
        lost = not seen._is(jax.config.values[option], value)
        if lost and name not in before and _first_environment().get(name) != value:
            notes.append(
                f"`{name}={value}` was set after JAX was imported, and changes nothing: call "
                f'`jax.config.update("{option}", …)`, or set it before `import jax`'
            )
    return notes


def _first_environment() -> dict[str, str]:
    """Return the environment that this process was started with, where the system tells."""
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
    # One of JAX's internals; there since 0.4, and nothing public tells it without starting JAX.
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
    # `importlib.metadata` would say it too, but takes longer to import than all of this.
    for line in lines:
        if line.startswith("_version = "):
            return line.removeprefix("_version = ").strip("\"' ")
    return None


def environment() -> dict[str, str]:
    """Return what holds for JAX in this process: the environment, and its configuration."""
    jax = sys.modules.get("jax")
    return text_variables(os.environ) | (_configured(jax) if jax is not None else {})


def _check(wishes: Mapping[str, Any]) -> None:
    """Refuse arguments of another type than is meant, in words about JAX and not about Rust."""
    for name, value in wishes.items():
        if value is None:
            continue
        kinds: tuple[type, ...] = (bool,)
        example = "True or False"
        if name == "fraction":
            kinds, example = (float, int), "a part such as 0.9"
        elif name in ("limit", "keep_free", "allocator"):
            kinds = (str,)
            example = "'cuda_async'" if name == "allocator" else "bytes, or a text such as '8GiB'"
        elif name in ("processes", "host_devices"):
            kinds, example = (int,), "a number such as 2"
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InvalidArgumentError(
                f"`{name}={value!r}` is a {type(value).__name__}", hint=f"write {example}"
            )
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < 1 << 32:
            raise InvalidArgumentError(f"`{name}={value}` cannot be", hint=f"write {example}")


def _environment_before_us() -> dict[str, str]:
    before = dict(os.environ)
    for name, (original, ours) in _ours.items():
        if before.get(name) != ours:
            continue  # somebody has changed it since
        before.pop(name, None)
        if original is not None:
            before[name] = original
    return before


def _put(name: str, value: str | None) -> None:
    _ours[name] = (os.environ.get(name), value)
    _set(name, value)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _take_back(jax: Any) -> None:
    for name, (original, ours) in _ours.items():
        if os.environ.get(name) == ours:
            _set(name, original)
    _ours.clear()
    for option, (original, ours) in _ours_in_jax.items():
        if jax.config.values.get(option) == ours:
            jax.config.update(option, original)
    _ours_in_jax.clear()


def _configured(jax: Any) -> dict[str, str]:
    """Return what an imported JAX goes by, in the words of its variables."""
    found = {}
    for name in _IN_CONFIGURATION:
        option = name.lower()
        value = jax.config.values.get(option)
        if option in _ours_in_jax and _ours_in_jax[option][1] == value:
            value = _ours_in_jax[option][0]
        if value:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            # The variable may have been set since, which nobody has read.
            found[name] = "false" if name in _TRUTH_VALUES and value is False else ""
    return found


def _configure(jax: Any, name: str, value: str) -> None:
    option = name.lower()
    if option not in jax.config.values:
        return  # this release does not have it, and would not read the variable either
    _ours_in_jax[option] = (
        jax.config.values[option],
        value == "true" if name in _TRUTH_VALUES else value,
    )
    jax.config.update(option, _ours_in_jax[option][1])
