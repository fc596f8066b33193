"""Fills JAX's pool on purpose and frees it again, checked by the allocator's statistics."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from vramfit._functions import _devices
from vramfit._functions._locale import for_terminal
from vramfit._native import largest_gpu_bytes, parse_bytes, show_bytes
from vramfit.errors import InsufficientMemoryError, InvalidArgumentError, VerificationFailedError

# Arrays of one size share one compiled program.
_MAX_BLOCK = 1 << 30
# If no larger block is free, blocks are halved down to this: the rest is fragmented.
_MIN_BLOCK = 1 << 20

# The devices and arrays that are allocated.
_registry: list[tuple[Any, list[Any]]] = []


class HeldMemory(NamedTuple):
    """Memory that `force_memory_allocation` allocated."""

    device: str
    """The device, as JAX names it."""
    bytes: int
    """The amount that is allocated."""
    in_use_before: int | None
    """Memory in use before, as the allocator reports it; None if it keeps no statistics."""
    in_use_after: int | None
    """Memory in use afterwards."""
    limit: int | None
    """Maximum size of the pool."""

    def __repr__(self) -> str:
        if self.in_use_before is None or self.in_use_after is None:
            checked = "not checked: this allocator keeps no statistics"
        else:
            checked = f"in use {show_bytes(self.in_use_before)} → {show_bytes(self.in_use_after)}"
        limit = f" of {show_bytes(self.limit)}" if self.limit else ""
        text = f"<HeldMemory {show_bytes(self.bytes)} on {self.device}: {checked}{limit}>"
        return for_terminal(text)


class AllocationStep(NamedTuple):
    """A step of `allocate_memory_incremental`."""

    requested: int
    """Bytes that the step requested."""
    succeeded: bool
    """Whether they were allocated; the first step that fails is the last."""
    allocated: int
    """Bytes that all steps have allocated together."""
    in_use: int
    """Bytes in use on the device, as the allocator reports them, including the program's own."""
    limit: int
    """Maximum size of the pool."""

    @property
    def utilization(self) -> float:
        """The fraction of the limit that is in use."""
        return self.in_use / self.limit

    def __repr__(self) -> str:
        what = "allocated" if self.succeeded else "could not allocate"
        return (
            f"<AllocationStep {what} {show_bytes(self.requested)}: {show_bytes(self.in_use)} of "
            f"{show_bytes(self.limit)} in use, {self.utilization:.1%}>"
        )


class ClearedMemory(NamedTuple):
    """The memory that `clear_memory_registry` freed."""

    released: int
    """Bytes of the arrays that were freed."""
    in_use: dict[str, tuple[int, int]]
    """Memory in use on each device before and after, as its allocator reports it."""
    caches_cleared: bool
    """Whether JAX's caches of compiled programs were cleared too."""

    def __repr__(self) -> str:
        parts = [
            f"{device} {show_bytes(before)} → {show_bytes(after)}"
            for device, (before, after) in self.in_use.items()
        ]
        counted = f": in use {', '.join(parts)}" if parts else ""
        caches = "; caches cleared" if self.caches_cleared else ""
        return for_terminal(f"<ClearedMemory {show_bytes(self.released)}{counted}{caches}>")


