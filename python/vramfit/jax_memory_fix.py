"""Memory settings that JAX really reads: ``import vramfit.jax_memory_fix`` before JAX starts.

The import applies the defaults, where the environment says nothing:

- The pool may take 90 % of the card, and takes it at the first operation. JAX's own default is
  75 %; the rest is for the CUDA context and for libraries, which need their memory beside the pool.
- A GPU that cannot be had is an error, and no reason to go on with the CPU silently. Whoever wants
  the CPU says so: ``JAX_PLATFORMS=cpu``.
- What the environment says in words that JAX ignores or trips over is set right.
- From then on, a variable that the program sets after JAX has read it gives a warning.

JAX's allocator stays as it is: ``platform``, which many recipes set beside a fraction, makes every
allocation slow and the fraction void.

Example:
    >>> from vramfit.jax_memory_fix import apply_jax_memory_fix  # the first line of a program
    >>> print(apply_jax_memory_fix(limit="8GiB"))  # doctest: +SKIP
    set XLA_CLIENT_MEM_FRACTION=0.5491468: 8.0 GiB of the card's 14.6 GiB
"""

from __future__ import annotations

from vramfit import _settings
from vramfit._errors import InvalidArgumentError, JaxAlreadyInitializedError, VramfitWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vramfit._applied import AppliedSettings as AppliedSettings
    from vramfit._pool import allocate_memory_incremental as allocate_memory_incremental
    from vramfit._pool import clear_memory_registry as clear_memory_registry
    from vramfit._pool import force_memory_allocation as force_memory_allocation
    from vramfit._verify import verify_gpu_usage as verify_gpu_usage

__all__ = [
    "AppliedSettings",
    "allocate_memory_incremental",
    "applied",
    "apply_jax_memory_fix",
    "clear_memory_registry",
    "force_memory_allocation",
    "verify_gpu_usage",
]

if TYPE_CHECKING:
    applied: AppliedSettings | None
    """What the import, or the latest call, has applied; None if it came too late."""

_latest: _settings.Decided | None = None

# What asks JAX is loaded when it is first used.
_HOMES = {
    "AppliedSettings": "vramfit._applied",
    "allocate_memory_incremental": "vramfit._pool",
    "clear_memory_registry": "vramfit._pool",
    "force_memory_allocation": "vramfit._pool",
    "verify_gpu_usage": "vramfit._verify",
}


def apply_jax_memory_fix(
    fraction: float | None = None,
    limit: str | int | None = None,
    allocator: str | None = None,
    preallocate: bool | None = None,
    keep_free: str | int | None = None,
    processes: int | None = None,
    require_gpu: bool | None = None,
    remat: bool | None = None,
    x64: bool | None = None,
    jit: bool | None = None,
    host_devices: int | None = None,
) -> AppliedSettings:
    """Set what JAX reads so that it does what the arguments say; to be called before JAX starts.

    An argument goes before the environment, and that is told in the notes. Where an argument is
    None the environment decides, and where that says nothing, the default. Each call begins with
    the environment as it was before the first one and before the import.

    Args:
        fraction: The part of the card that JAX's pool may take; 0.9 unless anything else is said
            about the pool's size.
        limit: The bytes that it may take, such as ``"8GiB"``: turned into the fraction of the
            card.
        allocator: ``"default"``, ``"bfc"``, ``"platform"``, ``"cuda_async"``, ``"vmm"`` or
            ``"address"``.
        preallocate: Whether the pool takes its limit at the first operation; JAX's default is True.
        keep_free: The bytes of the card that the pool leaves to others.
        processes: Number of processes among which the GPU is split evenly; this one gets one part.
        require_gpu: Whether a GPU that cannot be had is an error; True unless ``JAX_PLATFORMS`` or
            ``JAX_PLATFORM_NAME`` is set.
        remat: Whether XLA may compute values again, instead of keeping them, when a program does
            not fit.
        x64: Whether 64-bit types exist.
        jit: Whether jitted functions are compiled.
        host_devices: How many CPU devices there are; nothing on a GPU changes.

    Raises:
        JaxAlreadyInitializedError: If JAX has made its devices already. The cause names who
            imported it.
        InvalidArgumentError: If a value cannot be, or two of them exclude each other.
        NoDriverError: If an amount in bytes depends on a card that the driver does not tell.
    """
    global _latest
    from vramfit._applied import applied_settings

    wishes: dict[str, object] = {
        "fraction": fraction,
        "limit": str(limit) if type(limit) is int else limit,
        "allocator": allocator,
        "preallocate": preallocate,
        "keep_free": str(keep_free) if type(keep_free) is int else keep_free,
        "processes": processes,
        "require_gpu": require_gpu,
        "remat": remat,
        "x64": x64,
        "jit": jit,
        "host_devices": host_devices,
    }
    _latest = _settings.apply(wishes, look_at_cards=True)
    return applied_settings(_latest)


def __getattr__(name: str) -> object:
    """Load what is not needed at once when it is first used."""
    if name == "applied":
        from vramfit._applied import applied_settings

        return None if _latest is None else applied_settings(_latest)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def _apply_defaults() -> None:
    """Apply the defaults, without asking the driver: an import must be quick."""
    global _latest
    try:
        _latest = _settings.apply({}, look_at_cards=False)
    except (JaxAlreadyInitializedError, InvalidArgumentError) as error:
        # Raising would end programs that would run; the call raises.
        _warn(f"nothing was set: {error}")
        return
    for note in _latest[3]:
        _warn(note)


def _watch_for_what_comes_too_late() -> None:
    """From now on, warn of a variable that the program sets after JAX has read it."""
    import warnings

    from vramfit import _late

    # The line that sets it is in the text: between it and here lie calls of Python's own.
    _late.tell(lambda text: warnings.warn(VramfitWarning(text), stacklevel=2))


def _warn(text: str) -> None:
    import warnings

    # The line that imports this module: above are this function, its caller and the module.
    warnings.warn(VramfitWarning(text), stacklevel=4)


_apply_defaults()
_watch_for_what_comes_too_late()
