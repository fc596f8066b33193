"""What a model reaches that ignores its inputs: what a trained one has to be better than."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.baseline import Baseline
from vramfit.train.task.loaders import find_split

if TYPE_CHECKING:
    from vramfit.data import Loader
    from vramfit.train.task.task import Task

_MAX_BYTES = 64 << 20
"""Of the targets that are read, of each set: a second of reading from a slow disk."""
_MIN_ROWS = 4096
"""Of a batch of targets, which are small."""
_MIN_PROBABILITY = 1e-6
"""Of what no training row has: its logarithm is finite."""


def compute_baseline(
    config: Mapping[str, Any], data: Mapping[str, Any], task: Task
) -> Baseline | None:
    """Return what always predicting the mean, or the frequency of each class, reaches.

    Training targets are read up to 64 MiB, rows at random beyond that, and then as many of the
    validation. None for a loss of the user's with targets that are no quantities.

    Args:
        config: A whole configuration.
        data: What is known of the data.
        task: The task of the configuration.

    Raises:
        InvalidArgumentError: Targets are not what the loss takes.
    """
    import numpy as np

    loss, classes = data["loss"], data["classes"]
    if task.has_own_loss and (
        data["targets"]["batch_dtype"] != "float32"
        or math.prod(task.output_row) != math.prod(task.target_row)
    ):
        return None
    train, validation = _open_targets(config, data)
    if classes is not None and data["targets"]["batch_dtype"] == "int32":
        counts: Any = np.zeros(classes, np.int64)
        for part in _parts(train):
            counts += np.bincount(part.ravel(), minlength=classes)[:classes]
        share = np.maximum(counts / counts.sum(), _MIN_PROBABILITY)
        logits = np.log(share)
        correct = rows = log_sum = 0.0
        for part in _parts(validation):
            labels = part.ravel()
            log_sum -= float(logits[labels].sum())
            correct += float((labels == share.argmax()).sum())
            rows += labels.size
        metrics = {"loss": log_sum / rows, "accuracy": correct / rows}
        return Baseline("the frequency of each class", metrics, int(rows))

    sums: Any = np.zeros(1)
    count = 0
    for part in _parts(train):
        _check(part, data)
        sums = sums + np.asarray(part, np.float64).sum(axis=0)
        count += len(part)
    mean: Any = sums / count
    constant, prediction = mean, "the mean of the targets"
    if loss == "cross_entropy":
        constant, prediction = np.log(np.maximum(mean, _MIN_PROBABILITY)), "their mean probability"
    elif loss == "binary_cross_entropy":
        share = np.clip(mean, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        constant, prediction = np.log(share / (1 - share)), "the frequency of each label"
    totals: dict[str, float] = {}
    rows = 0
    for part in _parts(validation):
        for name, values in _constant_metrics(task, constant, part).items():
            totals[name] = totals.get(name, 0.0) + float(np.asarray(values, np.float64).sum())
        rows += len(part)
    return Baseline(prediction, {name: total / rows for name, total in totals.items()}, rows)


def _constant_metrics(task: Task, constant: Any, targets: Any) -> Any:
    """Return the metrics of rows for which a constant is predicted."""
    import jax.numpy as jnp
    import numpy as np

    outputs = np.broadcast_to(constant.astype(np.float32), targets.shape)
    if task.has_own_loss:
        outputs = outputs.reshape(len(targets), *task.output_row)
    elif task.loss != "cross_entropy":
        outputs = outputs.reshape(len(targets), -1)
    return task.row_metrics(jnp.asarray(outputs), jnp.asarray(targets))


def _check(part: Any, data: Mapping[str, Any]) -> None:
    """Raise an error unless targets are the probabilities that a loss takes."""
    import numpy as np

    name, loss = data["targets"]["dataset"], data["loss"]
    if loss not in ("cross_entropy", "binary_cross_entropy"):
        return
    outside: Any = part[(part < 0) | (part > 1)]
    if len(outside):
        raise InvalidArgumentError(
            f"`{name}` has the value {outside[0]:g}, but `{loss}` takes probabilities",
            hint="store 0, 1 or a number between them; or use `mse` for quantities",
        )
    if loss == "cross_entropy":
        sums = part.sum(axis=-1)
        if (wrong := np.abs(sums - 1) > 1e-3).any():
            raise InvalidArgumentError(
                f"a row of `{name}` has the sum {sums[wrong][0]:g}, but `cross_entropy` takes a "
                "probability for each class, whose sum is 1",
                hint="for several labels in a row use `binary_cross_entropy`",
            )


def _parts(loader: Loader) -> Iterator[Any]:
    """Return the targets of batches, up to a number of bytes."""
    left = _MAX_BYTES
    batches = iter(loader)
    for batch in batches:
        targets = batch["targets"]
        yield targets
        left -= targets.nbytes
        if left <= 0:
            break
    loader.close()


def _open_targets(config: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Loader, Loader]:
    """Return loaders of the targets of both sets: the training set twice without validation."""
    from vramfit.data import Loader

    own = config["data"]
    validation_path = own["validation_path"]

    def open_loader(path: str, part: str) -> Loader:
        return Loader(
            path,
            {"targets": own["targets"]},
            batch_size=max(own["batch_size"], _MIN_ROWS),
            # The beginning of a shuffled epoch is a sample of all rows.
            shuffle=True,
            seed=own["seed"],
            memory=own["memory"],
            dtype={"targets": data["targets"]["batch_dtype"]},
            split=find_split(config, part),
            last_batch="partial",
        )

    train = open_loader(own["path"], "train")
    if find_split(config, "validation") is None and validation_path is None:
        return train, train
    return train, open_loader(validation_path or own["path"], "validation")
