"""Memory settings that JAX honors: ``import vramfit.jax_memory_fix`` before JAX starts.

The import applies defaults where the environment sets nothing:

- The pool uses 90 % of the GPU's memory, preallocated at startup. JAX's own default is 75 %; the
  rest is for the CUDA context and for libraries, which need memory outside the pool.
- JAX fails if no GPU is available, instead of silently falling back to the CPU. To use the CPU, set
  ``JAX_PLATFORMS=cpu``.
- Values in the environment that JAX ignores or misreads are corrected.
- From then on, a variable that the program sets after JAX has read it gives a warning.

JAX's allocator stays as it is: ``platform``, which many recipes set together with a fraction, makes
every allocation slow and ignores the fraction.

Example:
    >>> from vramfit.jax_memory_fix import apply_jax_memory_fix  # the first line of a program
    >>> print(apply_jax_memory_fix(limit="8GiB"))  # doctest: +SKIP
    set XLA_CLIENT_MEM_FRACTION=0.5491468: 8.0 GiB of the GPU's 14.6 GiB
"""

from __future__ import annotations

from vramfit import _settings
from vramfit._functions._lazy import lazy_getattr
from vramfit.errors import InvalidArgumentError, JaxAlreadyInitializedError, VramfitWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vramfit._functions._fill_pool import (
        allocate_memory_incremental as allocate_memory_incremental,
    )
    from vramfit._functions._fill_pool import clear_memory_registry as clear_memory_registry
    from vramfit._functions._fill_pool import force_memory_allocation as force_memory_allocation
    from vramfit._settings._applied_settings import AppliedSettings as AppliedSettings
    from vramfit._settings._verify import verify_gpu_usage as verify_gpu_usage

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

_latest: _settings.Applied | None = None

# What uses JAX is loaded when it is first used itself.
_SOURCES = {
    "AppliedSettings": "vramfit._settings._applied_settings",
    "allocate_memory_incremental": "vramfit._functions._fill_pool",
    "clear_memory_registry": "vramfit._functions._fill_pool",
    "force_memory_allocation": "vramfit._functions._fill_pool",
    "verify_gpu_usage": "vramfit._settings._verify",
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
    """Set the variables that make JAX follow the arguments; call it before JAX starts.

    An argument takes precedence over the environment, and a note says so. Where an argument is None
    the environment decides, and where that sets nothing, the default. Each call starts with the
    environment as it was before the first one and before the import.

    Args:
        fraction: Fraction of the GPU's memory that JAX's pool may use; 0.9 unless another argument
            sets the size of the pool.
        limit: Bytes that it may use, such as ``"8GiB"``: converted to a fraction of the GPU's
            memory.
        allocator: ``"default"``, ``"bfc"``, ``"platform"``, ``"cuda_async"``, ``"vmm"`` or
            ``"address"``.
        preallocate: Whether the pool is preallocated at startup; JAX's default is True.
        keep_free: Bytes to leave free for other processes.
        processes: Number of processes among which the GPU is split evenly; this is one of them.
        require_gpu: Whether JAX fails if no GPU is available; True unless ``JAX_PLATFORMS`` or
            ``JAX_PLATFORM_NAME`` is set.
        remat: Whether XLA may rematerialize values when a program does not fit.
        x64: Whether 64-bit types are enabled.
        jit: Whether jitted functions are compiled.
        host_devices: Number of virtual CPU devices (does not affect GPUs).

    Raises:
        JaxAlreadyInitializedError: If JAX has already created its devices. The cause names what
            imported it.
        InvalidArgumentError: If a value is out of range, or two of them exclude each other.
        NoDriverError: If a size in bytes depends on a GPU whose memory is unknown.
    """
    global _latest
    from vramfit._settings._applied_settings import applied_settings

    options: dict[str, object] = {
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
    _latest = _settings.apply(options, detailed=True)
    return applied_settings(_latest)


_load = lazy_getattr(__name__, _SOURCES)


def __getattr__(name: str) -> object:
    if name != "applied":
        return _load(name)
    from vramfit._settings._applied_settings import applied_settings

    return None if _latest is None else applied_settings(_latest)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def _apply_defaults() -> None:
    """Apply the defaults, without asking the driver: an import must be quick."""
    global _latest
    try:
        _latest = _settings.apply({}, detailed=False)
    except (JaxAlreadyInitializedError, InvalidArgumentError) as error:
        # Raising would end programs that would run; a call raises.
        _warn(f"nothing was set: {error}")
        return
    from vramfit._inprogram import _late_settings

    # What was seen when it was set is told with its line.
    seen = _late_settings.watcher()
    noticed = {name for name, *_ in seen.find_late_changes()}
    lost = _latest.lost
    for note in _latest.notes:
        if note not in (lost[name] for name in lost.keys() & noticed):
            _warn(note)
    seen.told.update(lost.keys() - noticed)


def _warn_of_late_settings() -> None:
    """From now on, warn of a variable that the program sets after JAX has read it."""
    import re
    import warnings

    from vramfit._inprogram import _late_settings

    def warn(text: str, site: str) -> None:
        # Between the user's line and here are calls of Python's own, or a whole import.
        found = re.fullmatch(r"(.*):(\d+) \(.*\)", site, re.DOTALL)
        file, line = (found[1], int(found[2])) if found else (site, 1)
        warnings.warn_explicit(VramfitWarning(text), VramfitWarning, file, line)

    _late_settings.warn_late_settings(warn)


def _warn(text: str) -> None:
    import warnings

    # The line that imports this module: above it are this function, its caller and the module.
    warnings.warn(VramfitWarning(text), stacklevel=4)


_apply_defaults()
_warn_of_late_settings()
