"""One sitting of a run: what it works with, what it was asked, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vramfit.train import resume
from vramfit.train.checkpoint import Keeper
from vramfit.train.compiled import Program
from vramfit.train.devices import Place
from vramfit.train.feed import Feed
from vramfit.train.journal import Journal
from vramfit.train.metrics import Meter, first_bad
from vramfit.train.nan_diagnosis import NanCause, diagnose
from vramfit.train.progress import Progress
from vramfit.train.standing import Standing
from vramfit.train.stopping import Signals
from vramfit.train.together import Together
from vramfit.train.watch import Watch

Evaluate = Callable[[Any, Callable[[], bool]], "dict[str, float] | None"]


@dataclass(frozen=True)
class Rules:
    """What was asked for, beside the objects of a sitting."""

    epochs: int
    stacked: int
    stop_after: int | None
    stop_on_nan: bool
    config: Mapping[str, Any] | None


@dataclass
class Sitting:
    """The objects of a sitting, and what several parts of the loop do with them.

    Attributes:
        state: The state after the last step that was begun.
        standing: Where the run stands.
        saved: The step of the latest checkpoint.
        rows: Rows of a batch, once one was seen.
        nan: Why the loss is not finite, where that ended the training.
    """

    rules: Rules
    feed: Feed
    step: Program
    evaluate: Evaluate | None
    keeper: Keeper | None
    journal: Journal
    progress: Progress
    signals: Signals
    watch: Watch
    place: Place
    meter: Meter
    together: Together
    state: Any
    standing: Standing
    saved: int | None = None
    rows: int | None = None
    nan: NanCause | None = None

    def wishes(self, *, log_point: bool, now: bool = False) -> tuple[bool, bool]:
        """Return whether to stop, and whether to make a checkpoint."""
        if self.together.several and not log_point:
            return False, False
        stop = self.signals.received is not None
        save = self.keeper is not None and self.keeper.due(self.standing.step)
        return self.together.agree(stop, save, now=now)

    def take(self, chunks: list[dict[str, Any]]) -> str | None:
        """Add metrics that were read, and return `nan` where the loss is no number."""
        standing = self.standing
        for rows in chunks:
            standing.totals.add(rows)
            losses = rows["loss"]
            step = standing.step - standing.steps_of_epoch + int(standing.totals.weight)
            bad = first_bad(losses) if self.rules.stop_on_nan else None
            if bad is not None:
                self._report_nan(step - len(losses) + bad + 1, float(losses[bad]))
                return "nan"
            means = {name: math.fsum(part) / len(part) for name, part in rows.items()}
            self.progress.loss = means["loss"]
            self.journal.write("steps", step=step, epoch=standing.epoch + 1, **means)
        return None

    def _report_nan(self, step: int, loss: float) -> None:
        standing, stacked = self.standing, self.rules.stacked
        of_epoch = step - (standing.step - standing.steps_of_epoch)
        batch, within = divmod(of_epoch - 1, stacked)
        self.nan = diagnose(self.feed, standing.epoch, batch, within if stacked > 1 else None)
        self.journal.write(
            "nan",
            step=step,
            epoch=standing.epoch + 1,
            step_of_epoch=of_epoch,
            loss=loss,
            cause=self.nan.text,
        )
        checkpoints = [] if self.keeper is None else self.keeper.steps()
        kept = (
            f"the newest checkpoint is of step {checkpoints[0]}, before it"
            if checkpoints
            else "there is no checkpoint"
        )
        self.progress.say(
            f"the loss of step {step} (step {of_epoch} of epoch {standing.epoch + 1}) is {loss:g}, "
            f"and training stops; {self.nan.text}; {kept}"
        )

    def save(self) -> str | None:
        """Begin a checkpoint; instead return `nan` where the loss has become none."""
        standing = self.standing
        if self.keeper is None:
            return None
        if self.saved == standing.step and self.keeper.failure(standing.step) is None:
            return None
        with self.watch.part("checkpoint"):
            # Reads all losses so far: a state behind a NaN is not kept.
            if (reason := self.take(self.meter.settle())) is not None:
                return reason
            position = self.feed.position(standing.batches)
            kept = replace(standing, elapsed=standing.elapsed + self.watch.total().wall)
            facts = resume.facts(kept, position, self.rules.config, self.state)
            if self.keeper.write(standing.step, self.state, facts):
                self.saved = standing.step
                self.journal.write("checkpoint", step=standing.step, epoch=standing.epoch + 1)
        return None
