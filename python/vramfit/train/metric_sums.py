"""Sums of metrics over steps, from which means are made that do not depend on interruptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROW_COUNT = "(rows)"
"""The metric with the number of real rows in a batch of an evaluation: its weight."""

LEARNING_RATE = "learning_rate"
"""The metric of which the last value is taken instead of the mean, which no step has had."""


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
                value = float(values[index])
                if name == LEARNING_RATE:
                    self.sums[name] = value
                elif name != ROW_COUNT:
                    self.sums[name] = self.sums.get(name, 0.0) + weight * value
            self.weight += weight

    def means(self) -> dict[str, float]:
        """Return the means, nothing if nothing was added."""
        return {
            name: value if name == LEARNING_RATE else value / self.weight
            for name, value in self.sums.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the arguments that make an equal object, as JSON has them."""
        return {"sums": dict(self.sums), "weight": self.weight}
