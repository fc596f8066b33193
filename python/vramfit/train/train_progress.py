"""The numbers of a run that a checkpoint saves, beside the state and the position in the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Self

from vramfit.train.result import Epoch, Timing

ROW_COUNT = "(rows)"
"""The metric with the number of real rows in a batch of an evaluation: its weight."""


class MetricSums:
    """Weighted sums of metrics over steps.

    They are made of single values, in 64 bits and in the order of the steps, so a mean depends
    neither on how often metrics are read, nor on where a run was interrupted.
    """

    def __init__(self, sums: Mapping[str, float] | None = None, weight: float = 0.0) -> None:
        self.sums = dict(sums or {})
        self.weight = weight

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add the values of several steps, an array for each metric."""
        weights = chunk.get(ROW_COUNT)
        count = len(next(iter(chunk.values())))
        for index in range(count):
            weight = 1.0 if weights is None else float(weights[index])
            if weight == 0:  # all of the batch is padding, and its mean means nothing
                continue
            for name, values in chunk.items():
                if name != ROW_COUNT:
                    self.sums[name] = self.sums.get(name, 0.0) + weight * float(values[index])
            self.weight += weight

    def means(self) -> dict[str, float]:
        """Return the means, nothing if nothing was added."""
        return {name: value / self.weight for name, value in self.sums.items()}


@dataclass
class TrainProgress:
    """How far a run has come.

    Attributes:
        step: Number of training steps in all.
        epoch: Number of finished epochs.
        batches_of_epoch: Batches (or stacks of them) taken from the source in the current epoch.
        steps_of_epoch: Steps of the current epoch.
        metric_sums: Sums of the metrics of the current epoch.
        epochs: The finished epochs.
        best_loss: The smallest validation loss so far.
        epochs_without_improvement: Epochs since then.
        elapsed: Seconds of earlier sessions.
    """

    step: int = 0
    epoch: int = 0
    batches_of_epoch: int = 0
    steps_of_epoch: int = 0
    metric_sums: MetricSums = field(default_factory=MetricSums)
    epochs: list[Epoch] = field(default_factory=list)
    best_loss: float | None = None
    epochs_without_improvement: int = 0
    elapsed: float = 0.0

    def add_steps(self, count: int) -> None:
        """Count the steps of one batch, or of one stack of batches."""
        self.step += count
        self.steps_of_epoch += count
        self.batches_of_epoch += 1

    def finish_epoch(self, validation: dict[str, float] | None, timing: Timing) -> Epoch:
        """Count the current epoch as finished, and return it."""
        best = False
        if validation is not None:
            loss = validation["loss"]
            best = math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss)
            self.best_loss = loss if best else self.best_loss
            self.epochs_without_improvement = 0 if best else self.epochs_without_improvement + 1
        epoch = Epoch(
            number=self.epoch + 1,
            steps=self.steps_of_epoch,
            train=self.metric_sums.means() or None,
            validation=validation,
            timing=timing,
            best=best,
        )
        self.epochs.append(epoch)
        self.epoch += 1
        self.batches_of_epoch = self.steps_of_epoch = 0
        self.metric_sums = MetricSums()
        return epoch

    def best_epoch(self) -> Epoch | None:
        """Return the epoch with the smallest validation loss, or None without an evaluation."""
        return next((epoch for epoch in reversed(self.epochs) if epoch.best), None)

    def validation_losses(self) -> dict[int, float]:
        """Return the validation losses of finished epochs, by the last step of each."""
        ends = accumulate(epoch.steps for epoch in self.epochs)
        return {
            step: epoch.validation["loss"]
            for step, epoch in zip(ends, self.epochs, strict=True)
            if epoch.validation is not None
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as values that JSON has."""
        values = {name: value for name, value in self.__dict__.items() if name != "metric_sums"}
        values["epochs"] = [asdict(epoch) for epoch in self.epochs]
        sums = self.metric_sums
        values["metric_sums"] = {"sums": dict(sums.sums), "weight": sums.weight}
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` was called on."""
        epochs = [
            Epoch(**{**epoch, "timing": Timing(**epoch["timing"])}) for epoch in values["epochs"]
        ]
        sums = MetricSums(**values["metric_sums"])
        return cls(**{**values, "epochs": epochs, "metric_sums": sums})
