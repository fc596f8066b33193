"""Device memory that was not enough for a step, and the peak memory of a run."""

from __future__ import annotations

from typing import Any

from vramfit._functions import _devices
from vramfit._native import show_bytes
from vramfit.errors import InsufficientMemoryError, first_line


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of JAX means that device memory was not enough."""
    text = str(error)
    return "RESOURCE_EXHAUSTED" in text or "Out of memory" in text


def out_of_memory_error(
    error: BaseException, *, step: int, rows: int | None, memory_plan: Any, device: Any
) -> InsufficientMemoryError:
    """Return the error of a step for which device memory was not enough.

    Args:
        error: What JAX raised.
        step: Number of the step, from 1.
        rows: Rows of its batch, if known.
        memory_plan: XLA's memory analysis of the step; None if it was not compiled.
        device: The device.
    """
    where = "compiling the step" if memory_plan is None else f"step {step}"
    parts = [f"{where} on {device}" + (f" with a batch of {rows} rows" if rows else "")]
    if memory_plan is not None:
        arguments, temporaries = (
            memory_plan.argument_size_in_bytes,
            memory_plan.temp_size_in_bytes,
        )
        aliased = memory_plan.alias_size_in_bytes
        needed = arguments + memory_plan.output_size_in_bytes - aliased + temporaries
        parts.append(
            f"the step needs {show_bytes(needed)}: {show_bytes(arguments)} for state and batch, "
            f"{show_bytes(temporaries)} for temporaries"
            + ("" if aliased else ", and a second copy of the state, which is not donated")
        )
    stats = _devices.statistics(device)
    limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use")
    if limit and used is not None:
        parts.append(f"{show_bytes(used)} of {show_bytes(limit)} were in use")
    return InsufficientMemoryError(
        "out of memory: " + "; ".join(parts),
        cause=first_line(error),
        hint="use a smaller batch, `jax.checkpoint` around the layers, or bfloat16; "
        "`vramfit dryrun --gpu GPU -- python …` shows memory by owner, without a GPU",
    )


def batch_rows(batch: Any, stacked: int) -> int | None:
    """Return the number of rows of a batch, going by its first array."""
    import jax

    axis = 1 if stacked > 1 else 0
    shapes = [getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(batch)]
    return next((int(shape[axis]) for shape in shapes if len(shape) > axis), None)


def peak_memory(devices: tuple[Any, ...]) -> tuple[int | None, int | None, str | None]:
    """Return peak bytes of the host and of a device, and why the latter are unknown or None."""
    import jax

    try:
        import resource

        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except ImportError:  # no Unix
        host = None
    local = [device for device in devices if device.process_index == jax.process_index()]
    peaks = [_devices.statistics(device).get("peak_bytes_in_use") for device in local]
    known = [peak for peak in peaks if peak]
    if known:
        return host, max(known), None
    return host, None, f"JAX does not count memory on {devices[0].platform}"
