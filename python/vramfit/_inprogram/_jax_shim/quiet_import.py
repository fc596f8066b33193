"""Keeps CUDA's libraries from saying, while they load, that there is no driver.

It is true and beside the point, and the user's own output is not to be disturbed. Anything else
that is written meanwhile is passed on.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

DRIVER_MESSAGES = (b"cudart_stub.cc", b"absl::InitializeLog()")

# The extension modules of JAX's CUDA packages; each brings a copy of the library that complains.
PACKAGES = ("jax_cuda12_plugin", "jax_cuda13_plugin")


@contextlib.contextmanager
def hide_driver_messages() -> Iterator[None]:
    """Hold standard error back for a moment, and drop the messages of the driver from it."""
    with contextlib.suppress(AttributeError, ValueError):  # there may be none, or a closed one
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:
        yield  # standard error is closed
        return
    with open(os.memfd_create("stderr"), "w+b", buffering=0) as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            with contextlib.suppress(AttributeError, ValueError):
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught.read().splitlines(keepends=True):
                if not any(message in line for message in DRIVER_MESSAGES):
                    os.write(2, line)


# Functions of JAX's extension for Mosaic GPU with which its profiler begins to measure time.
PROFILER_FUNCTIONS = ("_cupti_init", "_gpu_event_create")


def raise_not_measurable(*_: object) -> NoReturn:
    """Say that a dry run measures no time.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "vramfit: a dry run measures memory and no time: the virtual GPU runs no kernels, so CUPTI "
        "has nothing to measure. Leave the timing out of the dry run (the environment variable "
        "VRAMFIT_RUN_CONFIG is set in one), or measure on a GPU."
    )


class _CudaExtensionLoader(importlib.machinery.ExtensionFileLoader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        with hide_driver_messages():
            return super().create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for name in PROFILER_FUNCTIONS:
            if hasattr(module, name):
                setattr(module, name, raise_not_measurable)


class QuietCudaExtensionFinder(importlib.abc.MetaPathFinder):
    """Finds the extension modules of JAX's CUDA packages as usual, and loads them quietly."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual spec with a quiet loader, or None for everything else."""
        if fullname.partition(".")[0] not in PACKAGES or path is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.ExtensionFileLoader:
            spec.loader = _CudaExtensionLoader(spec.loader.name, spec.loader.path)
        return spec
