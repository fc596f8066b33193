"""`vramfit train --evaluate`: the metrics of a trained model on the rows of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramfit.train.output.row_progress import RowProgress

_DEPTH = 2
"""Batches that are transferred ahead."""


def run_evaluation(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means of all metrics over the rows of a file.

    Args:
        request: `run`, `checkpoint`, `data`, `inputs`, `targets`, `batch_size`, `memory`, `info`
            (what is known of that file), `progress`.
    """
    from vramfit.data import Loader
    from vramfit.train.data.batch_source import open_source
    from vramfit.train.loop.compiled_step import CompiledStep, eval_function
    from vramfit.train.loop.evaluator import Evaluator
    from vramfit.train.output.timers import Stopwatch
    from vramfit.train.task.baseline import compute_baseline
    from vramfit.train.task.loaders import sequence_transform
    from vramfit.train.trained_model import load

    model = load(request["run"], request["checkpoint"])
    info = request["info"]
    columns = {"inputs": request["inputs"], "targets": request["targets"]}
    if request["inputs"] == request["targets"]:
        del columns["targets"]
    loader = Loader(
        request["data"],
        columns,
        batch_size=request["batch_size"],
        shuffle=False,
        mask=True,
        memory=request["memory"],
        dtype={name: info[name]["batch_dtype"] for name in columns},
        transform=sequence_transform(
            model.config["data"]["sequence_length"],
            axis=1,
            has_targets="targets" in columns,
            predicts_next=info["predicts_next"],
        ),
    )
    progress = RowProgress("evaluating", loader.rows, 0, quiet=request["progress"] == "none")
    batches = 0

    def show_progress() -> bool:
        """Count a batch, and ask for the next one."""
        nonlocal batches
        progress.update(min(batches * loader.batch_size, loader.rows))
        batches += 1
        return False

    evaluator = Evaluator(
        CompiledStep(eval_function(model.task.evaluate)),
        open_source(loader, depth=_DEPTH, stacked=1, target=model.device, role="data"),
        {},
        Stopwatch(),
        values_known=True,
    )
    metrics = evaluator.run(model.state, show_progress) or {}
    progress.close()
    config = {
        **model.config,
        "data": {
            **model.config["data"],
            "path": request["data"],
            "inputs": request["inputs"],
            "targets": request["targets"],
            "validation_path": None,
            "validation_fraction": 0.0,
        },
    }
    baseline = compute_baseline(config, info, model.task)
    return {
        "outcome": "finished",
        "result": {
            "run": request["run"],
            "step": model.step,
            "data": request["data"],
            "rows": loader.rows,
            "metrics": metrics,
            "baseline": None if baseline is None else baseline.metrics,
            "baseline_prediction": None if baseline is None else baseline.prediction,
            "device": str(model.device),
        },
    }
