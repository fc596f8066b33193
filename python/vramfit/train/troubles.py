"""What goes wrong in training, and where its time goes, in words."""

from __future__ import annotations

from typing import Any

from vramfit import _devices
from vramfit._errors import InsufficientMemoryError, first_line
from vramfit._native import show_bytes
from vramfit.train.devices import Place
from vramfit.train.result import Timing
from vramfit.train.wording import worded

_SHORT = 2e-3  # seconds of a step, of which what Python does is a part worth having


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error of JAX's means that device memory was not enough."""
    text = str(error)
    return "RESOURCE_EXHAUSTED" in text or "Out of memory" in text


def out_of_memory(
    error: BaseException, *, step: int, rows: int | None, planned: Any, device: Any
) -> InsufficientMemoryError:
    """Return the error that tells of a step that found no memory."""
    where = "compiling the step" if planned is None else f"step {step}"
    parts = [f"{where} on {device}" + (f" with a batch of {rows} rows" if rows else "")]
    if planned is not None:
        needs = (
            planned.argument_size_in_bytes
            + planned.output_size_in_bytes
            - planned.alias_size_in_bytes
            + planned.temp_size_in_bytes
        )
        parts.append(
            f"the step needs {show_bytes(needs)}: {show_bytes(planned.argument_size_in_bytes)} for "
            f"state and batch, {show_bytes(planned.temp_size_in_bytes)} for what it computes"
            + ("" if planned.alias_size_in_bytes else ", and a second state, as none is donated")
        )
    counted = _devices.statistics(device)
    limit, used = counted.get("bytes_limit"), counted.get("bytes_in_use")
    if limit and used is not None:
        parts.append(f"{show_bytes(used)} of {show_bytes(limit)} were in use")
    return InsufficientMemoryError(
        "out of memory: " + "; ".join(parts),
        cause=first_line(error),
        hint="take a smaller batch, `jax.checkpoint` around the layers, or bfloat16; "
        "`vramfit dryrun --gpu CARD -- python …` shows whose the bytes are, without a GPU",
    )


def batch_rows(batch: Any, stacked: int) -> int | None:
    """Return how many rows a batch has, going by its first array."""
    import jax

    axis = 1 if stacked > 1 else 0
    shapes = [getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(batch)]
    return next((int(shape[axis]) for shape in shapes if len(shape) > axis), None)


def peaks(place: Place) -> tuple[int | None, int | None, str | None]:
    """Return the most memory on the host and on a device, or why the latter is not known."""
    try:
        import resource

        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except ImportError:  # no Unix
        host = None
    local = [device for device in place.devices if device.process_index == _process()]
    peaks = [_devices.statistics(device).get("peak_bytes_in_use") for device in local]
    known = [peak for peak in peaks if peak]
    if known:
        return host, max(known), None
    return host, None, f"JAX counts no memory on {place.devices[0].platform}"


def _process() -> int:
    import jax

    return int(jax.process_index())


def where_time_goes(timing: Timing, steps: int) -> str:
    """Return a sentence about what a run mostly waited for in so many steps, with numbers."""
    training = timing.data_wait + timing.step
    if training <= 0:
        return "no step was made"
    data = timing.data_wait / training
    device = timing.device_wait / training
    share = f"{data:.0%} of the training time went to waiting for data"
    if timing.compile > training:
        return (
            f"most of the time went to compiling ({timing.compile:.1f} s, against {training:.1f} s "
            "of training): a longer run, or JAX's compilation cache, makes it matter less"
        )
    if data > 0.2:
        return f"{share}: reading is what takes long; " + worded(
            program="see `loader.plan`, give the loader more `threads`, or look at the file "
            "with `vramfit data inspect`",
            command="`vramfit data inspect` says why, and what would cure it",
        )
    each = timing.step / max(steps, 1)
    if device < 0.2 and each < _SHORT:
        return (
            f"{share}, and {device:.0%} to waiting for the device: steps of {each * 1e3:.2f} ms "
            "are so short that it waits for Python; "
            + worded(program="`steps_per_dispatch`", command="`training.steps_per_dispatch`")
            + " puts several into one"
        )
    return f"{share}, the rest to steps of {each * 1e3:.2f} ms"
