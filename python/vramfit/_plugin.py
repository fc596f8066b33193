"""Installs the virtual GPU in the user's process, in place of the real CUDA plugin.

The one module, with ``_values``, that relies on JAX's internals. Seen to work with JAX 0.6.2,
0.8.1, 0.9.2 and 0.10.2.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from vramfit import _native


def install(real: ModuleType) -> None:
    """Let `real`, the CUDA plugin's own module, register vramfit's library instead of its own.

    Everything it registers (custom calls, FFI handlers, Triton, the profiler) goes through
    vramfit's table into the real library, which is loaded but never asked to touch a GPU.
    """
    import jax

    library = real._get_library_path()
    if library is None:
        return
    os.environ["VRAMFIT_JAX_VERSION"] = jax.__version__
    from vramfit import _values

    _native.start_plugin(os.fspath(library), _values)
    _values.note_callbacks()
    atexit.register(_native.finish_plugin)
    _pretend_there_is_hardware()
    real._get_library_path = lambda: os.environ.get("VRAMFIT_PLUGIN") or _native.__file__
    # The versions of CUDA's libraries do not matter: none of them is called.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    with _without_driver_complaints():
        real.initialize()
    _ask_for_call_sites(jax)


def _pretend_there_is_hardware() -> None:
    """Make JAX look for CUDA although there are no device files; it would skip it silently."""
    from jax._src import hardware_utils

    hardware_utils.has_visible_nvidia_gpu = lambda: True


def _ask_for_call_sites(jax: ModuleType) -> None:
    """Let JAX send the Python stack along with each execution (releases that can, do it cheaply)."""
    with contextlib.suppress(AttributeError):
        if jax.config.jax_send_traceback_to_runtime == "off":
            jax.config.update("jax_send_traceback_to_runtime", "full")


@contextlib.contextmanager
def _without_driver_complaints() -> Iterator[None]:
    """Drop the lines in which CUDA's libraries say that there is no driver, while they load.

    They are true and beside the point, and the user's own output is not to be disturbed. Anything
    else that is written meanwhile is passed on.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.memfd_create("stderr"), "w+b", buffering=0) as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught.read().splitlines(keepends=True):
                if b"cudart_stub.cc" not in line and b"absl::InitializeLog()" not in line:
                    os.write(2, line)