def force_memory_allocation(amount: float | int | str = 0.5, device: Any = None) -> HeldMemory:
    """Allocate memory on a device until `clear_memory_registry` is called.

    Args:
        amount: Bytes (an int, or a string such as ``"8GiB"``), or a fraction of the pool's limit
            (a float up to 1.0, or a string such as ``"90%"``).
        device: An index among JAX's GPUs, or one of ``jax.devices()``; the first GPU by default.

    Raises:
        InsufficientMemoryError: If there is not enough memory; then nothing is allocated.
        VerificationFailedError: If there is no GPU, or the statistics do not show the allocation.
        InvalidArgumentError: If the amount is invalid, or a fraction of an unknown limit.
    """
    target = _devices.gpu(device)
    before = _devices.statistics(target)
    size = _bytes(amount, before, "amount")
    free = before["bytes_limit"] - before["bytes_in_use"] if "bytes_limit" in before else None
    total = None if _is_memory_unified() else largest_gpu_bytes()
    is_larger_than_gpu = total is not None and size > total
    # More than there is is rejected at once: XLA would wait ten seconds for each block. The limit
    # of `cuda_async` is not one, and it reports no pool; up to the GPU's memory it is tried.
    is_larger_than_pool = free is not None and size > free and "pool_bytes" in before
    if is_larger_than_gpu or is_larger_than_pool:
        # Requested all the same in a dry run, in one block, so that it is reported.
        arrays = _allocate(size, target, whole=True) if _devices.is_virtual() else None
    else:
        arrays = _allocate(size, target)
    if arrays is None:
        causes = [f"the GPU has only {show_bytes(total)}"] if total and is_larger_than_gpu else []
        if free is not None:
            causes.append(f"only {show_bytes(free)} of its pool are free")
        raise InsufficientMemoryError(
            f"cannot allocate {show_bytes(size)} on {target}",
            cause=", and ".join(causes) or None,
            hint="request less; `allocate_memory_incremental` finds how much is available",
        )
    after = _devices.statistics(target)
    if before and after["bytes_in_use"] - before["bytes_in_use"] < size:
        for array in arrays:
            array.delete()
        raise VerificationFailedError(
            f"{show_bytes(size)} were allocated on {target}, but its allocator reports less",
            cause=f"in use before {before['bytes_in_use']}, after {after['bytes_in_use']}",
            hint="call it while no other thread frees arrays",
        )
    _registry.append((target, arrays))
    return HeldMemory(
        str(target),
        size,
        before.get("bytes_in_use"),
        after.get("bytes_in_use"),
        after.get("bytes_limit"),
    )


def allocate_memory_incremental(
    target: float | int | str = 0.9,
    step: float | int | str = 0.1,
    report: Callable[[AllocationStep], object] | None = None,
    device: Any = None,
) -> tuple[AllocationStep, ...]:
    """Allocate memory step by step until so much of a device's pool is in use.

    Memory that the program itself uses counts. The first step that fails is the last: what the
    steps before it allocated stays allocated until `clear_memory_registry` is called.

    Args:
        target: Memory in use at the end: bytes, or a fraction of the pool's limit.
        step: Size of each step, in the same forms.
        report: Called with each step, such as ``print``.
        device: As in `force_memory_allocation`.

    Returns:
        The steps. The last has ``succeeded=False`` if the target was not reached.

    Raises:
        InvalidArgumentError: If an amount is invalid, or the allocator keeps no statistics.
        VerificationFailedError: If there is no GPU.
    """
    place = _devices.gpu(device)
    now = _devices.statistics(place)
    if not now.get("bytes_limit"):
        raise InvalidArgumentError(
            f"the allocator of {place} reports no limit",
            hint="use the default allocator, or `force_memory_allocation` with bytes",
        )
    goal, stride = _bytes(target, now, "target"), _bytes(step, now, "step")
    steps: list[AllocationStep] = []
    allocated = 0
    while (missing := goal - now["bytes_in_use"]) > 0:
        requested = min(stride, missing)
        arrays = _allocate(requested, place)
        if arrays is not None:
            _registry.append((place, arrays))
            allocated += requested
        now = _devices.statistics(place)
        done = AllocationStep(
            requested, arrays is not None, allocated, now["bytes_in_use"], now["bytes_limit"]
        )
        steps.append(done)
        if report is not None:
            report(done)
        if arrays is None:
            break
    return tuple(steps)


