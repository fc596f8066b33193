"""`vramfit export`: a trained model for programs that have no vramfit."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramfit._native import show_bytes, write_safetensors
from vramfit.errors import InvalidArgumentError, PackageMissingError, first_line

if TYPE_CHECKING:
    from vramfit.train.trained_model import TrainedModel

_PLATFORMS = ("cpu", "cuda")
_MAX_PROGRAM_BYTES = 2_000_000_000
"""Of the parameters in a program: its file format counts bytes in 31 bits."""


def run_export(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write a trained model to a file.

    Args:
        request: `run`, `checkpoint`, `format`, `output`.
    """
    from vramfit.train.trained_model import load

    model = load(request["run"], request["checkpoint"])
    output = Path(request["output"])
    new = output.with_name(f".{output.name}.new")
    try:
        details = _FORMATS[request["format"]](model, new)
        os.replace(new, output)
    finally:
        new.unlink(missing_ok=True)
    return {
        "outcome": "finished",
        "result": {
            "output": request["output"],
            "format": request["format"],
            "step": model.step,
            "file_bytes": output.stat().st_size,
            **details,
        },
    }


def _write_stablehlo(model: TrainedModel, path: Path) -> dict[str, Any]:
    """Write `predict` as a program with the parameters in it, for any number of rows."""
    import jax
    from jax import export

    if importlib.util.find_spec("flatbuffers") is None:
        raise PackageMissingError(
            f"`{sys.executable}` has no `flatbuffers`, which `jax.export` writes programs with",
            hint=f"install it: `{sys.executable} -m pip install flatbuffers`",
        )
    parameter_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(model.parameters))
    if parameter_bytes > _MAX_PROGRAM_BYTES:
        raise InvalidArgumentError(
            f"the model has {show_bytes(parameter_bytes)} of parameters, and a StableHLO program "
            "can have 2 GB",
            hint="use `--format safetensors`",
        )
    task, state = model.task, {**model.state, "optimizer": None}
    (rows,) = export.symbolic_shape("rows")
    inputs = jax.ShapeDtypeStruct((rows, *task.row), task.input_dtype)

    def predict(inputs: Any) -> dict[str, Any]:
        return task.predictions(state, inputs)

    try:
        exported = export.export(jax.jit(predict), platforms=_PLATFORMS)(inputs)
    except Exception as error:  # of many kinds, from a model of the user's
        raise InvalidArgumentError(
            "the model cannot be exported for any number of rows",
            cause=first_line(error),
            hint="an operation depends on the number of rows, or does not exist on "
            f"{' and '.join(_PLATFORMS)}; `--format safetensors` exports its parameters",
        ) from error
    path.write_bytes(exported.serialize())
    return {
        "inputs": {"dtype": task.input_dtype, "shape": ["rows", *task.row]},
        "outputs": {
            name: {"dtype": str(it.dtype), "shape": [str(size) for size in it.shape]}
            for name, it in zip(
                sorted(jax.eval_shape(predict, inputs)), exported.out_avals, strict=True
            )
        },
        "platforms": list(_PLATFORMS),
        "calling_convention_version": exported.calling_convention_version,
    }


def _write_arrays(model: TrainedModel, path: Path) -> dict[str, Any]:
    """Write parameters and running means by their names in the module."""
    import numpy as np

    from vramfit.train.task.model import by_path

    found = model.task.model.named_arrays(model.parameters, model.state.get("variables"))
    found |= by_path(model.state.get("normalization"), "normalization.")
    arrays = {name: np.asarray(leaf) for name, leaf in found.items()}
    metadata = {
        "library": model.task.model.library,
        "step": str(model.step),
        "config": json.dumps(model.config),
    }
    write_safetensors(
        path,
        [
            (name, str(it.dtype), it.shape, np.ascontiguousarray(it).tobytes())
            for name, it in arrays.items()
        ],
        metadata,
    )
    return {"arrays": len(arrays), "bytes": sum(it.nbytes for it in arrays.values())}


_FORMATS: dict[str, Callable[[TrainedModel, Path], dict[str, Any]]] = {
    "stablehlo": _write_stablehlo,
    "safetensors": _write_arrays,
}
