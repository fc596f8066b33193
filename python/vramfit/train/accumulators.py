"""Metrics of an evaluation that are no means over batches: F1, AUC and the like.

`eval_step` returns an array of counts for each batch, an accumulator merges them, and computes the
metrics from the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from vramfit.errors import InvalidArgumentError


class Accumulator(Protocol):
    """Merges one array of each batch of an evaluation, and computes metrics of the total.

    Passed to :func:`vramfit.train.fit` as `accumulators={"name": ...}`, for the array that
    `eval_step` returns under that name. Arrays are merged on the host, in the order of the
    batches, integers in 64 bits and others as float64. Batches may have padding, or be padding
    only: `eval_step` must leave such rows out by the `mask` of the batch.
    """

    def merge(self, total: Any, value: Any) -> Any:
        """Return the total with the array of another batch; a total of None is the first one."""

    def compute(self, total: Any) -> float | Mapping[str, float]:
        """Return a metric, or several by name, which become `name_accuracy` and so on."""


class ConfusionMatrix:
    """Accuracy, and macro averages of precision, recall and F1, from :func:`confusion_counts`.

    Averages are over the classes that are among labels or predictions; what would be a division by
    zero is 0, as in scikit-learn.
    """

    def merge(self, total: Any, value: Any) -> Any:
        """Return the sum."""
        return value if total is None else total + value

    def compute(self, total: Any) -> dict[str, float]:
        """Return `accuracy`, `precision`, `recall` and `f1`; NaN without any rows."""
        import numpy as np

        _check_shape(
            total, total.ndim == 2 and total.shape[0] == total.shape[1], "confusion_counts"
        )
        hits, labels, predictions = np.diagonal(total), total.sum(axis=1), total.sum(axis=0)
        seen = (labels + predictions) > 0
        if not seen.any():
            return dict.fromkeys(("accuracy", "precision", "recall", "f1"), float("nan"))

        def mean_share(parts: Any, wholes: Any) -> float:
            return float((parts / np.maximum(wholes, 1))[seen].mean())

        return {
            "accuracy": float(hits.sum() / total.sum()),
            "precision": mean_share(hits, predictions),
            "recall": mean_share(hits, labels),
            "f1": mean_share(2 * hits, labels + predictions),
        }


class RocAuc:
    """The area under the ROC curve of two classes, from :func:`score_histogram`.

    Scores in the same bin count as equal. So the result differs from the exact one by at most half
    of the share of pairs, one row of each class, that are in the same bin.
    """

    def merge(self, total: Any, value: Any) -> Any:
        """Return the sum."""
        return value if total is None else total + value

    def compute(self, total: Any) -> float:
        """Return the area; NaN unless both classes have rows."""
        import numpy as np

        _check_shape(total, total.ndim == 2 and total.shape[0] == 2, "score_histogram")
        negatives, positives = total.astype(np.float64)
        pairs = negatives.sum() * positives.sum()
        if pairs == 0:
            return float("nan")
        below = np.cumsum(negatives) - negatives
        return float((positives * (below + negatives / 2)).sum() / pairs)


def confusion_counts(labels: Any, predictions: Any, classes: int, mask: Any = None) -> Any:
    """Return how many rows have each label and each predicted class, for `eval_step`.

    Args:
        labels: The class of each row, from 0; rows with a number that is no class are left out.
        predictions: The predicted class of each row, such as `logits.argmax(-1)`.
        classes: Number of classes.
        mask: Which rows are real, such as `batch["mask"]`; None for all.

    Returns:
        Integers `[classes, classes]`, the label first.
    """
    import jax.numpy as jnp

    labels, predictions = jnp.ravel(labels), jnp.ravel(predictions)
    counted = (labels >= 0) & (labels < classes) & (predictions >= 0) & (predictions < classes)
    if mask is not None:
        counted &= jnp.ravel(mask).astype(bool)
    counts = jnp.zeros((classes, classes), jnp.int32)
    # A negative index would count from the end.
    at = jnp.where(counted, labels, 0), jnp.where(counted, predictions, 0)
    return counts.at[at].add(counted.astype(jnp.int32))


def score_histogram(scores: Any, labels: Any, bins: int = 1000, mask: Any = None) -> Any:
    """Return how many rows of each of two classes have a score in each bin, for `eval_step`.

    Args:
        scores: The probability of the second class for each row, in [0, 1]; what is outside is
            counted in the first or last bin.
        labels: The class of each row: 0 or 1, or False or True.
        bins: Number of bins of equal width in [0, 1].
        mask: Which rows are real, such as `batch["mask"]`; None for all.

    Returns:
        Integers `[2, bins]`.
    """
    import jax.numpy as jnp

    scores, labels = jnp.ravel(scores), jnp.ravel(labels).astype(bool)
    counted = ~jnp.isnan(scores)
    if mask is not None:
        counted &= jnp.ravel(mask).astype(bool)
    position = jnp.where(counted, scores, 0.0) * bins
    bin_of_row = jnp.clip(position, 0, bins - 1).astype(jnp.int32)
    counts = jnp.zeros((2, bins), jnp.int32)
    return counts.at[labels.astype(jnp.int32), bin_of_row].add(counted.astype(jnp.int32))


def _check_shape(total: Any, is_valid: bool, helper: str) -> None:
    if not is_valid:
        raise InvalidArgumentError(
            f"the counts have the shape {list(total.shape)}, and cannot be those of `{helper}`",
            hint=f"return `vramfit.train.{helper}(...)` under this name from `eval_step`",
        )
