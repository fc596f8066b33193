"""What a built-in model learns: its state, the step that changes it, the one that evaluates it.

All three are plain functions of arrays. The model is split once, into what it is and its
parameters, because splitting a module in every step costs more than many a step (3.8 times).
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
        start: Makes the first state.
        step: A state and a batch to the next state and metrics.
        evaluate: A state and a batch with a mask to metrics.
        parameters: How many numbers the model has.
    """

    start: Callable[[], State]
    step: Callable[[State, Batch], tuple[State, dict[str, Any]]]
    evaluate: Callable[[State, Batch], dict[str, Any]]
    parameters: int


def build(config: Mapping[str, Any], data: Mapping[str, Any]) -> Task:
    """Return what the configuration describes.

    Args:
        config: A whole configuration.
        data: What is known of the data: shapes, classes, steps of an epoch.
    """
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from vramfit.train import models, optimizer

    row = row_shape(data)
    seed = config["training"]["seed"]
    rule = optimizer.build(config["optimizer"], data["steps"] * config["training"]["epochs"])
    has_dropout = config["model"]["dropout"] > 0
    metrics = _classify if data["classes"] else _regress
    scale = config["data"]["scale"]

    def make() -> nnx.Module:
        return models.build(
            config["model"],
            row,
            _outputs(data),
            seed=seed,
            vocabulary=data["vocabulary"],
            each_step=data["predicts_next"],
        )

    graph, shapes = nnx.split(nnx.eval_shape(make))

    def start() -> State:
        parameters = nnx.to_pure_dict(nnx.split(make())[1])
        return {
            "parameters": parameters,
            "optimizer": rule.init(parameters),
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
            # Flax refuses to change the counter of `Rngs` from a trace that did not make them.
            outputs = predict(parameters, batch["inputs"], dropout_rngs(state["step"]))
            found = {name: rows.mean() for name, rows in metrics(outputs, batch["targets"]).items()}
            return found["loss"], found

        gradients, found = jax.grad(loss, has_aux=True)(state["parameters"])
        changes, rest = rule.update(gradients, state["optimizer"], state["parameters"])
        parameters = jax.tree.map(lambda old, change: old + change, state["parameters"], changes)
        return {"parameters": parameters, "optimizer": rest, "step": state["step"] + 1}, found

    def evaluate(state: State, batch: Batch) -> dict[str, Any]:
        outputs = predict(state["parameters"], batch["inputs"])
        real = batch["mask"]
        found = metrics(outputs, batch["targets"])
        return {name: (rows * real).sum() / real.sum() for name, rows in found.items()}

    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    # Compiled as one program: piece by piece it takes longer than many a short run.
    return Task(jax.jit(start), step, evaluate, numbers)


def row_shape(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of one row as the model sees it."""
    steps, *features = data["inputs"]["shape"][1:] or [1]
    return (data["sequence_length"] or steps, *features)


def _outputs(data: Mapping[str, Any]) -> int:
    return int(data["classes"] or math.prod(data["targets"]["shape"][1:]))


def _regress(outputs: Any, targets: Any) -> dict[str, Any]:
    """Return the mean squared error of each row."""
    wanted = targets.reshape(outputs.shape)
    return {"loss": ((outputs - wanted) ** 2).mean(axis=-1)}


def _classify(outputs: Any, labels: Any) -> dict[str, Any]:
    """Return the cross-entropy of each row, and whether the likeliest class is the right one.

    Where something is predicted at each step, it is the mean over the steps.
    """
    import optax

    labels = labels.reshape(outputs.shape[:-1])
    loss = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    is_right = (outputs.argmax(axis=-1) == labels).astype(loss.dtype)
    if loss.ndim > 1:
        loss, is_right = loss.mean(axis=-1), is_right.mean(axis=-1)
    return {"loss": loss, "accuracy": is_right}
