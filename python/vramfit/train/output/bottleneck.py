"""What limited the speed of a run, in a sentence with numbers."""

from __future__ import annotations

from vramfit.train.messages import rephrase
from vramfit.train.result import Timing

_SHORT_STEP_SECONDS = 2e-3  # in which the overhead of Python is a part worth saving
_DATA_WAIT_THRESHOLD = 0.2
_DEVICE_WAIT_THRESHOLD = 0.2


def describe_bottleneck(timing: Timing, steps: int) -> str:
    """Return a sentence about what mostly limited a run of so many steps, with numbers."""
    training = timing.data_wait + timing.step
    if training <= 0:
        return "no training step was run"
    data = timing.data_wait / training
    device = timing.device_wait / training
    share = f"{data:.0%} of the training time was spent waiting for data"
    if timing.compile > training:
        return (
            f"most of the time was spent compiling ({timing.compile:.1f} s, against "
            f"{training:.1f} s of training): use JAX's compilation cache, or train for longer"
        )
    if data > _DATA_WAIT_THRESHOLD:
        return f"{share}: reading is the bottleneck; " + rephrase(
            program="print `loader.plan`, give the loader more `threads`, or run "
            "`vramfit data inspect` on the file",
            command="`vramfit data inspect` shows why, and how to fix it",
        )
    step_seconds = timing.step / max(steps, 1)
    if device < _DEVICE_WAIT_THRESHOLD and step_seconds < _SHORT_STEP_SECONDS:
        return (
            f"{share}, and {device:.0%} waiting for the device: at {step_seconds * 1e3:.2f} ms per "
            "step the overhead of Python is the bottleneck; "
            + rephrase(program="`steps_per_dispatch`", command="`training.steps_per_dispatch`")
            + " runs several steps per call"
        )
    return f"{share}, the rest in steps of {step_seconds * 1e3:.2f} ms"
