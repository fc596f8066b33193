"""Holds memory in JAX's pool on purpose, and lets it go; checked in the allocator's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vramfit import _devices
from vramfit._errors import InsufficientMemoryError, InvalidArgumentError, VerificationFailedError
from vramfit._locale import for_terminal
from vramfit._native import parse_bytes, show_bytes

# Arrays of one size share one compiled program.
_PIECE = 1 << 30
# Where no larger piece is to be had, pieces are halved down to this: what is left then is in holes.
_SMALLEST_PIECE = 1 << 20

# What is held: the device and its arrays.
_registry: list[tuple[Any, list[Any]]] = []


class HeldMemory(NamedTuple):
    """Memory that `force_memory_allocation` made JAX hold."""

    device: str
    """The device, as JAX names it."""
    bytes: int
    """How much was asked for and is held now."""
    in_use_before: int | None
    """What the allocator counted as in use before; None where it does not count."""
    in_use_after: int | None
    """And what it counts now."""
    limit: int | None
    """What its pool may take."""

    def __repr__(self) -> str:
        if self.in_use_before is None or self.in_use_after is None:
            checked = "not checked: this allocator counts nothing"
        else:
            checked = f"in use {show_bytes(self.in_use_before)} → {show_bytes(self.in_use_after)}"
        limit = f" of {show_bytes(self.limit)}" if self.limit else ""
        text = f"<HeldMemory {show_bytes(self.bytes)} on {self.device}: {checked}{limit}>"
        return for_terminal(text)


class AllocationStep(NamedTuple):
    """A step of `allocate_memory_incremental`."""

    asked: int
    """Bytes that the step asked for."""
    met: bool
    """Whether it got them; the first step that does not is the last."""
    held: int
    """Bytes that all steps hold together."""
    in_use: int
    """Bytes that the allocator counts as in use on the device, the program's own included."""
    limit: int
    """Bytes that its pool may take."""

    @property
    def utilisation(self) -> float:
        """The part of the limit that is in use."""
        return self.in_use / self.limit

    def __repr__(self) -> str:
        what = "took" if self.met else "could not have"
        return (
            f"<AllocationStep {what} {show_bytes(self.asked)}: {show_bytes(self.in_use)} of "
            f"{show_bytes(self.limit)} in use, {self.utilisation:.1%}>"
        )


