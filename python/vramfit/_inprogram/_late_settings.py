"""Tells of settings that a program makes after JAX has read them.

They are noted by ``_jax_shim/late_settings.py``; here they are handed on: into the trace of a dry
run, to standard error under ``vramfit run``, as a warning after ``import vramfit.jax_memory_fix``.
"""

from __future__ import annotations

import sys

from vramfit._settings._environment import is_text, text_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from vramfit._inprogram._jax_shim.late_settings import Change

    # Is called with a text and the line that it is about.
    Say: TypeAlias = Callable[[str, str], object]


def watcher() -> Any:
    """Return the module that notes changes, loaded if Python's start has not done so."""
    from vramfit._inprogram._jax_shim import late_settings

    # One that was loaded when Python started has all that happened since.
    found = sys.modules.setdefault(late_settings.NAME, late_settings)
    found.install()
    return found


def record_in_trace() -> None:
    """Keep the settings of this process in the trace of its dry run, also when they change."""
    seen = watcher()
    record_settings(seen)
    seen.listeners.append(lambda _: record_settings(seen))


def record_settings(
    seen: Any = None,
    libraries: dict[str, str] | None = None,
    gpu_libraries: dict[str, str] | None = None,
) -> None:
    """Write the settings as they are now into the trace, with the versions of libraries."""
    from vramfit import _native
    from vramfit._inprogram._jax_shim.run_config import run_config

    seen = seen or watcher()
    _native.record_settings(
        text_variables(seen.environment_as_read()),
        run_config().get("set_by_vramfit", []),
        _changes(seen.find_late_changes()),
        libraries or {},
        gpu_libraries or {},
    )


def warn_late_settings(say: Say) -> None:
    """Say what comes too late: what did so far, and what will, each variable once.

    Once in the process: `vramfit run` says it in programs that import
    `vramfit.jax_memory_fix`, too.
    """
    seen = watcher()
    told: set[str] = seen.told

    def warn_new(_: Change | None = None) -> None:
        from vramfit import _native

        jax = getattr(sys.modules.get("jax"), "__version__", None)
        found = seen.find_late_changes()
        sites = {change[0]: change[3] for change in reversed(found)}
        late = _changes(found)
        for name in dict.fromkeys(change[0] for change in late):
            if name in told:
                continue
            of_name = [change for change in late if change[0] == name]
            for text in _native.settings_too_late(
                text_variables(seen.environment_as_read()), of_name, jax
            ):
                told.add(name)
                say(text, sites[name])

    warn_new()
    seen.listeners.append(warn_new)


def _changes(late: list[Change]) -> list[Change]:
    from vramfit._inprogram._frames import display_site

    texts = [change for change in late if is_text("".join(text or "" for text in change))]
    return [(name, old, new, display_site(site), stage) for name, old, new, site, stage in texts]
