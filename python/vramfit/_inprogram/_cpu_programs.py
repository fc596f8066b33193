"""Notes which of the user's programs run on JAX's CPU backend: the virtual GPU does not see them.

What vramfit itself computes on the CPU (``_cpu.py``) does not come by here. Relies on JAX's
internals.
"""

from __future__ import annotations

import contextlib
import functools
import re
import weakref
from typing import Any

# Programs that need less and multiply nothing are preparations.
MIN_BYTES = 1 << 20
# More programs than this say nothing new.
MAX_PROGRAMS = 1000

_PRODUCT = re.compile(r" (?:dot|convolution)\(")
# JAX writes it into the names of operations of a backward pass; XLA has an operation of that name.
_BACKWARD = re.compile(r'op_name="[^"]*transpose\(')

# What made vramfit choose the CPU, such as `device = "cpu"`.
selected_by = ""


def record_cpu_programs() -> None:
    """Let JAX tell of each program that it executes on the CPU for the first time.

    The first execution of every program passes through Python; only later ones need not.
    """
    from jax._src import source_info_util, traceback_util
    from jax._src.interpreters import pxla

    source_info_util.register_exclusion(__file__)
    traceback_util.register_exclusion(__file__)
    execute = pxla.ExecuteReplicated.__call__
    seen: weakref.WeakSet[Any] = weakref.WeakSet()
    noted = 0

    @functools.wraps(execute)
    def recording(self: Any, *arguments: Any) -> Any:
        nonlocal noted
        # A release that has other names for these goes without.
        with contextlib.suppress(Exception):
            if self.backend.platform == "cpu" and self not in seen and noted < MAX_PROGRAMS:
                seen.add(self)
                noted += _note(self)
        return execute(self, *arguments)

    pxla.ExecuteReplicated.__call__ = recording


def _note(executed: Any) -> bool:
    """Note a program in the trace, and return whether it is one that matters."""
    from vramfit import _native
    from vramfit._inprogram import _source_info

    executable = executed.xla_executable
    sizes = executable.get_compiled_memory_stats()
    needed = (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes
        + sizes.temp_size_in_bytes
    )
    modules = executable.hlo_modules()
    text = "\n".join(module.to_string() for module in modules)
    backward = _BACKWARD.search(text) is not None
    products = _PRODUCT.search(text) is not None
    if not backward and not products and needed < MIN_BYTES:
        return False
    name = modules[0].name if modules else executed.name
    site = _source_info.site() or ""
    _native.note_cpu_program(name, site, needed, backward, products, _selection())
    return True


def _selection() -> str:
    """Return what selects the CPU; empty where the call or its arguments do."""
    import jax

    if selected_by:
        return selected_by
    default = jax.config.jax_default_device
    platform = default if isinstance(default, str) else getattr(default, "platform", None)
    return "`jax_default_device` is the CPU" if platform == "cpu" else ""
