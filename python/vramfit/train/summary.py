"""The texts of a run: an epoch in a line, and the final report."""

from __future__ import annotations

from vramfit._native import show_bytes
from vramfit.train.result import Epoch, Result
from vramfit.train.troubles import where_time_goes

_REASONS = {
    "finished": "all epochs are done",
    "early": "early stopping: the validation loss got no better",
    "nan": "the loss is no number any more",
}


def duration(seconds: float) -> str:
    """Return seconds as people say them: `1 min 12 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def number(value: float) -> str:
    """Return a metric with as many digits as are read."""
    return f"{value:.4f}" if 0.001 <= abs(value) < 10_000 or value == 0 else f"{value:.3e}"


def epoch_line(epoch: Epoch, epochs: int, elapsed: float) -> str:
    """Return the summary of an epoch."""
    parts = [
        "losses are not known on a virtual GPU"
        if epoch.train is None
        else f"train loss {number(epoch.train['loss'])}"
    ]
    if epoch.validation is not None:
        best = " (best)" if epoch.best else ""
        parts.append(f"validation loss {number(epoch.validation['loss'])}{best}")
    parts += [
        f"{epoch.steps} steps",
        f"epoch time {duration(epoch.timing.wall)}",
        f"elapsed {duration(elapsed)}",
    ]
    return f"epoch {epoch.number}/{epochs}: " + ", ".join(parts)


def final_report(result: Result) -> str:
    """Return the report at the end: losses, times, device, memory."""
    timing, epochs = result.timing, result.epochs
    rows: list[tuple[str, str]] = []
    reason = _REASONS.get(result.stopped)
    if reason is None:
        reason = f"signal {result.signal}" if result.signal else "a signal to another process"
    rows.append(("stopped", reason))
    last = epochs[-1] if epochs else None
    if result.best is not None and result.best.validation is not None:
        loss = number(result.best.validation["loss"])
        rows.append(("best validation loss", f"{loss} in epoch {result.best.number}"))
    if last is not None and last.validation is not None:
        rows.append(("final validation loss", number(last.validation["loss"])))
    if last is not None and last.train is not None:
        rows.append(("final train loss", number(last.train["loss"])))
    rows.append(("epochs", f"{len(epochs)}, {result.steps} steps"))
    minutes = result.elapsed / 60
    rows.append(("total time", f"{minutes:.2f} min ({minutes / 60:.2f} h)"))
    if result.resumed_at:
        rows.append(("this sitting", f"{duration(timing.wall)}, from step {result.resumed_at}"))
    if epochs:
        mean = sum(epoch.timing.wall for epoch in epochs) / len(epochs)
        rows.append(("average epoch time", duration(mean)))
    rows.append(("time", _split(result)))
    rows.append(("input", where_time_goes(timing, result.steps - result.resumed_at)))
    rows.append(("device", result.device))
    host = result.peak_host_bytes
    rows.append(("peak memory, host", "not told here" if host is None else show_bytes(host)))
    device = result.peak_device_bytes
    rows.append(
        (
            "peak memory, device",
            f"not known: {result.peak_device_unknown}" if device is None else show_bytes(device),
        )
    )
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    lines += [f"  note: {note}" for note in result.notes]
    return "\n".join(["training", *lines])


def _split(result: Result) -> str:
    timing = result.timing
    parts = {
        "compile": timing.compile,
        "waiting for data": timing.data_wait,
        "steps": timing.step,
        "evaluation": timing.eval,
        "checkpoints": timing.checkpoint,
    }
    rest = timing.wall - sum(parts.values())
    words = [f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds > 0]
    return ", ".join([*words, f"other {duration(max(rest, 0.0))}"])
