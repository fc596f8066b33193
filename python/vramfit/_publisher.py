"""Looks on while the real CUDA plugin works, so that ``vramfit top`` can see inside of JAX's pool.

Unlike ``_plugin``, this changes nothing that the program could notice: the real plugin does all
that it does, and a thread of vramfit's library asks it for its statistics now and then. A setting
that the program makes too late is told on standard error. Whatever goes wrong here, the program
gets the real plugin as it is.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any


def install(real: Any) -> None:
    """Let `real`, the CUDA plugin's own module, load its library through ours, and start it."""
    if _is_wanted():
        try:
            _stand_before(real)
        except Exception as error:
            _say(f"not publishing: {error}")
    real.initialize()
    if _is_wanted():
        _tell_what_comes_too_late()


def _tell_what_comes_too_late() -> None:
    try:
        from vramfit import _late

        _late.tell(lambda text: print(f"vramfit: {text}", file=sys.stderr, flush=True))
    except Exception as error:
        _say(f"not watching the settings: {error}")


def _is_wanted() -> bool:
    return os.environ.get("VRAMFIT_PUBLISH", "") not in ("", "0", "false", "no", "off")


def _stand_before(real: Any) -> None:
    library = real._get_library_path()
    if library is None:
        return
    import jax

    from vramfit import _native

    _native.start_publisher(os.fspath(library), jax.__version__)
    # Python's own handlers run before those of the plugin, and this one before JAX's, which were
    # registered earlier: the thread has ended when they take things down.
    atexit.register(_native.finish_plugin)
    real._get_library_path = lambda: _native.__file__


def _say(text: str) -> None:
    if os.environ.get("VRAMFIT_PUBLISH") == "verbose":
        print(f"vramfit: {text}", file=sys.stderr)
