"""The epochs of a run: steps, evaluation, what was learnt, and reasons to end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from vramfit.train import steps
from vramfit.train.metrics import Totals
from vramfit.train.result import Epoch
from vramfit.train.sitting import Sitting
from vramfit.train.troubles import is_out_of_memory, out_of_memory


def run(sitting: Sitting, batches: Iterator[Any] | None) -> str:
    """Train to the end, and return why it ended: `finished`, `early`, `signal` or `nan`.

    Args:
        sitting: Where the run stands, and all that it needs.
        batches: The rest of the epoch that a checkpoint was made in, or None.

    Raises:
        InsufficientMemoryError: Device memory was not enough.
    """
    import jax

    try:
        while (reason := _over(sitting)) is None:
            if batches is None:
                batches = sitting.feed.begin(sitting.standing.epoch)
            reason, batches = _epoch(sitting, batches), None
            if reason is not None:
                break
        # A state behind a NaN is worth nothing; whatever else ended it, the run can go on.
        return reason if reason == "nan" else sitting.save() or reason
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(
            error,
            step=sitting.standing.step + 1,
            rows=sitting.rows,
            planned=sitting.step.planned,
            device=sitting.place.devices[0],
        ) from error
    finally:
        sitting.feed.end()


def _over(sitting: Sitting) -> str | None:
    """Return why no further epoch is begun, or None."""
    standing, rules = sitting.standing, sitting.rules
    if standing.epoch >= rules.epochs:
        return "finished"
    if rules.stop_after is not None and standing.without_better >= rules.stop_after:
        return "early"
    return None


def _epoch(sitting: Sitting, batches: Iterator[Any]) -> str | None:
    """Do an epoch, or what is left of one, and return a reason to stop in it."""
    standing = sitting.standing
    sitting.watch.begin_epoch()
    sitting.progress.begin(standing.epoch + 1, standing.steps_of_epoch)
    reason = steps.train(sitting, batches) or sitting.take(sitting.meter.settle())
    sitting.watch.end_steps()
    if reason is not None:
        return reason
    if standing.epoch + 1 < sitting.rules.epochs:
        # The evaluation and a checkpoint take longer than to fill a pool.
        sitting.feed.read_ahead(standing.epoch + 1)
    validation = None
    if sitting.evaluate is not None:
        with sitting.watch.part("eval"):
            validation = sitting.evaluate(sitting.state, _must_stop(sitting))
        if validation is None:
            return "signal"  # the evaluation is made anew by whoever goes on
    _finish(sitting, validation)
    stop, save = sitting.wishes(log_point=True, now=True)
    if save or standing.epochs[-1].best:
        reason = sitting.save()
        standing.epochs[-1] = replace(standing.epochs[-1], timing=sitting.watch.epoch())
    _tell(sitting)
    return reason or ("signal" if stop and _over(sitting) is None else None)


def _must_stop(sitting: Sitting) -> Any:
    """Return what an evaluation asks between batches; several processes finish theirs."""
    if sitting.together.several:
        return lambda: False
    return lambda: sitting.signals.received is not None


def _finish(sitting: Sitting, validation: dict[str, float] | None) -> None:
    """Count an epoch as finished."""
    standing = sitting.standing
    validation, best = validation or None, False
    if validation is not None:
        loss = validation["loss"]
        best = math.isfinite(loss) and (standing.best is None or loss < standing.best)
        standing.best = loss if best else standing.best
        standing.without_better = 0 if best else standing.without_better + 1
        if sitting.keeper is not None:
            sitting.keeper.learn(standing.step, loss)
    standing.epochs.append(
        Epoch(
            number=standing.epoch + 1,
            steps=standing.steps_of_epoch,
            train=standing.totals.means() or None,
            validation=validation,
            timing=sitting.watch.epoch(),
            best=best,
        )
    )
    standing.epoch += 1
    standing.batches = standing.steps_of_epoch = 0
    standing.totals = Totals()


def _tell(sitting: Sitting) -> None:
    """Tell of the epoch that has just been finished."""
    standing = sitting.standing
    epoch, elapsed = standing.epochs[-1], standing.elapsed + sitting.watch.total().wall
    sitting.progress.end_epoch(epoch, elapsed)
    sitting.journal.write(
        "epoch",
        step=standing.step,
        epoch=epoch.number,
        train=epoch.train,
        validation=epoch.validation,
        best=epoch.best,
        seconds=epoch.timing.wall,
        timing=asdict(epoch.timing),
        elapsed=elapsed,
    )
