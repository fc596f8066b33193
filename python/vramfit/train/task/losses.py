"""Losses by name, with the metrics that belong to them: a value for each row of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.task.python_name import is_python_name, load_object

RowMetrics = Callable[[Any, Any], dict[str, Any]]
"""Maps outputs ``[rows, ...]`` and targets to metrics ``[rows]`` by name, `loss` among them."""


def find_row_metrics(loss: str) -> RowMetrics:
    """Return the metrics of a loss: the name of one of ours, or something in Python."""
    if is_python_name(loss):
        return _own_metrics(load_object(loss, "training.loss"), loss)
    return {
        "mse": _distance_metrics(lambda difference: difference**2),
        "mae": _distance_metrics(abs),
        "huber": _distance_metrics(_huber),
        "cross_entropy": _classification_metrics,
        "binary_cross_entropy": _binary_metrics,
    }[loss]


def _distance_metrics(distance: Callable[[Any], Any]) -> RowMetrics:
    """Return the mean over the values of a row of a function of their errors."""

    def metrics(outputs: Any, targets: Any) -> dict[str, Any]:
        return {"loss": distance(outputs - targets.reshape(outputs.shape)).mean(axis=-1)}

    return metrics


def _huber(difference: Any) -> Any:
    import optax

    return optax.losses.huber_loss(difference)


def _classification_metrics(outputs: Any, targets: Any) -> dict[str, Any]:
    """Return the cross-entropy of each row, and whether the most likely class is correct.

    Targets are labels, or a probability for each class. With a prediction at each step of a
    sequence, these are means over the steps.
    """
    import jax.numpy as jnp
    import optax

    if jnp.issubdtype(targets.dtype, jnp.integer):
        labels = targets.reshape(outputs.shape[:-1])
        loss = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    else:
        labels = targets.argmax(axis=-1)
        loss = optax.losses.softmax_cross_entropy(outputs, targets)
    is_correct = (outputs.argmax(axis=-1) == labels).astype(loss.dtype)
    if loss.ndim > 1:
        loss, is_correct = loss.mean(axis=-1), is_correct.mean(axis=-1)
    return {"loss": loss, "accuracy": is_correct}


def _binary_metrics(outputs: Any, targets: Any) -> dict[str, Any]:
    """Return the means over the labels of a row: cross-entropy, and correct at 0.5."""
    import optax

    targets = targets.reshape(outputs.shape)
    loss = optax.losses.sigmoid_binary_cross_entropy(outputs, targets)
    is_correct = ((outputs > 0) == (targets > 0.5)).astype(loss.dtype)
    return {"loss": loss.mean(axis=-1), "accuracy": is_correct.mean(axis=-1)}


def _own_metrics(function: Any, name: str) -> RowMetrics:
    """Return what a function of the user's computes, averaged over all but the rows."""
    if not callable(function):
        raise InvalidArgumentError(
            f"`training.loss` is `{name}`, which is a {type(function).__name__}",
            hint="name a function of outputs and targets",
        )

    def metrics(outputs: Any, targets: Any) -> dict[str, Any]:
        found = function(outputs, targets)
        by_name = found if isinstance(found, Mapping) else {"loss": found}
        if "loss" not in by_name:
            raise InvalidArgumentError(
                f"`{name}` returns metrics without a `loss`: {', '.join(by_name)}",
                hint="return one loss per row, or a dictionary with a `loss`",
            )
        return {word: _per_row(word, value, outputs, name) for word, value in by_name.items()}

    return metrics


def _per_row(word: str, value: Any, outputs: Any, name: str) -> Any:
    import jax.numpy as jnp

    value = jnp.asarray(value)
    if value.ndim == 0 or value.shape[0] != outputs.shape[0]:
        what = "one number" if value.ndim == 0 else f"an array of shape {value.shape}"
        raise InvalidArgumentError(
            f"`{name}` returns {what} as `{word}` for a batch of {outputs.shape[0]} rows",
            hint="return one value for each row, without the mean over the batch: the last batch "
            "of an evaluation is padded, and its padding is left out of the mean",
        )
    return value.reshape(value.shape[0], -1).mean(axis=-1)
