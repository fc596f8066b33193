"""Why JAX's CUDA plugin could not be used: one line, in place of the traceback that JAX logs.

The traceback comes on every machine that has the plugin's packages and no GPU, where nothing is
wrong. Where a GPU is required, its last line is the cause of the error.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from vramfit.errors import first_line

_LOGGER = "jax._src.xla_bridge"  # JAX 0.6 to 0.12
_DRIVER_DEVICE = "/dev/nvidiactl"

_causes: list[str] = []


class _PluginFilter(logging.Filter):
    """Keeps the cause of each failure to initialize a plugin, and drops its log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or "plugin" not in record.getMessage():
            return True
        _causes.append(first_line(error))
        return False


@contextlib.contextmanager
def captured() -> Iterator[None]:
    """Capture what goes wrong while JAX looks for its backends."""
    logger, of_plugins = logging.getLogger(_LOGGER), _PluginFilter()
    logger.addFilter(of_plugins)
    try:
        yield
    finally:
        logger.removeFilter(of_plugins)


def cause() -> str | None:
    """Return why the CUDA plugin could not be used, as far as it was captured."""
    return _causes[-1] if _causes else None


def is_surprising() -> bool:
    """Return whether the plugin failed on a machine that has NVIDIA's driver."""
    return bool(_causes) and os.path.exists(_DRIVER_DEVICE)
