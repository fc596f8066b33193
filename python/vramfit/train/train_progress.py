"""The numbers of a run that a checkpoint saves, beside the state and the position in the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, Self

from vramfit.train.best_by import BestBy
from vramfit.train.events import Evaluation
from vramfit.train.log_windows import LogWindows
from vramfit.train.metric_sums import MetricSums
from vramfit.train.result import Epoch, Timing


@dataclass
class TrainProgress:
    """How far a run has come.

    Attributes:
        step: Number of training steps in all.
        epoch: Number of finished epochs.
        batches_of_epoch: Batches (or stacks of them) taken from the source in the current epoch.
        steps_of_epoch: Steps of the current epoch.
        metric_sums: Sums of the metrics of the current epoch.
        log_windows: What the next log points will report.
        epochs: The finished epochs.
        evaluations: The evaluations, in order.
        evaluated_step: The step of the latest evaluation, also if its values are unknown.
        elapsed: Seconds of earlier sessions.
    """

    step: int = 0
    epoch: int = 0
    batches_of_epoch: int = 0
    steps_of_epoch: int = 0
    metric_sums: MetricSums = field(default_factory=MetricSums)
    log_windows: LogWindows = field(default_factory=LogWindows)
    epochs: list[Epoch] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    evaluated_step: int = 0
    elapsed: float = 0.0

    def add_steps(self, count: int) -> None:
        """Count the steps of one batch, or of one stack of batches."""
        self.step += count
        self.steps_of_epoch += count
        self.batches_of_epoch += 1

    @property
    def read_step(self) -> int:
        """The last step whose metrics were read."""
        return self.step - self.steps_of_epoch + int(self.metric_sums.weight)

    def add_evaluation(
        self, metrics: Mapping[str, float], best_by: BestBy, *, scheduled: bool
    ) -> Evaluation:
        """Record an evaluation of the current state, and return it."""
        cost = best_by.cost(metrics)
        best = self.best_evaluation()
        best_cost = None if best is None else best_by.cost(best.metrics)
        evaluation = Evaluation(
            step=self.step,
            epoch=self.epoch + 1,
            metrics=metrics,
            best=cost is not None and (best_cost is None or cost < best_cost),
            scheduled=scheduled,
        )
        self.evaluations.append(evaluation)
        return evaluation

    def current_evaluation(self) -> Evaluation | None:
        """Return the evaluation of the current state, or None without one."""
        last = self.evaluations[-1] if self.evaluations else None
        return last if last is not None and last.step == self.step else None

    def is_current_best(self) -> bool:
        """Return whether the current state has the best evaluation so far."""
        evaluation = self.current_evaluation()
        return evaluation is not None and evaluation.best

    def schedule_evaluation(self) -> None:
        """Count the evaluation of the current state as a scheduled one."""
        if (evaluation := self.current_evaluation()) is not None:
            self.evaluations[-1] = replace(evaluation, scheduled=True)

    def best_evaluation(self) -> Evaluation | None:
        """Return the best evaluation so far; None if none has a finite metric."""
        return next((it for it in reversed(self.evaluations) if it.best), None)

    def select_best(self, best_by: BestBy) -> None:
        """Mark anew which evaluations were the best so far, by a criterion that may be another."""
        old, self.evaluations = self.evaluations, []
        best_cost: float | None = None
        for evaluation in old:
            cost = best_by.cost(evaluation.metrics)
            best = cost is not None and (best_cost is None or cost < best_cost)
            best_cost = cost if best else best_cost
            self.evaluations.append(replace(evaluation, best=best))

    def evaluations_without_improvement(self, best_by: BestBy) -> int:
        """Return the number of scheduled evaluations since the best of them."""
        best_cost: float | None = None
        count = 0
        # Others do not count, so that a run in several sessions stops where one session would.
        for evaluation in self.evaluations:
            if not evaluation.scheduled:
                continue
            cost = best_by.cost(evaluation.metrics)
            is_better = cost is not None and (best_cost is None or cost < best_cost)
            best_cost = cost if is_better else best_cost
            count = 0 if is_better else count + 1
        return count

    def epoch_so_far(self, timing: Timing, *, complete: bool) -> Epoch:
        """Return the current epoch, with the latest evaluation in it."""
        found = [it for it in self.evaluations if it.epoch == self.epoch + 1]
        return Epoch(
            number=self.epoch + 1,
            steps=self.steps_of_epoch,
            train=self.metric_sums.means() or None,
            validation=dict(found[-1].metrics) if found else None,
            timing=timing,
            best=bool(found) and found[-1].best,
            complete=complete,
        )

    def finish_epoch(self, timing: Timing) -> Epoch:
        """Count the current epoch as finished, and return it."""
        epoch = self.epoch_so_far(timing, complete=True)
        self.epochs.append(epoch)
        self.epoch += 1
        self.batches_of_epoch = self.steps_of_epoch = 0
        self.metric_sums = MetricSums()
        return epoch

    def to_json(self) -> dict[str, Any]:
        """Return it as values that JSON has."""
        return {
            **self.__dict__,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "evaluations": [asdict(evaluation) for evaluation in self.evaluations],
            "metric_sums": self.metric_sums.to_json(),
            "log_windows": self.log_windows.to_json(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` was called on, in this or an earlier version."""
        epochs = [
            Epoch(**{**epoch, "timing": Timing(**epoch["timing"])}) for epoch in values["epochs"]
        ]
        if "log_windows" not in values:
            values = _converted(values, epochs)
        return cls(
            **{
                **values,
                "epochs": epochs,
                "evaluations": [Evaluation(**it) for it in values["evaluations"]],
                "metric_sums": MetricSums(**values["metric_sums"]),
                "log_windows": LogWindows.from_json(values["log_windows"]),
            }
        )


def _converted(values: dict[str, Any], epochs: list[Epoch]) -> dict[str, Any]:
    """Return values of the format that had evaluations as parts of epochs only."""
    ends = list(accumulate(epoch.steps for epoch in epochs))
    evaluations = [
        asdict(Evaluation(step, epoch.number, epoch.validation, epoch.best))
        for step, epoch in zip(ends, epochs, strict=True)
        if epoch.validation is not None
    ]
    removed = ("best_loss", "epochs_without_improvement")
    step = values["step"]
    return {
        **{name: value for name, value in values.items() if name not in removed},
        "evaluations": evaluations,
        "evaluated_step": evaluations[-1]["step"] if evaluations else 0,
        "log_windows": {
            "start": step,
            "sums": MetricSums().to_json(),
            "ready": [],
            "delivered": step,
        },
    }
