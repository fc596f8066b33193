"""The program behind ``vramfit train``: builds what a configuration says, and fits it.

It is handed a request, checked and complete, as a file of JSON, and leaves the outcome beside it.
What people read comes from ``fit`` while it runs, and from the command line when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from vramfit import _plugin_errors
from vramfit._errors import InsufficientMemoryError, PackageMissingError, VramfitError, first_line
from vramfit._standin.quiet import QuietFinder, without_driver_complaints
from vramfit.train import board
from vramfit.train.troubles import is_out_of_memory
from vramfit.train.wording import for_the_command

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_PARENT_DIED = signal.SIGUSR1
REHEARSED = 3
"""Batches of a rehearsal: the second step is the first that begins with what a step has left."""

_RESUME: dict[str, bool | str] = {"auto": "auto", "must": True, "never": False}


def main(path: Path) -> int:
    """Do what a request says, and return the exit code."""
    # Until `fit` takes them, and behind it, signals end the process: there is nothing to save, and
    # a traceback out of the middle of an import would tell nobody anything.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.loads(path.read_text())
    if request["parent"] is not None:
        _end_with(request["parent"])
    try:
        with for_the_command(), _plugin_errors.captured():
            outcome = _run(request)
    except VramfitError as error:
        parts = {name: getattr(error, name) for name in ("id", "message", "cause", "hint")}
        ended = "out-of-memory" if isinstance(error, InsufficientMemoryError) else "refused"
        outcome = {"ended": ended, "error": parts}
    except Exception as error:
        # Beside the step: the first state, an evaluation.
        if not is_out_of_memory(error):
            raise
        told = {"id": "insufficient-memory", "message": "out of memory", "cause": first_line(error)}
        outcome = {"ended": "out-of-memory", "error": {**told, "hint": None}}
    with contextlib.suppress(FileNotFoundError):  # the command is gone, and with it the folder
        path.with_name("outcome.json").write_text(json.dumps(_finite(outcome)))
    return 0 if outcome["ended"] in ("finished", "early", "signal") else 1


def _end_with(parent: int) -> None:
    """Have the system send a signal, which saves the state and ends the run, when the parent dies.

    A `vramfit train` that is killed would otherwise leave a run behind that nobody sees.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:  # not Linux
        return
    signal.signal(_PARENT_DIED, _on_parent_death)
    prctl(_PR_SET_PDEATHSIG, int(_PARENT_DIED), 0, 0, 0)
    if os.getppid() != parent:  # it has died already
        signal.raise_signal(signal.SIGTERM)


def _on_parent_death(number: int, _frame: FrameType | None) -> None:
    """Ask the run to end, once: the signal comes for each thread of the parent that dies."""
    signal.signal(number, signal.SIG_IGN)
    signal.raise_signal(signal.SIGTERM)


def _start_without_complaints() -> None:
    """Start JAX on the CPU, while CUDA's libraries, where they are, are not heard."""
    sys.meta_path.insert(0, QuietFinder())
    import jax

    with without_driver_complaints():
        jax.devices()


def _run(request: Mapping[str, Any]) -> dict[str, Any]:
    config, data = request["config"], request["data"]
    training = config["training"]
    if training["device"] == "cpu":
        # JAX would look for a GPU first, and say at length that there is none.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    _require(training["tensorboard"])
    if request["processes"] is not None:
        # Heard in full: what goes wrong between processes may end this one at once.
        _join(request["processes"])
    elif training["device"] == "cpu":
        _start_without_complaints()
    import jax

    from vramfit.train import Checkpoints, fit
    from vramfit.train.task import build

    task = build(config, data)
    rehearsal = request["rehearsal"]
    if request["progress"] != "none" and jax.process_index() == 0:
        print(f"parameters   {task.parameters:,}".replace(",", " "), file=sys.stderr, flush=True)
    checkpoint = config["checkpoint"]
    train, validation = _rehearsed(config, data) if rehearsal else _loaders(config, data)
    result = fit(
        task.step,
        task.start(),
        train,
        eval_step=None if validation is None else task.evaluate,
        eval_data=validation,
        epochs=1 if rehearsal else training["epochs"],
        directory=None if rehearsal else training["directory"],
        checkpoints=None if rehearsal else Checkpoints(**checkpoint),
        resume=_RESUME[request["resume"]],
        config=request["fixed"],
        force_resume=request["force_resume"],
        steps_per_dispatch=training["steps_per_dispatch"],
        log_every=training["log_every"],
        stop_after=training["stop_after"],
        stop_on_nan=training["stop_on_nan"],
        device=training["device"],
        tensorboard=training["tensorboard"] and not rehearsal,
        progress=request["progress"],
    )
    return {
        "ended": result.stopped,
        "signal": result.signal,
        "step": result.steps,
        "unsaved": result.unsaved,
        "nan": None if result.nan is None else asdict(result.nan),
        "result": _plain(result),
    }


