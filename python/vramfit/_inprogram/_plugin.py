"""Installs the virtual GPU in the user's process, in place of the real CUDA plugin.

Relies on JAX's internals, as do ``_callbacks``, ``_cpu_eval``, ``_cpu_programs``, ``_source_info``,
``_argument_names`` and ``_nnx_names``. Seen to work with JAX 0.6.2, 0.8.1, 0.9.2 and 0.10.2.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
from types import ModuleType
from typing import Any, NoReturn

from vramfit import _native
from vramfit._inprogram import _array_holders, _uncaught_error
from vramfit._inprogram._jax_shim.quiet_import import hide_driver_messages
from vramfit._inprogram._jax_shim.run_config import run_config


def install(real: Any) -> None:
    """Let `real`, the CUDA plugin's own module, register vramfit's library instead of its own.

    Everything it registers (custom calls, FFI handlers, Triton, the profiler) goes through
    vramfit's table into the real library, which is loaded but never asked to touch a GPU.
    """
    import jax

    library = real._get_library_path()
    if library is None:
        return
    os.environ["VRAMFIT_JAX_VERSION"] = jax.__version__
    from vramfit._inprogram import (
        _argument_names,
        _cpu_programs,
        _late_settings,
        _prefetch_queues,
        _shutdown,
        _source_info,
    )
    from vramfit._values import _callbacks, _cpu_eval

    _native.start_plugin(os.fspath(library), _cpu_eval, _shutdown)
    _callbacks.record_callbacks()
    with contextlib.suppress(AttributeError):
        _cpu_programs.record_cpu_programs()
    if run_config().get("attribution", True):
        _source_info.record_donations()
        _argument_names.install_argument_names()
    _prefetch_queues.install()
    _late_settings.record_in_trace()
    _uncaught_error.count_executions()
    atexit.register(_finish)
    _finish_before_an_exit_without_handlers()
    _skip_hardware_check()
    real._get_library_path = lambda: _native.__file__
    # None of CUDA's libraries is called, so their versions do not matter. The variable that JAX has
    # for this makes 0.6.2 print a line among the user's own output.
    real._check_cuda_versions = lambda *_, **__: None
    try:
        with hide_driver_messages():
            real.initialize()
    except Exception:
        _save_rejected_settings()
        raise  # JAX logs it, and goes on without this plugin
    _ask_for_call_sites(jax)
    _use_own_cache_keys()


def _finish(status: object = None) -> None:
    """End the trace, with the error that ends the program where there is one.

    The settings go with it once more: JAX's configuration may have changed since, and only now all
    libraries are imported.
    """
    from vramfit._inprogram import _late_settings, _libraries

    with contextlib.suppress(Exception):
        _late_settings.record_settings(
            libraries=_libraries.library_versions(),
            gpu_libraries=_libraries.gpu_library_versions(),
        )
    holders = _array_holders.holders_when_out_of_memory() or _array_holders.holders_at_end()
    _native.note_array_holders(holders)
    _native.finish_plugin(_uncaught_error.uncaught_error(status))


def _save_rejected_settings() -> None:
    """Keep the settings that JAX has refused where the command looks for the reason.

    There is no trace yet; the program may have set them itself.
    """
    folder = run_config().get("folder")
    if not folder:
        return
    from vramfit._inprogram import _late_settings

    with (
        contextlib.suppress(OSError, ValueError),
        open(os.path.join(folder, "settings.json"), "w") as file,
    ):
        json.dump(_late_settings.watcher().environment_as_read(), file)


def _finish_before_an_exit_without_handlers() -> None:
    """End the trace in ``os._exit``, too: workers made by fork, and many launchers, end so."""
    exit_at_once = os._exit

    @functools.wraps(exit_at_once)
    def finish_and_exit(status: int) -> NoReturn:
        _finish(status)
        exit_at_once(status)

    os._exit = finish_and_exit


def _skip_hardware_check() -> None:
    """Make JAX look for CUDA although there are no device files; it would skip it silently."""
    from jax._src import hardware_utils

    hardware_utils.has_visible_nvidia_gpu = lambda: True


def _use_own_cache_keys() -> None:
    """Keep programs of dry runs apart from those of a GPU, in a cache that the user has set.

    They are compiled without autotuning, and a GPU could not load them.
    """
    from jax._src import cache_key

    users_hook = cache_key.custom_hook
    cache_key.custom_hook = lambda: f"{users_hook()} vramfit"


def _ask_for_call_sites(jax: ModuleType) -> None:
    """Let JAX send the Python stack along with each execution, where it can; it is cheap.

    A user who has set what is sent, `off` included, gets that.
    """
    if "JAX_SEND_TRACEBACK_TO_RUNTIME" in os.environ:
        return
    with contextlib.suppress(AttributeError):
        if jax.config.jax_send_traceback_to_runtime == "off":
            jax.config.update("jax_send_traceback_to_runtime", "full")
