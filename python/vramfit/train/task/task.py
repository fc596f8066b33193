"""The task of a configuration: its initial state, its steps, and its predictions.

All are pure functions of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vramfit.errors import InvalidArgumentError, VramfitError
from vramfit.train.task.losses import RowMetrics, find_row_metrics
from vramfit.train.task.model import Model, find_model
from vramfit.train.task.normalization import (
    Normalization,
    denormalize,
    normalize,
    normalized_columns,
)
from vramfit.train.task.optimizer import Optimizer
from vramfit.train.task.optimizer import build as build_optimizer
from vramfit.train.task.python_name import failure_in_code, is_python_name

Batch = Mapping[str, Any]
State = dict[str, Any]

_EXAMPLE_ROWS = 2


@dataclass(frozen=True)
class Task:
    """Functions that ``fit`` takes, and what a trained state is good for.

    Attributes:
        model: The model without its parameters.
        row: The shape of one row of inputs, as the model sees it.
        input_dtype: The type of inputs in a batch.
        target_row: The shape of one row of the targets.
        target_dtype: The type of targets in a batch.
        loss: The name of the loss.
        classes: Number of classes, if the model predicts one.
        predicts_next: Whether the target of each step is the next step.
        columns: Which of inputs and targets are normalized.
        scale: The factor of the inputs, or None.
        row_metrics: The metrics of the loss.
        optimizer: The optimizer.
        seed: Seed of dropout.
    """

    model: Model
    row: tuple[int, ...]
    input_dtype: str
    target_row: tuple[int, ...]
    target_dtype: str
    loss: str
    classes: int | None
    predicts_next: bool
    columns: list[str]
    scale: float | None
    row_metrics: RowMetrics
    optimizer: Optimizer
    seed: int

    def init(self, normalization: Normalization) -> State:
        """Return the initial state.

        Args:
            normalization: Statistics of the columns that are normalized.
        """
        import jax.numpy as jnp

        parameters, variables = self.model.init(self._example())
        state = {
            "parameters": parameters,
            "optimizer": self.optimizer.rule.init(parameters),
            "step": jnp.zeros((), jnp.int32),
        }
        # Not there where they are empty, as in checkpoints of earlier versions.
        if variables is not None:
            state["variables"] = variables
        if self.columns:
            state["normalization"] = normalization
        return state

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
        """Map a state and a batch to the next state and metrics."""
        import jax

        # A function of seed and step, so that a resumed run draws the same masks.
        key = jax.random.fold_in(jax.random.key(self.seed), state["step"])
        statistics = state.get("normalization", {}).get("targets")

        def loss(parameters: Any) -> Any:
            raw, variables = self._outputs(state, parameters, batch["inputs"], key)
            by_row = self.row_metrics(self._in_units(raw, statistics), batch["targets"])
            metrics = {name: values.mean() for name, values in by_row.items()}
            minimized = metrics["loss"]
            if statistics is not None:
                targets = normalize(batch["targets"], statistics)
                minimized = self.row_metrics(raw, targets)["loss"].mean()
            return minimized, (metrics, variables)

        gradients, (metrics, variables) = jax.grad(loss, has_aux=True)(state["parameters"])
        updates, optimizer_state = self.optimizer.rule.update(
            gradients, state["optimizer"], state["parameters"], value=metrics["loss"]
        )
        parameters = jax.tree.map(
            lambda old, update: (old + update).astype(old.dtype), state["parameters"], updates
        )
        new_state = {
            **state,
            "parameters": parameters,
            "optimizer": optimizer_state,
            "step": state["step"] + 1,
        }
        if variables is not None:
            new_state["variables"] = variables
        rate = self.optimizer.learning_rate(state["step"], optimizer_state)
        return new_state, {**metrics, "learning_rate": rate}

    def evaluate(self, state: State, batch: Batch) -> dict[str, Any]:
        """Map a state and a batch with a mask to metrics."""
        outputs = self._row_outputs(state, batch["inputs"])
        mask = batch["mask"]
        by_row = self.row_metrics(outputs, batch["targets"])
        return {name: (values * mask).sum() / mask.sum() for name, values in by_row.items()}

    def outputs(self, state: State, inputs: Any) -> Any:
        """Map a batch of inputs to outputs: quantities with the shape of the targets, or logits.

        Those of a loss of the user's are what the model returns.
        """
        outputs = self._row_outputs(state, inputs)
        if self.classes is not None or self.has_own_loss:
            return outputs
        return outputs.reshape(outputs.shape[0], *self.target_row)

    def predictions(self, state: State, inputs: Any) -> dict[str, Any]:
        """Map a batch of inputs to predictions by name.

        `predictions` has values in the units of the targets and with their shape, classes, or 0
        and 1; for these, `probabilities` has the probability of each class, or of a 1.
        """
        import jax
        import jax.numpy as jnp

        outputs = self.outputs(state, inputs)
        if self.has_own_loss:
            return {"predictions": outputs}
        if self.classes is not None:
            return {
                "predictions": outputs.argmax(axis=-1).astype(jnp.int32),
                "probabilities": jax.nn.softmax(outputs.astype(jnp.float32)),
            }
        if self.loss == "binary_cross_entropy":
            return {
                "predictions": (outputs > 0).astype(jnp.uint8),
                "probabilities": jax.nn.sigmoid(outputs.astype(jnp.float32)),
            }
        return {"predictions": outputs}

    @property
    def has_own_loss(self) -> bool:
        """Whether the loss is a function of the user's."""
        return is_python_name(self.loss)

    def parameter_count(self) -> int:
        """Return the number of parameters of the model."""
        import jax

        parameters, _ = jax.eval_shape(self.model.init, self._example())
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(parameters))

    @cached_property
    def output_row(self) -> tuple[int, ...]:
        """The shape of what the model returns for one row.

        Raises:
            InvalidArgumentError: The model fails, or does not return a row for each row.
        """
        import jax

        example = self._example()
        key = jax.random.key(self.seed)
        try:
            parameters, variables = jax.eval_shape(self.model.init, example)
            for of_mode in (None, key):
                outputs, _ = jax.eval_shape(
                    self.model.apply, parameters, variables, example, of_mode
                )
        except VramfitError:
            raise
        except Exception as error:
            rows = list(example.shape[1:])
            raise failure_in_code(
                f"the model fails for rows of inputs of shape {rows}", error
            ) from error
        shape = getattr(outputs, "shape", None)
        if not shape or shape[0] != _EXAMPLE_ROWS:
            what = f"an array of shape {shape}" if shape is not None else f"a {type(outputs)}"
            raise InvalidArgumentError(
                f"the model returns {what} for {_EXAMPLE_ROWS} rows of inputs",
                hint="return an array with a row of outputs for each row",
            )
        return tuple(shape[1:])

    def metric_names(self) -> list[str]:
        """Return the names of the metrics of the loss, `loss` among them.

        Raises:
            InvalidArgumentError: A loss of the user's fails, or returns something else.
        """
        import jax

        outputs = jax.ShapeDtypeStruct((_EXAMPLE_ROWS, *self.output_row), "float32")
        targets = jax.ShapeDtypeStruct((_EXAMPLE_ROWS, *self.target_row), self.target_dtype)
        try:
            return list(jax.eval_shape(self.row_metrics, outputs, targets))
        except VramfitError:
            raise
        except Exception as error:
            shapes = f"{list(self.output_row)} and {list(self.target_row)}"
            raise failure_in_code(
                f"`{self.loss.rsplit(':', 1)[-1]}` fails for rows of outputs and targets of shapes "
                f"{shapes}",
                error,
            ) from error

    def check_model(self) -> None:
        """Raise an error unless the outputs of the model are what the loss takes.

        Raises:
            InvalidArgumentError: They are not.
        """
        found = self.output_row
        values = math.prod(self.target_row)
        if self.has_own_loss:
            if "targets" in self.columns and math.prod(found) != values:
                raise InvalidArgumentError(
                    f"the model returns {list(found)} for each row, which is not what the targets "
                    f"are, {list(self.target_row)}: it cannot be converted to their units",
                    hint="set `data.normalize` to `inputs`, and rescale the targets in the loss",
                )
            self.metric_names()
            return
        if self.classes is not None:
            steps = self.row[:1] if self.predicts_next else ()
            expected: tuple[int, ...] = (*steps, self.classes)
            is_right = found == expected
        else:
            expected = (values,)
            is_right = math.prod(found) == values
        if not is_right:
            raise InvalidArgumentError(
                f"the model returns an array of shape {list(found)} for each row, but the loss "
                f"`{self.loss}` needs {list(expected)}",
                hint="make a model with the number of outputs that it is given as `outputs`",
            )

    def _example(self) -> Any:
        """Return a batch of inputs, for the shapes and types of what is computed from it."""
        import jax.numpy as jnp

        rescales = self.scale is not None or "inputs" in self.columns
        return jnp.zeros((_EXAMPLE_ROWS, *self.row), "float32" if rescales else self.input_dtype)

    def _row_outputs(self, state: State, inputs: Any) -> Any:
        """Return outputs as the loss takes them, in the units of the targets."""
        raw, _ = self._outputs(state, state["parameters"], inputs, None)
        return self._in_units(raw, state.get("normalization", {}).get("targets"))

    def _outputs(self, state: State, parameters: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Return what the model returns, ``[rows, values]`` where the targets are quantities."""
        import jax.numpy as jnp

        inputs = inputs.reshape(inputs.shape[0], *self.row)
        if self.scale is not None:
            inputs = inputs.astype(jnp.float32) * self.scale
        inputs = normalize(inputs, state.get("normalization", {}).get("inputs"))
        outputs, variables = self.model.apply(parameters, state.get("variables"), inputs, key)
        if self.classes is None and not self.has_own_loss:
            outputs = outputs.reshape(outputs.shape[0], math.prod(self.target_row))
        return outputs, variables

    def _in_units(self, outputs: Any, statistics: Mapping[str, Any] | None) -> Any:
        return denormalize(outputs, statistics, self.target_row)


def build_task(config: Mapping[str, Any], data: Mapping[str, Any]) -> Task:
    """Return the task that a configuration describes.

    Args:
        config: A whole configuration.
        data: What is known of the data: shapes, classes, steps per epoch.

    Raises:
        InvalidArgumentError: A model or loss of the user's is not what it has to be.
    """
    row = row_shape(data)
    seed = config["training"]["seed"]
    # The configuration has the path of a file that may have been moved since the run began.
    loss = config["training"]["loss"] if is_python_name(data["loss"]) else data["loss"]
    task = Task(
        model=find_model(
            config["model"],
            row,
            data["outputs"],
            seed=seed,
            vocabulary=data["vocabulary"],
            each_step=data["predicts_next"],
        ),
        row=row,
        input_dtype=data["inputs"]["batch_dtype"],
        target_row=row if data["predicts_next"] else tuple(data["targets"]["shape"][1:]),
        target_dtype=data["targets"]["batch_dtype"],
        loss=loss,
        classes=data["classes"],
        predicts_next=data["predicts_next"],
        columns=normalized_columns(config),
        scale=config["data"]["scale"],
        row_metrics=find_row_metrics(loss),
        optimizer=build_optimizer(
            config["optimizer"], total_steps(config, data), data["steps_per_epoch"]
        ),
        seed=seed,
    )
    task.check_model()
    return task


def row_shape(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of one row as the model sees it."""
    steps, *features = data["inputs"]["shape"][1:] or [1]
    return (data["sequence_length"] or steps, *features)


def total_steps(config: Mapping[str, Any], data: Mapping[str, Any]) -> int:
    """Return the number of steps of the whole run."""
    epochs, steps = config["training"]["epochs"], config["training"]["steps"]
    limits = [] if epochs is None else [epochs * data["steps_per_epoch"]]
    if steps is not None:
        stacked = config["training"]["steps_per_dispatch"]
        limits.append(-(-steps // stacked) * stacked)
    return int(min(limits))
