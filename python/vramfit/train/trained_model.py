"""`load`: the model of a run of `vramfit train`, after training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramfit.errors import InvalidArgumentError, VramfitWarning
from vramfit.train.output.run_directory import CHECKPOINTS
from vramfit.train.run_record import RunRecord, read_record

if TYPE_CHECKING:
    from vramfit.train.checkpoint.reader import Which
    from vramfit.train.task.task import Task


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model. Calling it with rows of inputs returns its outputs.

    Attributes:
        run: The directory of its run.
        step: The training step of its checkpoint.
        config: The configuration of the run.
        data: What the run knew of its data: `inputs` and `targets` with their `dataset`, `dtype`
            and `shape`, the `loss`, the number of `classes`.
        metrics: The metrics of the evaluation at that step; None if there was none.
        state: The whole training state: `parameters`, `optimizer`, `step`, and where there are any
            `variables` (such as running means) and `normalization`.
        task: The functions of the configuration.
    """

    run: Path
    step: int
    config: Mapping[str, Any]
    data: Mapping[str, Any]
    metrics: Mapping[str, float] | None
    state: dict[str, Any] = field(repr=False)
    task: Task = field(repr=False)

    def __call__(self, inputs: Any) -> Any:
        """Return the outputs for rows of inputs, with all scaling and normalization applied.

        Args:
            inputs: Rows ``[rows, ...]`` as they are in the file, or as the model sees them: cut to
                `sequence_length`, and without the last step where that is predicted.

        Returns:
            Quantities in the units and with the shape of the targets, or logits of classes.
        """
        return self._outputs(self.state, self.as_batch(inputs))

    def predict(self, inputs: Any) -> dict[str, Any]:
        """Return `predictions`, and `probabilities` where the targets are classes or labels.

        Args:
            inputs: As those of a call.
        """
        found: dict[str, Any] = self._predictions(self.state, self.as_batch(inputs))
        return found

    @cached_property
    def module(self) -> Any:
        """The module of Flax or Equinox with the trained parameters, in its mode of inference.

        It takes what the model takes: inputs after scaling and normalization. One of Flax Linen
        that has a parameter for its mode is told by its caller: `module(x, train=False)`.
        """
        return self.task.model.build(self.state["parameters"], self.state.get("variables"))

    @property
    def parameters(self) -> Any:
        """The trained parameters."""
        return self.state["parameters"]

    @property
    def device(self) -> Any:
        """The device that its parameters are on, where it computes."""
        return next(iter(self.state["step"].devices()))

    def as_batch(self, inputs: Any) -> Any:
        """Return rows of inputs as the model takes them in a batch.

        Args:
            inputs: As those of a call.

        Raises:
            InvalidArgumentError: Rows have another shape than those of the run.
        """
        import numpy as np

        dtype = np.dtype(self.task.input_dtype)
        if not hasattr(inputs, "dtype"):
            inputs = np.asarray(inputs)
        # Bytes that are floats between 0 and 1 would all become 0.
        if np.dtype(dtype).kind in "iu" and not _is_exact(inputs, dtype):
            raise InvalidArgumentError(
                f"inputs are {inputs.dtype}, but the model was trained on {dtype}, which does not "
                "have all of their values",
                hint=f"pass them as they are in the training file, as {dtype}",
            )
        stored = tuple(self.data["inputs"]["shape"][1:])
        shape = tuple(inputs.shape[1:])
        if shape == stored and shape != self.task.row and stored:
            steps = inputs.shape[1] - bool(self.data["predicts_next"])
            inputs = inputs[:, steps - self.task.row[0] : steps]
        elif shape != self.task.row and shape != stored:
            raise InvalidArgumentError(
                f"rows of inputs have the shape {list(shape)}, but the model was trained on "
                f"{list(stored)}",
                hint="pass rows `[rows, ...]`; a single row is `inputs[None]`",
            )
        return inputs.reshape(inputs.shape[0], *self.task.row).astype(dtype)

    @cached_property
    def _outputs(self) -> Any:
        import jax

        return jax.jit(self.task.outputs)

    @cached_property
    def _predictions(self) -> Any:
        import jax

        return jax.jit(self.task.predictions)


