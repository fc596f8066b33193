"""Publishes the statistics of the real CUDA plugin, so that ``vramfit top`` can show JAX's pool.

Unlike ``_plugin``, this changes nothing that the program could notice: the real plugin does all
the work, and a thread of vramfit's library samples its statistics. A setting that the program
changes too late is reported on standard error. If anything fails here, the program uses the real
plugin directly.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from vramfit import _stderr


def install(real: Any) -> None:
    """Let `real`, the CUDA plugin's module, load its library through ours, and initialize it."""
    if _is_enabled():
        try:
            _wrap_plugin(real)
        except Exception as error:
            _log(f"not publishing: {error}")
    real.initialize()
    if _is_enabled():
        _report_late_settings()


def _report_late_settings() -> None:
    try:
        from vramfit._inprogram import _late_settings

        _late_settings.warn_late_settings(lambda text, _: _stderr.write_line(f"vramfit: {text}"))
    except Exception as error:
        _log(f"not watching the settings: {error}")


def _is_enabled() -> bool:
    return os.environ.get("VRAMFIT_PUBLISH", "") not in ("", "0", "false", "no", "off")


def _wrap_plugin(real: Any) -> None:
    library = real._get_library_path()
    if library is None:
        return
    import jax

    from vramfit import _native

    _native.start_publisher(os.fspath(library), jax.__version__)
    # Python's exit handlers run before the plugin's, and this one before JAX's, which were
    # registered earlier: the thread has ended when they release resources.
    atexit.register(_native.finish_plugin)
    real._get_library_path = lambda: _native.__file__


def _log(text: str) -> None:
    if os.environ.get("VRAMFIT_PUBLISH") == "verbose":
        _stderr.write_line(f"vramfit: {text}")
