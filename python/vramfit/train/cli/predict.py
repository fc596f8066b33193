"""`vramfit predict`: from rows of an HDF5 file to a file with a prediction for each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramfit._native import RowWriter
from vramfit.train.output.row_progress import RowProgress

if TYPE_CHECKING:
    from vramfit.data import Loader
    from vramfit.train.trained_model import TrainedModel

_KEPT = "kept:"


def run_prediction(request: Mapping[str, Any]) -> dict[str, Any]:
    """Predict each row of a file, and write the predictions and the columns that are kept.

    An attempt that was killed is resumed. All batches have the same number of rows, so that the
    file does not depend on where that was.

    Args:
        request: `run`, `checkpoint`, `data`, `inputs`, `output`, `keep` (`dataset`, `dtype` and
            `shape` of each), `batch_size`, `memory`, `force`, `progress`.
    """
    import numpy as np

    from vramfit.train.trained_model import load

    model = load(request["run"], request["checkpoint"])
    loader = _open_loader(request, model)
    outputs = _output_datasets(model, loader.rows)
    keep = [(it["dataset"], it["dtype"], [loader.rows, *it["shape"][1:]]) for it in request["keep"]]
    names = [name for name, _, _ in outputs]
    writer = RowWriter(
        request["output"],
        [*outputs, *keep],
        [
            ("run", os.path.abspath(request["run"])),
            ("step", str(model.step)),
            ("data", os.path.abspath(request["data"])),
        ],
        piece_rows=request["batch_size"],
        purpose=_purpose(request, model, loader),
        force=request["force"],
        resume=True,
    )
    done = resumed = writer.rows_done
    progress = RowProgress("predicting", loader.rows, done, quiet=request["progress"] == "none")
    kept = [f"{_KEPT}{number}" for number in range(len(keep))]

    def write(found: Mapping[str, Any], columns: list[Any], rows: int) -> None:
        parts = [np.asarray(found[name])[:rows] for name in names]
        writer.add([np.ascontiguousarray(part).tobytes() for part in [*parts, *columns]])

    waiting: tuple[Any, list[Any], int] | None = None
    for batch in loader.batches_from(0, done) if done < loader.rows else ():
        rows = min(len(batch["inputs"]), loader.rows - done)
        # Copies, because JAX may still read them when the loader needs its memory back.
        columns = [
            batch[name][:rows].astype(it["dtype"])
            for name, it in zip(kept, request["keep"], strict=True)
        ]
        found = model.predict(batch["inputs"].copy())
        # While the device computes this batch, the one before is written.
        if waiting is not None:
            write(*waiting)
        waiting = (found, columns, rows)
        done += rows
        progress.update(done)
    if waiting is not None:
        write(*waiting)
    size = writer.finish()
    progress.close()
    return {
        "outcome": "finished",
        "result": {
            "output": request["output"],
            "step": model.step,
            "rows": loader.rows,
            "resumed_rows": resumed,
            "file_bytes": size,
            "datasets": [
                {"dataset": name, "dtype": dtype, "shape": list(shape)}
                for name, dtype, shape in [*outputs, *keep]
            ],
            "device": str(model.device),
        },
    }


def _open_loader(request: Mapping[str, Any], model: TrainedModel) -> Loader:
    from vramfit.data import Loader

    columns = {"inputs": request["inputs"]}
    columns |= {f"{_KEPT}{number}": it["dataset"] for number, it in enumerate(request["keep"])}
    # Truth values are written as bytes; all else is read as it is written.
    dtype = {
        f"{_KEPT}{number}": it["dtype"]
        for number, it in enumerate(request["keep"])
        if it["stored_dtype"] != "bool"
    }
    return Loader(
        request["data"],
        columns,
        batch_size=request["batch_size"],
        shuffle=False,
        last_batch="pad",
        memory=request["memory"],
        dtype={"inputs": model.task.input_dtype, **dtype},
    )


def _output_datasets(model: TrainedModel, rows: int) -> list[tuple[str, str, list[int]]]:
    """Return names, types and shapes of what is predicted for so many rows."""
    import jax

    example = jax.ShapeDtypeStruct((1, *model.task.row), model.task.input_dtype)
    found = jax.eval_shape(model.task.predictions, model.state, example)
    return [
        (
            name,
            # HDF5 has no bfloat16.
            "float32" if str(it.dtype) == "bfloat16" else str(it.dtype),
            [rows, *it.shape[1:]],
        )
        for name, it in found.items()
    ]


def _purpose(request: Mapping[str, Any], model: TrainedModel, loader: Loader) -> str:
    """Return all that the content of the file depends on, which an attempt is resumed with."""
    import jax

    from vramfit.train.checkpoint.arrays import named_leaves, without_empty
    from vramfit.train.checkpoint.checksums import checksums

    leaves = without_empty(named_leaves(model.state)[0])
    return json.dumps(
        {
            "state": checksums([leaves[name] for name in sorted(leaves)]).tolist(),
            "data": loader.state()["file"],
            "inputs": request["inputs"],
            "keep": request["keep"],
            "batch_size": request["batch_size"],
            "platform": model.device.device_kind,
            "jax": jax.__version__,
        },
        sort_keys=True,
    )
