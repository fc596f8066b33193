"""`fit`: a step, a state and data become a trained state."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramfit._errors import InvalidArgumentError
from vramfit.train import board, compiled, devices, loop
from vramfit.train import resume as resuming
from vramfit.train.checkpoint import Checkpoints, Keeper
from vramfit.train.evaluate import evaluator
from vramfit.train.feed import feed
from vramfit.train.journal import Journal
from vramfit.train.metrics import Meter
from vramfit.train.progress import Progress
from vramfit.train.result import Result
from vramfit.train.run_directory import CHECKPOINTS, RunDirectory
from vramfit.train.run_lock import RunLock
from vramfit.train.sitting import Rules, Sitting
from vramfit.train.standing import Standing
from vramfit.train.stopping import Signals
from vramfit.train.together import Together
from vramfit.train.troubles import peaks
from vramfit.train.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramfit.data import Loader
    from vramfit.data.device import DeviceBatches


def fit(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    data: Loader | DeviceBatches | Iterable[Any],
    *,
    eval_step: Callable[[Any, Any], Any] | None = None,
    eval_data: Loader | DeviceBatches | Iterable[Any] | None = None,
    epochs: int = 1,
    directory: str | os.PathLike[str] | None = None,
    checkpoints: Checkpoints | None = Checkpoints(),  # noqa: B008  (it is frozen)
    resume: bool | str = "auto",
    config: Mapping[str, Any] | None = None,
    force_resume: bool = False,
    steps_per_dispatch: int = 1,
    log_every: int = 50,
    stop_after: int | None = None,
    stop_on_nan: bool = True,
    device: str | None = None,
    prefetch: int = 2,
    progress: str = "auto",
    donate: bool = True,
    tensorboard: bool = False,
) -> Result:
    """Train: run `step` over `data`, epoch by epoch, and return the state with a report.

    Args:
        step: A function of the state and a batch that returns the new state and metrics: a scalar
            loss, or a dictionary of scalars with a `loss`. A plain function is jitted; one that is
            jitted already is used as it is.
        state: Any pytree of arrays. It is donated, so the arrays that you hand over are used up;
            go on with `result.state`.
        data: A :class:`vramfit.data.Loader`, what its `to_device` returns, or any batches that can
            be gone through repeatedly. Batches are never donated.
        eval_step: A function of the state and a batch that returns metrics, evaluated behind each
            epoch. Means are weighted by real rows where batches have a `mask`.
        eval_data: Its batches.
        epochs: Passes over the data.
        directory: Where `metrics.jsonl` and `checkpoints/` go; without one nothing is written.
        checkpoints: When they are made and which stay; None for none.
        resume: `"auto"` goes on if there is a checkpoint, True demands one, False begins anew: what
            an earlier run has left in `directory` is moved to `previous-1` there.
        config: Values that are kept with each checkpoint. A run whose values differ is refused.
        force_resume: Go on all the same, and with data that has changed since.
        steps_per_dispatch: Steps that are given to the device at once, by `jax.lax.scan`; the
            loader's `super_batch` has to be the same.
        log_every: Steps between two lines in `metrics.jsonl`, and between two readings of losses.
        stop_after: Epochs without a better validation loss after which training ends.
        stop_on_nan: End training when the loss is NaN or infinite.
        device: `"cpu"`, `"gpu"` or `"cuda"` (required), `"cuda?"` (preferred), `"metal"`
            (experimental), or None for what JAX takes. All devices of the kind are used, each with
            its part of every batch.
        prefetch: Batches on their way to the device.
        progress: `"auto"` (a bar on a terminal, lines elsewhere, a summary of each epoch),
            `"plain"` (no bar), `"compact"` (one line for each epoch) or `"none"`.
        donate: Whether XLA may reuse the memory of the old state for the new one.
        tensorboard: Whether curves for TensorBoard go into `tensorboard/` of the directory; needs
            `vramfit[tensorboard]`.

    Raises:
        InvalidArgumentError: Something cannot be met, or does not belong to the checkpoint.
        VerificationFailedError: The device that is required is not there.
        InsufficientMemoryError: A step found no memory on the device.
        InvalidFileError: There are checkpoints, and none of them can be read.
        PackageMissingError: Orbax or tensorboardX is needed and not installed.
        DirectoryInUseError: Another process trains in `directory`.
        FileChangedError: The data has not the contents that the checkpoint was made with.
    """
    _check(epochs, steps_per_dispatch, log_every, prefetch, resume)
    if (eval_step is None) != (eval_data is None):
        missing = "eval_step" if eval_step is None else "eval_data"
        raise InvalidArgumentError(
            f"`eval_step` and `eval_data` go together, and `{missing}` is missing",
            hint="give both, or neither for training without an evaluation",
        )
    if stop_after is not None and eval_step is None:
        raise InvalidArgumentError(
            "`stop_after` looks at the validation loss, and there is none",
            hint="give `eval_step` and `eval_data`",
        )
    if tensorboard:
        if directory is None:
            raise InvalidArgumentError(
                "`tensorboard=True` has no place to write curves to", hint="give `directory`"
            )
        board.require()
    kept_config = None if config is None else resuming.as_json(config)
    watch = Watch()
    place = devices.choose(device)
    import jax

    first = jax.process_index() == 0
    show = Progress(progress, epochs, quiet=not first)
    notes: list[str] = []

    def tell(text: str) -> None:
        notes.append(text)
        _say_note(show, text)

    for note in place.notes:
        tell(note)
    folder = None if directory is None else Path(directory)
    if place.virtual and folder is not None:
        tell("on a virtual GPU nothing is written: its values are not known")
        folder = None
    place = devices.agree(place, state, data)
    stacked = steps_per_dispatch
    target = place.batches(stacked=stacked > 1)
    train = feed(data, depth=prefetch, stacked=stacked, sharding=target, role="data")
    state = devices.place_state(state, place)
    program = compiled.Program(
        compiled.training(step, stacked),
        donate=donate,
        results=devices.results(state, place),
        trains=True,
    )
    evaluate = None
    if eval_step is not None:
        judge = compiled.Program(compiled.evaluation(eval_step))
        target = place.batches()
        batches = feed(eval_data, depth=prefetch, stacked=1, sharding=target, role="eval_data")
        evaluate = evaluator(judge, batches, watch, known=not place.virtual)
    keeper = None
    lock = None
    together = Together(place.mesh)
    home = None if folder is None else RunDirectory(folder)
    journal = Journal(folder if first else None, tell, tensorboard=tensorboard)
    has_begun = False
    try:
        if home is not None:
            home.make()
            # Before orbax looks for checkpoints, which removes those that are being written.
            lock = RunLock(home.path)
            without_lock = together.attempt(lock.acquire if first else lambda: None)
            if without_lock is not None:
                tell(f"`{folder}` is not protected against a second run: {without_lock}")
            if resume is False:
                moved = together.attempt(home.move_previous if first else lambda: None)
                if moved is not None:
                    tell(moved)
            if checkpoints is not None:
                alone = place.devices[0].platform == "cpu" and jax.process_count() == 1
                say = partial(_say_note, show)
                keeper = Keeper(home.path / CHECKPOINTS, checkpoints, say, copies=alone)
        standing, rest = Standing(), None
        found = resuming.wanted(keeper, state, kept_config, resume, force_resume, tell, together)
        if found is not None:
            state, facts = found
            standing = Standing.from_json(facts["standing"])
            position, epoch = facts["data"], standing.epoch
            go_on = partial(train.go_on, position, epoch, force=force_resume, tell=tell)
            rest = together.attempt(go_on)
            show.say(f"resuming after step {standing.step}, in epoch {standing.epoch + 1}")
        begun_at, before = standing.step, standing.elapsed
        journal.open(begun_at)
        has_begun = True
        journal.write(
            "start",
            step=begun_at,
            device=place.name,
            config=kept_config,
            versions=resuming.versions(),
        )
        with Signals() as signals:
            sitting = Sitting(
                rules=Rules(epochs, stacked, stop_after, stop_on_nan, kept_config),
                feed=train,
                step=program,
                evaluate=evaluate,
                keeper=keeper,
                journal=journal,
                progress=show,
                signals=signals,
                watch=watch,
                place=place,
                meter=Meter(log_every, watch, known=not place.virtual),
                together=together,
                state=state,
                standing=standing,
                saved=begun_at or None,
            )
            # Otherwise this frame would keep a second state alive.
            del state, found
            stopped = loop.run(sitting, rest)
            with watch.part("checkpoint"):
                if keeper is not None:
                    keeper.close()
        unsaved = None
        if keeper is not None:
            if failures := keeper.failures():
                notes.append(failures)
            if stopped != "nan":
                unsaved = keeper.failure(standing.step)
        timing = watch.total()
        host, on_device, unknown = peaks(place)
        result = Result(
            state=sitting.state,
            epochs=standing.epochs,
            best=next((epoch for epoch in reversed(standing.epochs) if epoch.best), None),
            stopped=stopped,
            steps=standing.step,
            timing=timing,
            device=place.name,
            peak_host_bytes=host,
            peak_device_bytes=on_device,
            peak_device_unknown=unknown,
            signal=signals.received if stopped == "signal" else None,
            elapsed=before + timing.wall,
            resumed_at=begun_at,
            notes=tuple(notes),
            unsaved=unsaved,
            nan=sitting.nan,
        )
        journal.write(
            "end",
            step=standing.step,
            stopped=stopped,
            elapsed=result.elapsed,
            timing=dataclasses.asdict(timing),
            peak_host_bytes=host,
            peak_device_bytes=on_device,
        )
        show.report(str(result))
        return result
    finally:
        # A checkpoint under way is waited for, or it would be lost; but not by someone who has
        # pressed Ctrl-C twice.
        if keeper is not None and not isinstance(sys.exception(), KeyboardInterrupt):
            keeper.close()
        journal.close()
        if home is not None and lock is not None and lock.is_held and not has_begun:
            home.discard()
        if lock is not None:
            lock.release()
        show.end()


def _say_note(show: Progress, text: str) -> None:
    show.say(f"note: {text}")


def _check(epochs: int, stacked: int, log_every: int, prefetch: int, resume: bool | str) -> None:
    for name, number in (
        ("epochs", epochs),
        ("steps_per_dispatch", stacked),
        ("log_every", log_every),
        ("prefetch", prefetch),
    ):
        if number < 1:
            raise InvalidArgumentError(
                f"`{name}` is {number}, and has to be 1 at least", hint=f"pass `{name}=1` or more"
            )
    if resume not in ("auto", True, False):
        raise InvalidArgumentError(
            f"`resume={resume!r}` is not known", hint="say `'auto'`, True or False"
        )
