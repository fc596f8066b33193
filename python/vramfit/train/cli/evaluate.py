"""`vramfit train --evaluate`: the metrics of a trained model on the rows of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramfit.train.output.row_progress import RowProgress


def run_evaluation(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means of all metrics over the rows of a file.

    Args:
        request: `run`, `checkpoint`, `data`, `inputs`, `targets`, `batch_size`, `memory`, `info`
            (what is known of that file), `progress`.
    """
    import jax
    import numpy as np

    from vramfit.data import Loader
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
        last_batch="pad",
        memory=request["memory"],
        dtype={name: info[name]["batch_dtype"] for name in columns},
        transform=sequence_transform(
            model.config["data"]["sequence_length"],
            axis=1,
            has_targets="targets" in columns,
            predicts_next=info["predicts_next"],
        ),
    )
    evaluate = jax.jit(model.task.evaluate)
    progress = RowProgress("evaluating", loader.rows, 0, quiet=request["progress"] == "none")
    sums: dict[str, float] = {}
    done = 0
    waiting: tuple[Any, int] | None = None

    def add(metrics: Mapping[str, Any], rows: int) -> None:
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + rows * float(np.asarray(value))

    for batch in loader:
        rows = min(len(batch["mask"]), loader.rows - done)
        # Copies, because JAX may still read them when the loader needs its memory back.
        metrics = evaluate(model.state, {name: value.copy() for name, value in batch.items()})
        if waiting is not None:
            add(*waiting)
        waiting = (metrics, rows)
        done += rows
        progress.update(done)
    if waiting is not None:
        add(*waiting)
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
            "rows": done,
            "metrics": {name: total / max(done, 1) for name, total in sums.items()},
            "baseline": None if baseline is None else baseline.metrics,
            "baseline_prediction": None if baseline is None else baseline.prediction,
            "device": str(jax.devices()[0]),
        },
    }
