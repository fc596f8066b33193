"""When a run evaluates its state, and what it concludes: which is the best, when to stop early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.best_by import BestBy
from vramfit.train.checkpoint.manager import CheckpointManager
from vramfit.train.data.batch_source import open_source, share_loader
from vramfit.train.devices import Placement, place_state
from vramfit.train.events import Evaluation
from vramfit.train.loop.evaluator import Evaluator
from vramfit.train.options import FitOptions
from vramfit.train.output.timers import Stopwatch
from vramfit.train.train_progress import TrainProgress


class Evaluations:
    """The evaluations of a run; none of them is due without an evaluator.

    Args:
        evaluator: Evaluates states, or None.
        options: The options of the run.
        timers: The timers of the run.
        data: The training data, which cannot be read by an evaluation within an epoch.
        eval_data: The data of the evaluations of the run.
    """

    def __init__(
        self,
        evaluator: Evaluator | None,
        options: FitOptions,
        timers: Stopwatch,
        *,
        data: Any,
        eval_data: Any,
    ) -> None:
        self.evaluator = evaluator
        self._options = options
        self._timers = timers
        self._data = data
        self._eval_data = eval_data
        self._best_by = BestBy.parse(options.best_by)

    def is_due(self, progress: TrainProgress) -> bool:
        """Return whether one is due at the current step, by the number of steps."""
        every = self._options.eval_every
        if every is None or self.evaluator is None:
            return False
        # Several steps in one dispatch may pass a multiple.
        return progress.step // every > progress.evaluated_step // every

    def is_due_after_epoch(self) -> bool:
        """Return whether one is due after each epoch."""
        return self.evaluator is not None and self._options.eval_every is None

    def is_due_at_end(self, progress: TrainProgress) -> bool:
        """Return whether one is due if the run ends here: the state was not evaluated yet."""
        return self.evaluator is not None and progress.evaluated_step < progress.step

    def is_patience_exhausted(self, progress: TrainProgress) -> bool:
        """Return whether as many evaluations as `stop_after` were without improvement."""
        patience = self._options.stop_after
        if patience is None:
            return False
        return progress.evaluations_without_improvement(self._best_by) >= patience

    def restore(self, progress: TrainProgress, checkpoints: CheckpointManager | None) -> None:
        """Apply `best_by` to the evaluations of earlier sessions, where it may have been another.

        Args:
            progress: How far the run had come.
            checkpoints: The checkpoints, which are kept or deleted by their evaluations.
        """
        progress.select_best(self._best_by)
        if checkpoints is not None:
            for evaluation in progress.evaluations:
                cost = self._best_by.cost(evaluation.metrics)
                checkpoints.record_evaluation(evaluation.step, cost)

    def run(
        self, state: Any, progress: TrainProgress, should_stop: Callable[[], bool]
    ) -> dict[str, float] | None:
        """Return the metrics of the current state, nothing where values are unknown.

        None if `should_stop`, which is called between batches, has returned True.
        """
        assert self.evaluator is not None
        evaluation = progress.current_evaluation()
        if evaluation is not None:  # of the end of an earlier session
            return dict(evaluation.metrics)
        with self._timers.section("eval"):
            return self.evaluator.run(state, should_stop)

    def record(
        self,
        metrics: Mapping[str, float],
        progress: TrainProgress,
        checkpoints: CheckpointManager | None,
        *,
        scheduled: bool,
    ) -> Evaluation | None:
        """Record the metrics of the current state; return the evaluation if there is a new one."""
        progress.evaluated_step = progress.step
        if not metrics:
            return None
        if progress.current_evaluation() is not None:
            if scheduled:
                progress.schedule_evaluation()
            return None
        self._best_by.check(metrics)
        evaluation = progress.add_evaluation(metrics, self._best_by, scheduled=scheduled)
        if checkpoints is not None:
            checkpoints.record_evaluation(progress.step, self._best_by.cost(metrics))
        return evaluation

    def evaluate_once(self, state: Any, data: Any, placement: Placement) -> dict[str, float]:
        """Evaluate a state for a callback, on its own data or that of the run.

        Raises:
            InvalidArgumentError: There is no evaluation, or the data is the training data.
        """
        if self.evaluator is None:
            raise InvalidArgumentError(
                "a callback has requested an evaluation, and there is none",
                hint="pass `eval_step` and `eval_data` to `fit`",
            )
        if share_loader(self._data, self._eval_data if data is None else data):
            raise shared_loader_error()
        source = None
        if data is not None:
            source = open_source(
                data,
                depth=self._options.prefetch,
                stacked=1,
                target=placement.batch_target(),
                role="data",
            )
        with self._timers.section("eval"):
            return self.evaluator.run(place_state(state, placement), lambda: False, source) or {}


def shared_loader_error() -> InvalidArgumentError:
    """Return the error for an evaluation within an epoch on the loader of the training data."""
    return InvalidArgumentError(
        "an evaluation within an epoch cannot read the loader that training reads, which has only "
        "one position",
        hint="create a second `Loader` for the evaluation",
    )
