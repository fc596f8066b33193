"""Where a run stands: all that a checkpoint keeps beside the state and the place in the data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Self

from vramfit.train.metrics import Totals
from vramfit.train.result import Epoch, Timing


@dataclass
class Standing:
    """The counters of a run.

    Attributes:
        step: Steps done in all.
        epoch: Finished epochs.
        batches: What the feed handed out of the epoch that runs.
        steps_of_epoch: Steps done of it.
        totals: Sums of its metrics.
        epochs: The finished epochs.
        best: The smallest validation loss so far.
        without_better: Epochs since then.
        elapsed: Seconds of earlier sittings.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    steps_of_epoch: int = 0
    totals: Totals = field(default_factory=Totals)
    epochs: list[Epoch] = field(default_factory=list)
    best: float | None = None
    without_better: int = 0
    elapsed: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        kept = {name: value for name, value in self.__dict__.items() if name != "totals"}
        kept["epochs"] = [asdict(epoch) for epoch in self.epochs]
        kept["totals"] = {"sums": dict(self.totals.sums), "weight": self.totals.weight}
        return kept

    def losses(self) -> dict[int, float]:
        """Return the validation losses of finished epochs, by the step at whose end they were."""
        ends = accumulate(epoch.steps for epoch in self.epochs)
        return {
            step: epoch.validation["loss"]
            for step, epoch in zip(ends, self.epochs, strict=True)
            if epoch.validation is not None
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` made."""
        epochs = [
            Epoch(**{**epoch, "timing": Timing(**epoch["timing"])}) for epoch in kept["epochs"]
        ]
        return cls(**{**kept, "epochs": epochs, "totals": Totals(**kept["totals"])})
