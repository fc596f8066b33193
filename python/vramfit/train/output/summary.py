"""The summary of an epoch, and the final report."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping
from itertools import accumulate

from vramfit._native import show_bytes
from vramfit.train.baseline import Baseline
from vramfit.train.best_by import BestBy
from vramfit.train.events import Evaluation
from vramfit.train.messages import rephrase
from vramfit.train.output.bottleneck import describe_bottleneck
from vramfit.train.result import Epoch, Result

MAX_WIDTH = 80
"""Columns of a summary, on a terminal that is not narrower."""

_MIN_LABEL_WIDTH = 15

_TITLES = {"callback": "TRAINING STOPPED", "signal": "TRAINING STOPPED", "nan": "TRAINING FAILED"}
_REASONS = {
    "early": "early stopping: the evaluation did not improve",
    "nan": "the loss is not finite",
}


def duration(seconds: float) -> str:
    """Return seconds as people write them: `1 min 12 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def number(value: float) -> str:
    """Return a metric with six decimals, in scientific notation if it is very small or large."""
    return f"{value:.6f}" if 0.001 <= abs(value) < 10_000 or value == 0 else f"{value:.6e}"


def line_width() -> int:
    """Return the columns of a summary; only a word that is longer makes a line longer."""
    return min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)


def wrapped(text: str, indent: str = "") -> str:
    """Return text in lines of at most :func:`line_width` columns, broken between words only.

    Args:
        text: One paragraph.
        indent: The beginning of the second and further lines.
    """
    return textwrap.fill(
        text, line_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def epoch_summary(epoch: Epoch, epochs: int | None, elapsed: float) -> str:
    """Return the summary of an epoch: a heading, and a line for each number."""
    rows = [
        *_metric_rows("Train", epoch.train),
        *_metric_rows("Val", epoch.validation, best=epoch.best),
        ("Epoch Time", _minutes_and_seconds(epoch.timing.wall)),
        ("Elapsed Time", f"{elapsed / 60:.2f} min"),
    ]
    return "\n".join(_title_block(f"Epoch {_of(epoch.number, epochs)} Summary", rows))


def epoch_line(epoch: Epoch, epochs: int | None, elapsed: float) -> str:
    """Return the summary of an epoch in one paragraph."""
    rows = [*_metric_rows("train", epoch.train), *_metric_rows("val", epoch.validation)]
    parts = [f"{label.lower()} {value}" for label, value in rows]
    if epoch.best:
        parts[-1] += " (best)"
    parts += [
        f"epoch time {duration(epoch.timing.wall)}",
        f"elapsed {duration(elapsed)}",
    ]
    return f"epoch {_of(epoch.number, epochs)}: " + ", ".join(parts)


def evaluation_line(evaluation: Evaluation) -> str:
    """Return the metrics of an evaluation in one paragraph."""
    rows = _metric_rows("val", evaluation.metrics, best=evaluation.best)
    metrics = ", ".join(f"{label.lower()} {' '.join(value.split())}" for label, value in rows)
    return f"step {evaluation.step}: {metrics}"


def _of(number: int, total: int | None) -> str:
    return str(number) if total is None else f"{number}/{total}"


def final_report(result: Result) -> str:
    """Return the report at the end: losses, times, device, memory."""
    last = result.epochs[-1] if result.epochs else None
    title = _TITLES.get(result.stop_reason, "TRAINING COMPLETE!")
    lines = _title_block(title, [("Reason", _reason(result))])
    lines += _section("FINAL RESULTS", _result_rows(result, last))
    lines += _section("TIMING STATISTICS", _overview_rows(result))
    lines += _section("DETAILS", _timing_rows(result))
    lines += [wrapped(f"  note: {note}", "    ") for note in result.notes]
    if result.best is None and result.evaluations:
        metric = BestBy.parse(result.best_by).metric
        text = f"  WARNING: the {metric} of every evaluation is NaN or infinite"
        lines.append(wrapped(f"{text}; check the validation data for such values", "    "))
    if result.beats_baseline is False and result.baseline is not None:
        prediction = result.baseline.prediction
        advice = rephrase(
            program="the scale of inputs and targets, the learning rate and the number of epochs",
            command="`data.normalize`, `optimizer.learning_rate` and the number of epochs",
        )
        text = f"  WARNING: the model is not better than always predicting {prediction}"
        lines.append(wrapped(f"{text}; check {advice}", "    "))
    if result.save_error is not None:
        text = f"  THE FINAL STATE WAS NOT SAVED: {result.save_error}"
        lines.append(wrapped(text, "    "))
    return "\n".join([*lines, "=" * line_width()])


def _reason(result: Result) -> str:
    if result.stop_reason == "finished":
        is_within_epoch = bool(result.epochs) and not result.epochs[-1].complete
        return (
            f"all {result.steps} steps are finished"
            if is_within_epoch
            else ("all epochs are finished")
        )
    if result.stop_reason == "callback":
        return result.stop_message or "a callback in another process"
    reason = _REASONS.get(result.stop_reason)
    if reason is not None:
        return reason if result.nan is None else f"{reason}: {result.nan.text}"
    return f"signal {result.signal}" if result.signal else "a signal to another process"


def _result_rows(result: Result, last: Epoch | None) -> list[tuple[str, str]]:
    rows = []
    if result.best is not None:
        metric = BestBy.parse(result.best_by).metric
        value = number(result.best.metrics[metric])
        ends = accumulate(epoch.steps for epoch in result.epochs if epoch.complete)
        by_epoch = result.best.step in ends
        at = f"epoch {result.best.epoch}" if by_epoch else f"step {result.best.step}"
        rows.append((f"Best Val {_title(metric)}", f"{value} ({at})"))
    if last is not None:
        rows += _metric_rows("Final Train", last.train)
        latest = result.evaluations[-1].metrics if result.evaluations else None
        rows += _metric_rows("Final Val", last.validation or latest)
    if result.baseline is not None and rows:
        rows.append(_baseline_row(result, result.baseline))
    return rows or [("Losses", "none: no step was run")]


def _baseline_row(result: Result, baseline: Baseline) -> tuple[str, str]:
    metric = BestBy.parse(result.best_by).metric
    value = baseline.metrics.get(metric)
    shown = "unknown" if value is None else number(value)
    part = "Val" if result.evaluations else "Train"
    return f"Baseline {part} {_title(metric)}", f"{shown} (always predicting {baseline.prediction})"


def _overview_rows(result: Result) -> list[tuple[str, str]]:
    minutes = result.elapsed / 60
    rows = [("Total Time", f"{minutes:.2f} min ({minutes / 60:.2f} hours)")]
    if result.resumed_at:
        wall = _minutes_and_seconds(result.timing.wall)
        rows.append(("This Session", f"{wall}, resumed from step {result.resumed_at}"))
    complete = [epoch for epoch in result.epochs if epoch.complete]
    if complete:
        mean = sum(epoch.timing.wall for epoch in complete) / len(complete)
        rows.append(("Average Epoch", _minutes_and_seconds(mean)))
    part = "" if len(complete) == len(result.epochs) else " and a part"
    rows.append(("Epochs", f"{len(complete)}{part} ({result.steps} steps)"))
    rows.append(("Device", result.device))
    return rows


def _timing_rows(result: Result) -> list[tuple[str, str]]:
    timing = result.timing
    parts = {
        "compiling": timing.compile,
        "waiting for data": timing.data_wait,
        "training steps": timing.step,
        "evaluation": timing.eval,
        "checkpoints": timing.checkpoint,
        "callbacks": timing.callbacks,
    }
    rest = max(timing.wall - sum(parts.values()), 0.0)
    spent = [f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds > 0]
    host, device = result.peak_host_bytes, result.peak_device_bytes
    unknown = f"unknown: {result.peak_device_unknown}"
    rows = [("Time spent", ", ".join([*spent, f"other {duration(rest)}"]))]
    # One for the step and one for the evaluation are what a run needs.
    if result.programs > 2:
        shapes = f"{result.batch_shapes} shapes of batches"
        seconds = duration(result.programs_seconds)
        text = f"{result.programs} programs were compiled for {shapes}: {seconds}"
        rows.append(("Compilation", text))
    return [
        *rows,
        ("Bottleneck", describe_bottleneck(timing, result.steps - result.resumed_at)),
        ("Host memory", "unknown" if host is None else f"{show_bytes(host)} at the peak"),
        ("Device memory", unknown if device is None else f"{show_bytes(device)} at the peak"),
    ]


def _metric_rows(
    prefix: str, metrics: Mapping[str, float] | None, *, best: bool = False
) -> list[tuple[str, str]]:
    """Return a row for each metric, the loss first."""
    if metrics is None:
        # On a virtual GPU nothing is computed; without validation data there is nothing to report.
        is_train = prefix.lower().endswith("train")
        return [(f"{prefix} Loss", "unknown on a virtual GPU")] if is_train else []
    names = sorted(metrics, key=lambda name: name != "loss")
    rows = [(f"{prefix} {_title(name)}", number(metrics[name])) for name in names]
    if best:
        rows[0] = (rows[0][0], f"{rows[0][1]}  (best)")
    return rows


def _title(name: str) -> str:
    """Return a metric's name as a label: `top5_accuracy` becomes `Top5 Accuracy`."""
    return " ".join(word[:1].upper() + word[1:] for word in name.replace("_", " ").split())


def _minutes_and_seconds(seconds: float) -> str:
    return f"{seconds / 60:.2f} min ({seconds:.1f}s)"


def _title_block(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    rule = "=" * line_width()
    return [rule, title, rule, *_table(rows)]


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return ["", title, *_table(rows)]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max([_MIN_LABEL_WIDTH, *(len(label) + 1 for label, _ in rows)])
    indent = " " * (width + 3)
    return [wrapped(f"  {f'{label}:':<{width}} {value}", indent) for label, value in rows]
