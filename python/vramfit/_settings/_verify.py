"""Verifies that JAX computes on the GPU, and that its pool has the requested size."""

from __future__ import annotations

from typing import Any, NamedTuple

from vramfit import _native, _settings
from vramfit._functions import _devices
from vramfit._native import show_bytes
from vramfit.errors import VerificationFailedError, VramfitError

# CUDA, which JAX queries, and NVML report slightly different totals: one percent of the limit is no
# difference.
_MAX_COUNTING_DIFFERENCE = 0.01
_COUNT = 1024


class GpuUsage(NamedTuple):
    """The result of `verify_gpu_usage`."""

    device: str
    """The device, as JAX names it."""
    gpu: str
    """The product name of the GPU."""
    jax_version: str
    """The JAX release of this process."""
    limit: int | None
    """Maximum size of the pool in bytes; None if the allocator has no pool."""
    reserved: int | None
    """Bytes that the pool has reserved; None if the allocator does not report it."""
    virtual: bool
    """Whether the GPU is virtual and does not compute."""
    evidence: tuple[str, ...]
    """What was verified, and what could not be, one clause each."""

    def __repr__(self) -> str:
        lines = "\n  ".join(self.evidence)
        return f"<GpuUsage {self.device} ({self.gpu}), JAX {self.jax_version}\n  {lines}>"


def verify_gpu_usage(device: Any = None) -> GpuUsage:
    """Verify that JAX computes on the GPU and that its pool has the requested size.

    Runs a small program on the device, checks the result and its device, and compares the pool with
    the settings of this process.

    Args:
        device: An index among JAX's GPUs, or one of ``jax.devices()``; the first GPU by default.

    Raises:
        VerificationFailedError: If it does not; the message gives the reason.
    """
    target = _devices.gpu(device)
    import jax

    if target.platform != "gpu":
        raise VerificationFailedError(
            f"{target} is a {target.platform}, not a GPU", hint="use one of `jax.devices('gpu')`"
        )
    evidence = []
    if device is None:
        usual = jax.local_devices()[0]
        if usual.platform != "gpu":
            raise VerificationFailedError(
                f"JAX has a GPU, but computes on {usual} by default",
                hint="set `JAX_PLATFORMS=cuda,cpu` and `JAX_PLATFORM_NAME=cuda`, as "
                "`apply_jax_memory_fix(require_gpu=True)` does before JAX starts",
            )
        evidence.append(f"{usual} is JAX's default device")
    evidence.append(_compute(target))
    limit, reserved, about_pool = _check_pool(target)
    return GpuUsage(
        str(target),
        str(target.device_kind),
        str(jax.__version__),
        limit,
        reserved,
        _devices.is_virtual(),
        (*evidence, *about_pool),
    )


def _compute(device: Any) -> str:
    """Run a program on the device, and describe the result."""
    import jax
    import jax.numpy as jnp

    numbers = jax.device_put(jnp.arange(_COUNT, dtype=jnp.int32), device)
    result = jax.block_until_ready(jax.jit(lambda x: (x * x).sum())(numbers))
    places = {str(place) for place in result.devices()}
    if places != {str(device)}:
        raise VerificationFailedError(
            f"a program for {device} left its result on {', '.join(sorted(places))}",
            hint="find what sets `jax_default_device`",
        )
    if _devices.is_virtual():
        return f"a program was compiled for {device}; a virtual GPU does not compute"
    wanted = sum(number * number for number in range(_COUNT))
    if int(result) != wanted:
        raise VerificationFailedError(
            f"{device} computed a sum as {int(result)} instead of {wanted}",
            hint="the GPU or its driver is faulty: see `dmesg` and `nvidia-smi -q`",
        )
    return f"{device} computed a sum of {_COUNT} squares correctly"


def _check_pool(device: Any) -> tuple[int | None, int | None, list[str]]:
    """Compare the pool of a device with the settings."""
    import jax

    counted = _devices.statistics(device)
    limit, reserved = counted.get("bytes_limit") or None, counted.get("pool_bytes")
    environment = _settings.environment()
    allocator = environment.get("XLA_PYTHON_CLIENT_ALLOCATOR") or "default"
    if limit is None:
        return None, None, [f"the allocator `{allocator}` has no pool, or does not report it"]
    evidence = [_compare_limit(device, limit, environment, jax.__version__)]
    # Only these values disable it, and only these allocators preallocate.
    off = environment.get("XLA_PYTHON_CLIENT_PREALLOCATE") in ("false", "False", "0")
    preallocates = not off and allocator.lower() in ("default", "bfc", "cuda_async")
    if "JAX_PJRT_CLIENT_CREATE_OPTIONS" in environment:
        evidence.append("`JAX_PJRT_CLIENT_CREATE_OPTIONS` may override preallocation")
    elif reserved is None:
        evidence.append("this allocator does not report how much memory the pool has reserved")
    elif preallocates and not _native.is_fully_preallocated(limit, reserved):
        raise VerificationFailedError(
            f"{show_bytes(limit)} requested on {device}, but only {show_bytes(reserved)} reserved",
            cause=f"bytes_limit is {limit}, pool_bytes {reserved}; JAX does not report this",
            hint="see what uses the GPU with `vramfit top`, or request less: `keep_free='1GiB'`",
        )
    elif preallocates:
        evidence.append(f"the pool is fully preallocated: {show_bytes(reserved)}")
    else:
        evidence.append(f"the pool grows on demand, and has reserved {show_bytes(reserved)} so far")
    return limit, reserved, evidence


def _compare_limit(device: Any, limit: int, environment: dict[str, str], jax_version: str) -> str:
    has = f"the pool limit is {show_bytes(limit)}"
    try:
        expected = _native.expected_pools(environment, jax_version)
    except VramfitError as error:
        return f"{has}; whether that matches the settings is unknown: {error.message}"
    number = device.local_hardware_id
    if expected is None or number is None or not 0 <= number < len(expected):
        return f"{has}; the settings of this process do not determine it"
    wanted = expected[number]
    if abs(limit - wanted) > _MAX_COUNTING_DIFFERENCE * wanted:
        raise VerificationFailedError(
            f"according to the settings of this process the pool limit on {device} should be "
            f"{show_bytes(wanted)}, but it is {show_bytes(limit)}",
            hint="they were changed after JAX had started; `import vramfit.jax_memory_fix` first",
        )
    return f"{has}, as the settings of this process require"