def clear_memory_registry(caches: bool = False) -> ClearedMemory:
    """Free what `force_memory_allocation` and `allocate_memory_incremental` allocated.

    The memory is returned to JAX's pool, not to the driver: a pool never shrinks, so
    ``nvidia-smi`` shows the same as before.

    Args:
        caches: Also clear JAX's compilation caches, which frees code and constants; each program is
            compiled again when it is next called.

    Raises:
        VerificationFailedError: If an allocator still reports the memory as in use.
    """
    freed: dict[Any, int] = {}
    before: dict[Any, dict[str, int]] = {}
    for device, _ in _registry:
        if device not in before:
            before[device], freed[device] = _devices.statistics(device), 0
    while _registry:
        device, arrays = _registry.pop()
        for array in arrays:
            freed[device] += array.nbytes
            array.delete()
    if caches:
        import jax

        jax.clear_caches()
    counted = {}
    for device, had in before.items():
        has = _devices.statistics(device)
        if not had:
            continue
        counted[str(device)] = (had["bytes_in_use"], has["bytes_in_use"])
        if had["bytes_in_use"] - has["bytes_in_use"] < freed[device]:
            raise VerificationFailedError(
                f"{show_bytes(freed[device])} were freed on {device}, but its allocator shows less",
                cause=f"in use before {had['bytes_in_use']}, after {has['bytes_in_use']}",
                hint="call it while no other thread creates arrays",
            )
    return ClearedMemory(sum(freed.values()), counted, caches)


def _is_memory_unified() -> bool:
    """Return whether the pool may be larger than the GPU's memory."""
    return os.environ.get("TF_FORCE_UNIFIED_MEMORY", "").lower() not in ("", "0", "false")


def _bytes(amount: float | int | str, known: dict[str, int], name: str) -> int:
    """Convert an amount to bytes, given the statistics of an allocator."""
    hint = "use bytes, such as `8 << 30` or `'8GiB'`, or a fraction, such as `0.9` or `'90%'`"
    fraction: float | None = None
    size = 0
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str)):
        raise InvalidArgumentError(f"`{name}={amount!r}` is not an amount of memory", hint=hint)
    if isinstance(amount, float):
        fraction = amount
    elif isinstance(amount, int):
        size = parse_bytes(str(amount)) if amount > 0 else amount
    elif amount.rstrip().endswith("%"):
        try:
            fraction = float(amount.rstrip().removesuffix("%")) / 100
        except ValueError:
            fraction = 0.0
    else:
        size = parse_bytes(amount)
    if fraction is None:
        if size <= 0:
            raise InvalidArgumentError(f"`{name}={amount!r}` must be greater than 0", hint=hint)
        return size
    if not 0.0 < fraction <= 1.0:
        raise InvalidArgumentError(
            f"`{name}={amount!r}` is out of range; expected 0 < fraction <= 1", hint=hint
        )
    if not known.get("bytes_limit"):
        raise InvalidArgumentError(
            f"`{name}={amount!r}` is a fraction, but this allocator reports no limit",
            hint="use bytes, such as `'8GiB'`",
        )
    return max(1, int(known["bytes_limit"] * fraction))


def _allocate(size: int, device: Any, whole: bool = False) -> list[Any] | None:
    """Return arrays of so many bytes in total; None, without any, if there is not enough memory.

    With `whole` there is one array, else as many as the fragmentation of the pool requires.
    """
    import jax
    import jax.numpy as jnp

    arrays: list[Any] = []
    block, left = size if whole else _MAX_BLOCK, size
    while left > 0:
        requested = min(block, left)
        try:
            # Filled, because memory that was never written may not be backed.
            array = jnp.full((requested,), 1, jnp.uint8, device=device)
            arrays.append(jax.block_until_ready(array))
            left -= requested
        # Which of the two depends on the code path and the release of JAX.
        except (RuntimeError, ValueError) as error:
            # Half of the failed request, so that each attempt is smaller.
            block = requested // 2
            out_of_memory = "RESOURCE_EXHAUSTED" in str(error)
            if out_of_memory and block >= _MIN_BLOCK and not whole:
                continue
            for held in arrays:
                held.delete()
            if out_of_memory:
                return None
            raise
    return arrays
