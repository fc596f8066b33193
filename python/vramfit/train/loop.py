"""The loop: batches into steps, without waiting for the device but where that is meant.

The program is a few steps ahead of the device, and no more: it waits for the step before the last,
which leaves the device with one to run and one to begin. Further ahead nothing would be won, and
the batches of all steps under way would lie in device memory.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vramfit.train import resume
from vramfit.train.checkpoint import Keeper
from vramfit.train.compiled import Program, check_metrics, named
from vramfit.train.devices import Place
from vramfit.train.feed import Feed, real_steps
from vramfit.train.journal import Journal
from vramfit.train.metrics import Meter, Totals, first_bad
from vramfit.train.progress import Progress
from vramfit.train.result import Epoch
from vramfit.train.standing import Standing
from vramfit.train.stopping import Signals
from vramfit.train.summary import epoch_line
from vramfit.train.troubles import is_out_of_memory, out_of_memory
from vramfit.train.watch import Watch

AHEAD = 2
"""Steps that are given to the device before the program waits for the first of them."""

_END = object()


@dataclass(frozen=True)
class Rules:
    """What the loop was asked to do, beside the objects that it works with."""

    epochs: int
    stacked: int
    log_every: int
    stop_after: int | None
    stop_on_nan: bool
    config: Mapping[str, Any] | None


@dataclass
class Tools:
    """The objects that the loop works with."""

    feed: Feed
    step: Program
    evaluate: Callable[[Any], dict[str, float]] | None
    keeper: Keeper | None
    journal: Journal
    progress: Progress
    signals: Signals
    watch: Watch
    place: Place


class Loop:
    """One sitting of a run.

    Attributes:
        state: The state after the last step that was begun.
        standing: Where the run stands.
    """

    def __init__(self, rules: Rules, tools: Tools, state: Any, standing: Standing) -> None:
        self.rules = rules
        self.tools = tools
        self.state = state
        self.standing = standing
        self._meter = Meter(rules.log_every, known=not tools.place.virtual)
        self._saved: int | None = standing.step or None
        self._batch: Any = None

    def run(self, batches: Iterator[Any] | None) -> str:
        """Train to the end, and return why it ended.

        Args:
            batches: The rest of the epoch that a checkpoint was made in.
        """
        import jax

        try:
            while not self._over():
                begun = self.tools.feed.begin(self.standing.epoch) if batches is None else batches
                reason, batches = self._epoch(begun), None
                if reason is not None:
                    return reason
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory(
                error,
                step=self.standing.step + 1,
                batch=self._batch,
                stacked=self.rules.stacked,
                planned=self.tools.step.planned,
                device=self.tools.place.devices[0],
            ) from error
        reason = "finished" if self.standing.epoch >= self.rules.epochs else "early"
        self._save()
        return reason

    def _over(self) -> bool:
        standing, patience = self.standing, self.rules.stop_after
        early = patience is not None and standing.without_better >= patience
        return standing.epoch >= self.rules.epochs or early

    def _epoch(self, batches: Iterator[Any]) -> str | None:
        standing, tools = self.standing, self.tools
        tools.watch.begin_epoch()
        tools.progress.begin(standing.epoch + 1, standing.steps_of_epoch)
        reason = self._steps(batches)
        if reason is None:
            reason = self._take(self._meter.settle())
        tools.watch.end_steps()
        if reason is not None:
            if reason == "signal":
                self._save()
            return reason
        self._end_epoch()
        return None

    def _steps(self, batches: Iterator[Any]) -> str | None:
        """Do the steps of an epoch, and return a reason to stop."""
        standing, tools, meter = self.standing, self.tools, self._meter
        seconds, now = tools.watch.seconds, time.perf_counter
        stacked = self.rules.stacked
        left = tools.feed.rows_left()
        total = self._total()
        under_way: deque[Any] = deque()
        waited = 0.0
        while True:
            begun = now()
            batch = next(batches, _END)
            passed = now() - begun
            seconds["data_wait"] += passed
            waited += passed
            if batch is _END:
                return None
            steps = 1
            if stacked > 1:
                batch, steps, left = real_steps(batch, left)
            metrics = self._step(batch, steps)
            del batch
            standing.step += steps
            standing.steps_of_epoch += steps
            standing.batches += 1
            meter.add(metrics, steps, stacked=stacked > 1)
            under_way.append(next(iter(named(metrics).values())))
            if len(under_way) > AHEAD:
                begun = now()
                under_way.popleft().block_until_ready()
                seconds["device_wait"] += now() - begun
            if meter.due() and (reason := self._take(meter.turn())) is not None:
                return reason
            if tools.signals.received is not None:
                return "signal"
            if tools.keeper is not None and tools.keeper.due(standing.step):
                tools.watch.end_steps()
                if (reason := self._save()) is not None:
                    return reason
            tools.progress.step(time.monotonic(), standing.steps_of_epoch, total, waited)

    def _step(self, batch: Any, steps: int) -> Any:
        program, watch = self.tools.step, self.tools.watch
        before = program.count
        self._batch = batch
        self.state, metrics = program(self.state, batch)
        if program.count != before:
            took = program.take_seconds()
            watch.seconds["compile"] += took
            self.tools.progress.pass_over(took)
            check_metrics(metrics, stacked=0 if self.rules.stacked == 1 else steps)
        self._batch = None
        return metrics

    def _take(self, chunks: list[dict[str, Any]]) -> str | None:
        """Add numbers that were read, and return `nan` where the loss is none."""
        standing, tools = self.standing, self.tools
        for rows in chunks:
            standing.totals.add(rows)
            losses = rows["loss"]
            read = int(standing.totals.weight)
            step = standing.step - standing.steps_of_epoch + read
            bad = first_bad(losses) if self.rules.stop_on_nan else None
            if bad is not None:
                at = step - len(losses) + bad + 1
                tools.journal.write(
                    "nan", step=at, epoch=standing.epoch + 1, loss=float(losses[bad])
                )
                tools.progress.say(
                    f"the loss of step {at} is {losses[bad]:g}; training stops "
                    "(`stop_on_nan=False` goes on)"
                )
                return "nan"
            means = {name: math.fsum(part) / len(part) for name, part in rows.items()}
            tools.progress.loss = means["loss"]
            tools.journal.write("steps", step=step, epoch=standing.epoch + 1, **means)
        return None

    def _end_epoch(self) -> None:
        standing, tools = self.standing, self.tools
        validation, best = None, False
        if tools.evaluate is not None:
            with tools.watch.part("eval"):
                validation = tools.evaluate(self.state) or None
        if validation is not None:
            loss = validation["loss"]
            best = standing.best is None or loss < standing.best
            standing.best = loss if best else standing.best
            standing.without_better = 0 if best else standing.without_better + 1
        train = None if tools.place.virtual else standing.totals.means()
        number = standing.epoch + 1
        steps = standing.steps_of_epoch
        standing.epoch, standing.batches, standing.steps_of_epoch = number, 0, 0
        standing.totals = Totals()
        epoch = Epoch(number, steps, train, validation, tools.watch.epoch(), best)
        standing.epochs.append(epoch)
        if best or (tools.keeper is not None and tools.keeper.due(standing.step)):
            self._save(None if validation is None else validation["loss"])
            epoch = Epoch(number, steps, train, validation, tools.watch.epoch(), best)
            standing.epochs[-1] = epoch
        elapsed = standing.elapsed + tools.watch.total().wall
        tools.progress.say(epoch_line(epoch, self.rules.epochs, elapsed))
        tools.journal.write(
            "epoch",
            step=standing.step,
            epoch=number,
            train=train,
            validation=validation,
            best=best,
            seconds=epoch.timing.wall,
            elapsed=elapsed,
        )

    def _save(self, loss: float | None = None) -> str | None:
        """Begin a checkpoint; instead return `nan` where the loss has become none."""
        standing, tools = self.standing, self.tools
        if tools.keeper is None or self._saved == standing.step:
            return None
        with tools.watch.part("checkpoint"):
            if (reason := self._take(self._meter.settle())) is not None:
                return reason
            position = tools.feed.position(standing.batches)
            kept = Standing(**standing.__dict__)
            kept.elapsed += tools.watch.total().wall
            facts = resume.facts(kept, position, self.rules.config, self.state, loss)
            if tools.keeper.write(standing.step, self.state, facts):
                self._saved = standing.step
                tools.journal.write("checkpoint", step=standing.step, epoch=standing.epoch + 1)
        return None

    def _total(self) -> int | None:
        """Return the steps of an epoch, where they are known before its end."""
        batches = self.tools.feed.batches()
        return None if batches is None else batches * self.rules.stacked