class ClearedMemory(NamedTuple):
    """What `clear_memory_registry` gave back to JAX's pools."""

    released: int
    """Bytes of the arrays that were held."""
    in_use: dict[str, tuple[int, int]]
    """What the allocator of each device counted as in use, before and after."""
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
    """Make JAX hold memory on a device until `clear_memory_registry` is called.

    Args:
        amount: Bytes (an int, or a text such as ``"8GiB"``), or a part of what the pool may take
            (a float up to 1.0, or a text such as ``"90%"``).
        device: A number among JAX's GPUs, or one of ``jax.devices()``; the first GPU by default.

    Raises:
        InsufficientMemoryError: If it cannot be had; then nothing is held.
        VerificationFailedError: If there is no GPU, or the allocator does not count what was taken.
        InvalidArgumentError: If the amount is none, or a part of what is not known.
    """
    target = _devices.gpu(device)
    before = _devices.statistics(target)
    size = _bytes(amount, before, "amount")
    free = before["bytes_limit"] - before["bytes_in_use"] if "bytes_limit" in before else None
    # More than the pool has is refused at once: XLA would wait ten seconds for each piece. What
    # `cuda_async` calls its limit is none, and it counts no pool; there it is tried.
    if free is not None and size > free and "pool_bytes" in before:
        # A dry run answers what is asked of its card, so it is asked, in one piece.
        arrays = _take(size, target, whole=True) if _devices.is_virtual() else None
    else:
        arrays = _take(size, target)
    if arrays is None:
        raise InsufficientMemoryError(
            f"{show_bytes(size)} cannot be had on {target}",
            cause=None if free is None else f"{show_bytes(free)} of its pool are not in use",
            hint="ask for less; `allocate_memory_incremental` finds how much there is",
        )
    after = _devices.statistics(target)
    if before and after["bytes_in_use"] - before["bytes_in_use"] < size:
        for array in arrays:
            array.delete()
        raise VerificationFailedError(
            f"{show_bytes(size)} were taken on {target}, and its allocator counts fewer",
            cause=f"in use before {before['bytes_in_use']}, after {after['bytes_in_use']}",
            hint="call it where no other thread frees arrays",
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
    """Take memory step by step until so much of a device's pool is in use; each step is reported.

    What the program itself has in use counts. A step that cannot be had ends the walk: what the
    steps before it took stays held until `clear_memory_registry` is called.

    Args:
        target: What is to be in use at the end: bytes, or a part of what the pool may take.
        step: What each step takes, in the same forms.
        report: Called with each step as it is done, such as ``print``.
        device: As in `force_memory_allocation`.

    Returns:
        The steps. The last has ``met=False`` if the target was not reached.

    Raises:
        InvalidArgumentError: If an amount is none, or the allocator counts nothing.
        VerificationFailedError: If there is no GPU.
    """
    place = _devices.gpu(device)
    now = _devices.statistics(place)
    if not now.get("bytes_limit"):
        raise InvalidArgumentError(
            f"the allocator of {place} tells no limit to walk up to",
            hint="use the default allocator, or `force_memory_allocation` with bytes",
        )
    goal, stride = _bytes(target, now, "target"), _bytes(step, now, "step")
    steps: list[AllocationStep] = []
    held = 0
    while (missing := goal - now["bytes_in_use"]) > 0:
        asked = min(stride, missing)
        arrays = _take(asked, place)
        if arrays is not None:
            _registry.append((place, arrays))
            held += asked
        now = _devices.statistics(place)
        done = AllocationStep(
            asked, arrays is not None, held, now["bytes_in_use"], now["bytes_limit"]
        )
        steps.append(done)
        if report is not None:
            report(done)
        if arrays is None:
            break
    return tuple(steps)


def clear_memory_registry(caches: bool = False) -> ClearedMemory:
    """Free what `force_memory_allocation` and `allocate_memory_incremental` hold.

    The memory goes back to JAX's pool, and not to the driver: a pool never shrinks, so
    ``nvidia-smi`` shows what it showed before.

    Args:
        caches: Also drop JAX's compiled programs, which frees their code and constants; each is
            compiled again when it is next called.

    Raises:
        VerificationFailedError: If an allocator still counts what was freed.
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
                f"{show_bytes(freed[device])} were freed on {device}; its allocator counts less",
                cause=f"in use before {had['bytes_in_use']}, after {has['bytes_in_use']}",
                hint="call it where no other thread makes arrays",
            )
    return ClearedMemory(sum(freed.values()), counted, caches)


def _bytes(amount: float | int | str, known: dict[str, int], name: str) -> int:
    """Return the bytes of an amount, given what an allocator says of itself."""
    hint = "write bytes, such as `8 << 30` or `'8GiB'`, or a part, such as `0.9` or `'90%'`"
    part: float | None = None
    size = 0
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str)):
        raise InvalidArgumentError(f"`{name}={amount!r}` is not an amount of memory", hint=hint)
    if isinstance(amount, float):
        part = amount
    elif isinstance(amount, int):
        size = amount
    elif amount.rstrip().endswith("%"):
        try:
            part = float(amount.rstrip().removesuffix("%")) / 100
        except ValueError:
            part = 0.0
    else:
        size = parse_bytes(amount)
    if part is None:
        if size <= 0:
            raise InvalidArgumentError(f"`{name}={amount!r}` is nothing to take", hint=hint)
        return size
    if not 0.0 < part <= 1.0:
        raise InvalidArgumentError(f"`{name}={amount!r}` is not a part of a pool", hint=hint)
    if not known.get("bytes_limit"):
        raise InvalidArgumentError(
            f"`{name}={amount!r}` is a part of what this allocator does not tell",
            hint="write bytes, such as `'8GiB'`",
        )
    return max(1, int(known["bytes_limit"] * part))


def _take(size: int, device: Any, whole: bool = False) -> list[Any] | None:
    """Return arrays of so many bytes together; None, and none of them, if they cannot be had.

    With `whole` there is one array, else as many as are needed to find room for all of it.
    """
    import jax
    import jax.numpy as jnp

    arrays: list[Any] = []
    piece, left = size if whole else _PIECE, size
    while left > 0:
        asked = min(piece, left)
        try:
            # Filled, because memory that nothing was written to is not always there.
            array = jnp.full((asked,), 1, jnp.uint8, device=device)
            arrays.append(jax.block_until_ready(array))
            left -= asked
        # Which of the two depends on the way through JAX that the call took, and on its release.
        except (RuntimeError, ValueError) as error:
            # Halved from what was asked, so that each try is a smaller one.
            piece = asked // 2
            out_of_memory = "RESOURCE_EXHAUSTED" in str(error)
            if out_of_memory and piece >= _SMALLEST_PIECE and not whole:
                continue
            for held in arrays:
                held.delete()
            if out_of_memory:
                return None
            raise
    return arrays