def _is_exact(inputs: Any, dtype: Any) -> bool:
    """Return whether inputs are the same as another type; only their type where traced."""
    import jax
    import numpy as np

    if np.can_cast(inputs.dtype, dtype):
        return True
    if isinstance(inputs, jax.core.Tracer):
        return bool(np.dtype(inputs.dtype).kind in "iu")
    values = np.asarray(inputs)
    with np.errstate(invalid="ignore"):
        return bool((values.astype(dtype) == values).all())


def load(run: str | os.PathLike[str], checkpoint: Which = "best") -> TrainedModel:
    """Return the trained model of a run of `vramfit train`, on JAX's default device.

    The run may still be going on.

    Args:
        run: The directory of the run.
        checkpoint: `"best"` for that of the best evaluation among those that are kept, `"last"`,
            or the step of one.

    Raises:
        InvalidArgumentError: It is not such a directory, or there is no such checkpoint.
        InvalidFileError: The checkpoint cannot be read, or is damaged.
    """
    import jax

    from vramfit.train.checkpoint.reader import (
        CheckpointReader,
        restore_chosen,
        with_shardings,
    )
    from vramfit.train.task.normalization import unknown_normalization
    from vramfit.train.task.task import build_task

    path = Path(run)
    record = _configured_record(path)
    config = _with_recorded_code(path, record)
    data = record.data
    assert data is not None
    # Before anything is built: it may take long, and the request may be wrong.
    CheckpointReader(path / CHECKPOINTS).find_step(checkpoint)
    task = build_task(config, data)
    like = with_shardings(jax.eval_shape(task.init, unknown_normalization(config, data)))
    step, metrics, state = restore_chosen(path / CHECKPOINTS, checkpoint, like)
    return TrainedModel(
        run=path, step=step, config=config, data=data, metrics=metrics, state=state, task=task
    )


def load_state(run: str | os.PathLike[str], like: Any, checkpoint: Which = "best") -> Any:
    """Return the state of a checkpoint of any run, also of a program that called `fit`.

    Args:
        run: The directory of the run, the `directory` of `fit`.
        like: A state of the same structure, such as the initial one; its arrays have the shardings
            of what is returned. What has none, such as arrays of NumPy and `jax.ShapeDtypeStruct`,
            is restored on JAX's default device.
        checkpoint: `"best"`, `"last"`, or the step of a checkpoint.

    Raises:
        InvalidArgumentError: There is no such checkpoint, or its state has another structure.
        InvalidFileError: The checkpoint cannot be read, or is damaged.
    """
    from vramfit.train.checkpoint.reader import restore_chosen, with_shardings

    return restore_chosen(Path(run) / CHECKPOINTS, checkpoint, with_shardings(like))[2]


def _configured_record(run: Path) -> RunRecord:
    """Return the record of a run of `vramfit train`."""
    try:
        record = read_record(run)
    except FileNotFoundError:
        has_checkpoints = (run / CHECKPOINTS).is_dir()
        raise InvalidArgumentError(
            f"`{run}` is not the directory of a run: it has no `run.json`",
            hint="it was written by an earlier version: resume the run once with this one"
            if has_checkpoints
            else "name the directory that `vramfit train` wrote, such as `runs/train`",
        ) from None
    if record.data is None:
        raise InvalidArgumentError(
            f"`{run}` is a run of a program that called `fit`, whose model only that program knows",
            hint="`vramfit.train.load_state(run, like=state)` returns its state",
        )
    return record


def _with_recorded_code(run: Path, record: RunRecord) -> Mapping[str, Any]:
    """Return the configuration, with copies of the user's files where these have changed."""
    import warnings

    config = dict(record.config or {})
    for key, code in record.code.items():
        if code.is_unchanged():
            continue
        table, name = key.split(".")
        path = Path(code.path)
        copy = run / code.copy / path.name
        config[table] = {**config[table], name: f"{copy}:{config[table][name].rsplit(':', 1)[1]}"}
        beside = ", or a file that it imports," if len(code.files) > 1 else ""
        what = "has changed since the run began" if path.is_file() else "is not there any more"
        warnings.warn(
            f"`{path}`{beside} {what}: `{copy}` is used, the copy of it in the run's directory",
            VramfitWarning,
            stacklevel=3,
        )
    return config
