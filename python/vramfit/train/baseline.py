"""The metrics of a constant prediction, which a model has to be better than."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """What a model reaches that ignores its inputs.

    Attributes:
        prediction: What is always predicted, such as `the mean of the targets`.
        metrics: Its metrics, by the names that they have in the evaluation; without an evaluation
            in the step.
        rows: Number of rows that they are means of.
    """

    prediction: str
    metrics: Mapping[str, float]
    rows: int
