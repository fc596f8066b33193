"""JAX's devices, and what their allocators count."""

from __future__ import annotations

from typing import Any

from vramfit._inprogram._import_site import import_jax
from vramfit._inprogram._jax_shim.run_config import is_dryrun
from vramfit.errors import CompilerMissingError, InvalidArgumentError, VerificationFailedError


def gpu(device: Any = None) -> Any:
    """Return a GPU of JAX's: the first one, the one of that number, or the device given.

    Raises:
        CompilerMissingError: If JAX cannot be imported.
        VerificationFailedError: If JAX has no GPU.
        InvalidArgumentError: If it has none of that number.
    """
    if device is not None and not isinstance(device, int):
        if not hasattr(device, "memory_stats"):
            raise InvalidArgumentError(
                f"`device={device!r}` is no device of JAX's",
                hint="give a number, such as `device=0`, or one of `jax.devices()`",
            )
        return device
    try:
        jax = import_jax()
    except ImportError as error:
        raise CompilerMissingError(
            "JAX cannot be imported", cause=str(error), hint="install it: `pip install jax[cuda13]`"
        ) from error
    try:
        devices = jax.local_devices(backend="gpu")
    except (RuntimeError, AssertionError) as error:
        raise VerificationFailedError(
            "JAX has no GPU",
            cause=str(error) or type(error).__name__,
            hint="`vramfit doctor` finds out why",
        ) from error
    number = device or 0
    if not 0 <= number < len(devices):
        raise InvalidArgumentError(
            f"JAX has no GPU {number}", hint=f"it has {len(devices)}, counted from 0"
        )
    return devices[number]


def statistics(device: Any) -> dict[str, int]:
    """Return what the allocator of a device counts; nothing where it does not count."""
    try:
        return device.memory_stats() or {}
    except Exception:  # a device of another process has none, in whatever words a release says it
        return {}


def is_virtual() -> bool:
    """Return whether the GPU is one that is not there."""
    return is_dryrun()
