"""Which of two evaluations is better: the option `best_by`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from vramfit.errors import InvalidArgumentError
from vramfit.train.messages import rephrase


@dataclass(frozen=True)
class BestBy:
    """A metric, and whether small or large values of it are good.

    Attributes:
        metric: Its name.
        maximize: Whether large values are good.
    """

    metric: str = "loss"
    maximize: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `"min loss"` or `"max accuracy"` means.

        Raises:
            InvalidArgumentError: It is not of this form.
        """
        direction, _, metric = text.partition(" ") if isinstance(text, str) else ("", "", "")
        if direction not in ("min", "max") or not metric.strip():
            raise InvalidArgumentError(
                f"unknown value `best_by={text!r}`",
                hint="use `'min NAME'` or `'max NAME'` with a metric of the evaluation, such as "
                "`'max accuracy'`",
            )
        return cls(metric.strip(), direction == "max")

    def cost(self, metrics: Mapping[str, float]) -> float | None:
        """Return the metric with a sign that makes smaller better; None if it is not finite."""
        value = metrics.get(self.metric, math.nan)
        if not math.isfinite(value):
            return None
        return -value if self.maximize else value

    def check(self, names: Iterable[str]) -> None:
        """Raise an error unless an evaluation has the metric.

        Raises:
            InvalidArgumentError: It has only the others.
        """
        names = list(names)
        if self.metric not in names:
            direction = "max" if self.maximize else "min"
            found = ", ".join(f"`{name}`" for name in names)
            raise InvalidArgumentError(
                f"`best_by='{direction} {self.metric}'` needs the metric `{self.metric}`, but the "
                f"evaluation has only {found}",
                hint=rephrase(
                    program="return it from `eval_step`, or choose one of those",
                    command="choose one of those, or return it from a loss of your own",
                ),
            )
