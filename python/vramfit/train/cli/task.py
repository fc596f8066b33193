"""The training task of a built-in model: its initial state, training step and evaluation step.

All three are pure functions of arrays. The model is split once, into its graph definition and its
parameters, because splitting a module in every step can take longer than the step (3.8 times).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Batch = Mapping[str, Any]
State = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Functions that ``fit`` takes.

    Attributes:
        init: Returns the initial state.
        step: Maps a state and a batch to the next state and metrics.
        evaluate: Maps a state and a batch with a mask to metrics.
        parameter_count: Number of parameters of the model.
    """

    init: Callable[[], State]
    step: Callable[[State, Batch], tuple[State, dict[str, Any]]]
    evaluate: Callable[[State, Batch], dict[str, Any]]
    parameter_count: int


def build(config: Mapping[str, Any], data: Mapping[str, Any]) -> Task:
    """Return the task that a configuration describes.

    Args:
        config: A whole configuration.
        data: What is known of the data: shapes, classes, steps per epoch.
    """
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from vramfit.train import models
    from vramfit.train.cli import optimizer

    row = row_shape(data)
    seed = config["training"]["seed"]
    update_rule = optimizer.build(
        config["optimizer"], data["steps_per_epoch"] * config["training"]["epochs"]
    )
    has_dropout = config["model"]["dropout"] > 0
    row_metrics = _classification_metrics if data["classes"] else _regression_metrics
    scale = config["data"]["scale"]

    def build_model() -> nnx.Module:
        return models.build(
            config["model"],
            row,
            _output_count(data),
            seed=seed,
            vocabulary=data["vocabulary"],
            each_step=data["predicts_next"],
        )

    graph, shapes = nnx.split(nnx.eval_shape(build_model))

    def init() -> State:
        parameters = nnx.to_pure_dict(nnx.split(build_model())[1])
        return {
            "parameters": parameters,
            "optimizer": update_rule.init(parameters),
            "step": jnp.zeros((), jnp.int32),
        }

    def predict(parameters: Any, inputs: Any, rngs: Any = None) -> Any:
        if scale is not None:
            inputs = inputs.astype(jnp.float32) * scale
        return nnx.merge(graph, nnx.State(parameters))(inputs, rngs)

    def dropout_rngs(step: Any) -> nnx.Rngs | None:
        # A function of seed and step, so that a resumed run draws the same masks.
        key = jax.random.fold_in(jax.random.key(seed), step)
        return nnx.Rngs(dropout=key) if has_dropout else None

    def step(state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
        def loss(parameters: Any) -> Any:
            # Flax refuses to change the counter of `Rngs` from a trace that did not create them.
            outputs = predict(parameters, batch["inputs"], dropout_rngs(state["step"]))
            by_row = row_metrics(outputs, batch["targets"])
            metrics = {name: values.mean() for name, values in by_row.items()}
            return metrics["loss"], metrics

        gradients, metrics = jax.grad(loss, has_aux=True)(state["parameters"])
        updates, optimizer_state = update_rule.update(
            gradients, state["optimizer"], state["parameters"]
        )
        parameters = jax.tree.map(lambda old, update: old + update, state["parameters"], updates)
        new_state = {
            "parameters": parameters,
            "optimizer": optimizer_state,
            "step": state["step"] + 1,
        }
        return new_state, metrics

    def evaluate(state: State, batch: Batch) -> dict[str, Any]:
        outputs = predict(state["parameters"], batch["inputs"])
        mask = batch["mask"]
        by_row = row_metrics(outputs, batch["targets"])
        return {name: (values * mask).sum() / mask.sum() for name, values in by_row.items()}

    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    # Compiled as one program: operation by operation it takes longer than many a short run.
    return Task(jax.jit(init), step, evaluate, count)


def row_shape(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of one row as the model sees it."""
    steps, *features = data["inputs"]["shape"][1:] or [1]
    return (data["sequence_length"] or steps, *features)


def _output_count(data: Mapping[str, Any]) -> int:
    return int(data["classes"] or math.prod(data["targets"]["shape"][1:]))


def _regression_metrics(outputs: Any, targets: Any) -> dict[str, Any]:
    """Return the mean squared error of each row."""
    return {"loss": ((outputs - targets.reshape(outputs.shape)) ** 2).mean(axis=-1)}


def _classification_metrics(outputs: Any, labels: Any) -> dict[str, Any]:
    """Return the cross-entropy of each row, and whether the most likely class is correct.

    With a prediction at each step of a sequence, these are means over the steps.
    """
    import optax

    labels = labels.reshape(outputs.shape[:-1])
    loss = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    is_correct = (outputs.argmax(axis=-1) == labels).astype(loss.dtype)
    if loss.ndim > 1:
        loss, is_correct = loss.mean(axis=-1), is_correct.mean(axis=-1)
    return {"loss": loss, "accuracy": is_correct}