def _join(processes: Mapping[str, Any]) -> None:
    """Become one of the several processes of a run."""
    import jax

    coordinator = processes["coordinator"]
    if coordinator is None:
        jax.distributed.initialize()  # who has started the processes tells JAX, too
    else:
        jax.distributed.initialize(coordinator, processes["count"], processes["index"])


def _require(tensorboard: bool) -> None:
    """Refuse to begin without the packages of the extras."""
    import importlib.util

    missing = [
        name
        for name, module in (
            ("jax", "jax"),
            ("flax", "flax"),
            ("optax", "optax"),
            ("orbax-checkpoint", "orbax"),
        )
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise PackageMissingError(
            f"`{sys.executable}` has no {names}, and training needs it",
            hint=f"install what training needs: `{sys.executable} -m pip install 'vramfit[train]'`",
        )
    if tensorboard:
        board.require()


def _loaders(config: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what is learnt from and what validates, both streamed."""
    from vramfit.data import Loader
    from vramfit.train.devices import batch_sharding

    own = config["data"]
    stacked = config["training"]["steps_per_dispatch"]
    names = {"inputs": own["inputs"], "targets": own["targets"]}
    if own["inputs"] == own["targets"]:
        del names["targets"]
    kinds = {name: data[name]["becomes"] for name in names}
    device = config["training"]["device"]
    share, other = own["validation_share"], own["validation_path"]
    divided = other is None and share > 0

    def loader(path: str, part: str, *, super_batch: int | None = None, **options: Any) -> Loader:
        # Sequences are [rows, steps, ...], and in a stack [batches, rows, steps, ...].
        axis = 2 if super_batch else 1
        return Loader(
            path,
            names,
            batch_size=own["batch_size"],
            seed=own["seed"],
            memory=own["memory"],
            dtype=kinds,
            transform=_divide(
                own["sequence_length"],
                axis,
                has_targets="targets" in names,
                predicts_next=data["predicts_next"],
            ),
            split=(part, share) if divided else None,
            super_batch=super_batch,
            **options,
        )

    train = loader(
        own["path"],
        "train",
        shuffle=own["shuffle"],
        drop_last=True,
        super_batch=stacked if stacked > 1 else None,
        sharding=batch_sharding(device, stacked=stacked > 1),
    )
    if not divided and other is None:
        return train, None
    validation = loader(
        other or own["path"],
        "validation",
        shuffle=False,
        mask=True,
        sharding=batch_sharding(device),
    )
    return train, validation


def _divide(length: int | None, axis: int, *, has_targets: bool, predicts_next: bool) -> Any:
    """Return what makes inputs and targets of a batch of the loader; None where they are that.

    Args:
        length: How many of the last steps are kept.
        axis: Where steps are.
        has_targets: Whether targets are a dataset of their own.
        predicts_next: Whether the next step of each is its target.
    """
    if length is None and has_targets:
        return None

    def cut(part: Any, first: int | None, end: int | None = None) -> Any:
        return part[(slice(None),) * axis + (slice(first, end),)]

    def divide(batch: dict[str, Any]) -> dict[str, Any]:
        inputs = batch["inputs"]
        targets = batch["targets"] if has_targets else inputs
        if predicts_next:
            inputs, targets = cut(inputs, None, -1), cut(targets, 1)
        if length is not None:
            inputs = cut(inputs, -length)
            targets = cut(targets, -length) if predicts_next else targets
        return {**batch, "inputs": inputs, "targets": targets}

    return divide


class _Zeros:
    """Batches of the shapes and types that the loader's have, without reading a file."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([self._batch] * REHEARSED)

    def __len__(self) -> int:
        return REHEARSED


def _rehearsed(config: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Any, Any]:
    import numpy as np

    from vramfit.train.task import row_shape

    rows = config["data"]["batch_size"]
    stacked = config["training"]["steps_per_dispatch"]
    shapes = {"inputs": row_shape(data), "targets": data["targets"]["shape"][1:]}
    if data["predicts_next"]:
        shapes["targets"] = shapes["inputs"]

    def batch(*lead: int) -> dict[str, Any]:
        return {
            name: np.zeros((*lead, *shape), data[name]["becomes"]) for name, shape in shapes.items()
        }

    train = _Zeros(batch(stacked, rows) if stacked > 1 else batch(rows))
    if data["validation_rows"] == 0:
        return train, None
    return train, _Zeros({**batch(rows), "mask": np.ones(rows, bool)})


def _plain(result: Any) -> dict[str, Any]:
    """Return a result as JSON has it; the state stays where it is."""
    names = ("stopped", "steps", "device", "peak_host_bytes", "peak_device_bytes")
    return {
        **{name: getattr(result, name) for name in names},
        "peak_device_unknown": result.peak_device_unknown,
        "elapsed_s": result.elapsed,
        "resumed_at": result.resumed_at,
        "timing_s": asdict(result.timing),
        "best": None if result.best is None else asdict(result.best),
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "notes": list(result.notes),
        "unsaved": result.unsaved,
        "nan": None if result.nan is None else asdict(result.nan),
    }


def _finite(value: Any) -> Any:
    """Return a value that JSON has: what is no finite number becomes null."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
