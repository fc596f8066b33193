"""`vramfit train`: from a configuration to the outcome of `fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vramfit import _stderr
from vramfit.train.baseline import Baseline
from vramfit.train.best_by import BestBy
from vramfit.train.options import Checkpoints, FitOptions, Resume
from vramfit.train.output.tensorboard import ensure_installed
from vramfit.train.result import Result

if TYPE_CHECKING:
    from vramfit.train.task.normalization import Normalization

_RESUME: dict[str, Resume] = {"auto": "auto", "require": True, "never": False}


def run_training(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train, and return the outcome."""
    config, data = request["config"], request["data"]
    if config["training"]["tensorboard"]:
        ensure_installed()
    import jax

    from vramfit.train.fit import fit
    from vramfit.train.run_record import RunRecord, record_code, recorded_as
    from vramfit.train.task.baseline import compute_baseline
    from vramfit.train.task.loaders import open_loaders
    from vramfit.train.task.normalization import (
        as_lists,
        compute_normalization,
        recorded_normalization,
        unknown_normalization,
    )
    from vramfit.train.task.synthetic import synthetic_batches
    from vramfit.train.task.task import build_task

    task = build_task(config, data)
    if config["training"]["best_by"] is not None:
        BestBy.parse(config["training"]["best_by"]).check(task.metric_names())
    dry_run = request["dry_run"]
    is_primary = jax.process_index() == 0
    lines = [f"parameters   {task.parameter_count():,}".replace(",", " ")]
    train, validation = (synthetic_batches if dry_run else open_loaders)(config, data)
    baseline = None
    normalization: Normalization = unknown_normalization(config, data)
    remarks: Sequence[str] = ()
    if not dry_run:
        if task.columns:
            known = None if request["resume"] == "never" else recorded_normalization(config)
            normalization, remarks = known or compute_normalization(config)
        if is_primary:
            baseline = compute_baseline(config, data, task)
        if baseline is not None:
            metrics = ", ".join(f"{name} {value:.6g}" for name, value in baseline.metrics.items())
            lines.append(f"baseline     {metrics}, always predicting {baseline.prediction}")
    if request["progress"] != "none" and is_primary:
        _stderr.write_line("\n".join(lines))
    recorded, code = record_code(config)
    record = RunRecord(
        config=recorded,
        data=data,
        code=code,
        normalization=as_lists(normalization),
        remarks=remarks,
        command=request["command"],
    )
    with recorded_as(record):
        result = fit(
            task.step,
            # Compiled as one program: operation by operation it takes longer than many a short run.
            jax.jit(task.init)(normalization),
            train,
            _fit_options(request, baseline),
            eval_step=None if validation is None else task.evaluate,
            eval_data=validation,
        )
    return {
        "outcome": result.stop_reason,
        "signal": result.signal,
        "step": result.steps,
        "save_error": result.save_error,
        "nan": None if result.nan is None else asdict(result.nan),
        "result": _result_json(result),
    }


def _fit_options(request: Mapping[str, Any], baseline: Baseline | None) -> FitOptions:
    training, dry_run = request["config"]["training"], request["dry_run"]
    return FitOptions(
        epochs=1 if dry_run else training["epochs"],
        steps=None if dry_run else training["steps"],
        directory=None if dry_run else training["directory"],
        checkpoints=None if dry_run else Checkpoints(**request["config"]["checkpoint"]),
        resume=_RESUME[request["resume"]],
        config=request["checkpoint_config"],
        force_resume=request["force_resume"],
        steps_per_dispatch=training["steps_per_dispatch"],
        log_every=training["log_every"],
        eval_every=None if dry_run else training["eval_every"],
        best_by=training["best_by"] or "min loss",
        baseline=baseline,
        stop_after=training["stop_after"],
        stop_on_nan=training["stop_on_nan"],
        device=training["device"],
        tensorboard=training["tensorboard"] and not dry_run,
        progress=request["progress"],
    )


def _result_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON has it, without the state."""
    names = (
        "stop_reason",
        "steps",
        "device",
        "peak_host_bytes",
        "peak_device_bytes",
        "peak_device_unknown",
        "resumed_at",
        "save_error",
    )
    return {
        **{name: getattr(result, name) for name in names},
        "elapsed_s": result.elapsed,
        "timing_s": asdict(result.timing),
        "best": None if result.best is None else asdict(result.best),
        "best_by": result.best_by,
        "baseline": None if result.baseline is None else asdict(result.baseline),
        "beats_baseline": result.beats_baseline,
        "evaluations": [asdict(evaluation) for evaluation in result.evaluations],
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "notes": list(result.notes),
        "nan": None if result.nan is None else asdict(result.nan),
    }
