"""Proves that JAX computes on the GPU, and that its pool is what was asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

from vramfit import _devices, _native, _settings
from vramfit._errors import VerificationFailedError, VramfitError
from vramfit._native import show_bytes

# CUDA, which JAX asks, and NVML, which we ask, do not count a card's memory alike: one part in a
# hundred of the limit is no difference.
_COUNTED_APART = 0.01
_COUNT = 1024


class GpuUsage(NamedTuple):
    """What `verify_gpu_usage` has seen."""

    device: str
    """The device, as JAX names it."""
    card: str
    """What the driver calls the card."""
    jax_version: str
    """The JAX of this process."""
    limit: int | None
    """Bytes that the pool may take; None where the allocator has no pool."""
    taken: int | None
    """Bytes that the pool has taken of the card; None where that is not told."""
    virtual: bool
    """Whether the GPU is one that is not there, where no arithmetic is done."""
    evidence: tuple[str, ...]
    """What was seen, and what could not be, one clause each."""

    def __repr__(self) -> str:
        lines = "\n  ".join(self.evidence)
        return f"<GpuUsage {self.device} ({self.card}), JAX {self.jax_version}\n  {lines}>"


def verify_gpu_usage(device: Any = None) -> GpuUsage:
    """Prove that JAX computes on the GPU and that its pool is what was asked for.

    Runs a small program on the device and looks where its result is, and compares the pool with
    what the settings of this process come to on the card.

    Args:
        device: A number among JAX's GPUs, or one of ``jax.devices()``; the first GPU by default.

    Raises:
        VerificationFailedError: If it does not; the message says what is wrong.
    """
    target = _devices.gpu(device)
    import jax

    if target.platform != "gpu":
        raise VerificationFailedError(
            f"{target} is a {target.platform}, and no GPU", hint="give one of `jax.devices('gpu')`"
        )
    evidence = []
    if device is None:
        usual = jax.local_devices()[0]
        if usual.platform != "gpu":
            raise VerificationFailedError(
                f"JAX has a GPU and computes on {usual} where nothing else is said",
                hint="set `JAX_PLATFORMS=cuda,cpu` and `JAX_PLATFORM_NAME=cuda`, as "
                "`apply_jax_memory_fix(require_gpu=True)` does before JAX starts",
            )
        evidence.append(f"{usual} is where JAX computes unless told otherwise")
    evidence.append(_compute(target))
    limit, taken, about_pool = _look_at_pool(target)
    return GpuUsage(
        str(target),
        str(target.device_kind),
        str(jax.__version__),
        limit,
        taken,
        _devices.is_virtual(),
        (*evidence, *about_pool),
    )


def _compute(device: Any) -> str:
    """Run a program on the device, and say what that proves."""
    import jax
    import jax.numpy as jnp

    numbers = jax.device_put(jnp.arange(_COUNT, dtype=jnp.int32), device)
    result = jax.block_until_ready(jax.jit(lambda x: (x * x).sum())(numbers))
    places = {str(place) for place in result.devices()}
    if places != {str(device)}:
        raise VerificationFailedError(
            f"a program for {device} left its result on {', '.join(sorted(places))}",
            hint="see what sets `jax_default_device`",
        )
    if _devices.is_virtual():
        return f"a program was compiled for {device}; a virtual GPU does no arithmetic"
    wanted = sum(number * number for number in range(_COUNT))
    if int(result) != wanted:
        raise VerificationFailedError(
            f"a sum that {device} was given came out as {int(result)}, and it is {wanted}",
            hint="the card or its driver is at fault: see `dmesg` and `nvidia-smi -q`",
        )
    return f"{device} computed a sum of {_COUNT} squares, and it is right"


def _look_at_pool(device: Any) -> tuple[int | None, int | None, list[str]]:
    """Compare the pool of a device with what was asked for."""
    import jax

    counted = _devices.statistics(device)
    limit, taken = counted.get("bytes_limit") or None, counted.get("pool_bytes")
    environment = _settings.environment()
    allocator = environment.get("XLA_PYTHON_CLIENT_ALLOCATOR") or "default"
    if limit is None:
        return None, None, [f"the allocator `{allocator}` has no pool, or does not tell it"]
    evidence = [_compare_limit(device, limit, environment, jax.__version__)]
    # JAX knows these words only, and of the allocators these two preallocate.
    off = environment.get("XLA_PYTHON_CLIENT_PREALLOCATE") in ("false", "False", "0")
    preallocates = not off and allocator.lower() in ("default", "bfc", "cuda_async")
    if "JAX_PJRT_CLIENT_CREATE_OPTIONS" in environment:
        evidence.append("`JAX_PJRT_CLIENT_CREATE_OPTIONS` may say otherwise about preallocation")
    elif taken is None:
        evidence.append("what the pool has taken of the card is not told by this allocator")
    elif preallocates and not _native.is_fully_preallocated(limit, taken):
        raise VerificationFailedError(
            f"{show_bytes(limit)} were asked for on {device}, and {show_bytes(taken)} could be had",
            cause=f"bytes_limit is {limit}, pool_bytes {taken}; JAX goes on and does not say so",
            hint="see who holds the card with `vramfit top`, or ask for less: `keep_free='1GiB'`",
        )
    elif preallocates:
        evidence.append(f"the pool has taken all of it: {show_bytes(taken)}")
    else:
        evidence.append(f"the pool grows as needed, and has taken {show_bytes(taken)} so far")
    return limit, taken, evidence


def _compare_limit(device: Any, limit: int, environment: dict[str, str], jax_version: str) -> str:
    has = f"the pool may take {show_bytes(limit)}"
    try:
        expected = _native.expected_pools(environment, jax_version)
    except VramfitError as error:
        return f"{has}; whether that is what was asked for is not known: {error.message}"
    number = device.local_hardware_id
    if expected is None or number is None or not 0 <= number < len(expected):
        return f"{has}; the settings of this process do not tell what it should be"
    wanted = expected[number]
    if abs(limit - wanted) > _COUNTED_APART * wanted:
        raise VerificationFailedError(
            f"the settings of this process mean a pool of {show_bytes(wanted)} on {device}, and it "
            f"is {show_bytes(limit)}",
            hint="they were changed after JAX had started; `import vramfit.jax_memory_fix` first",
        )
    return f"{has}, as the settings of this process say"
