"""The callbacks of a run: called in order with each event, their state part of checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.events import Callback, Event
from vramfit.train.output.timers import Stopwatch
from vramfit.train.training_run import TrainingRun


class Callbacks:
    """Callbacks, by name.

    Args:
        callbacks: What the user has passed.
        timers: The timers of the run.

    Attributes:
        failed: The name of the callback that has raised an exception, or None.
    """

    def __init__(self, callbacks: Sequence[Callback], timers: Stopwatch) -> None:
        self._callbacks = _by_name(callbacks)
        self._timers = timers
        self.failed: str | None = None

    def deliver(self, event: Event, run: TrainingRun) -> None:
        """Call all of them with an event.

        Raises:
            Exception: What one of them raised, with its name.
        """
        if not self._callbacks:
            return
        with self._timers.section("callbacks"):
            for name, callback in self._callbacks.items():
                try:
                    callback(event, run)
                except BaseException as error:
                    self.failed = name
                    error.add_note(
                        f"raised by the callback `{name}` on {type(event).__name__} "
                        f"at step {run.step}"
                    )
                    raise

    def states(self) -> dict[str, Any]:
        """Return the states of those that have one and not None, as JSON has them.

        Raises:
            InvalidArgumentError: A state has values that JSON does not have.
        """
        states = {
            name: _as_json(name, callback.save_state())  # type: ignore[attr-defined]
            for name, callback in self._callbacks.items()
            if _has_state(callback)
        }
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, saved: Mapping[str, Any], step: int, note: Callable[[str], None]) -> None:
        """Restore their states from the checkpoint of a step; note those that have none there."""
        missing = []
        for name, callback in self._callbacks.items():
            if not _has_state(callback):
                missing.append(f"`{name}` has no `save_state`")
            elif name in saved:
                callback.restore_state(saved[name])  # type: ignore[attr-defined]
            elif callback.save_state() is not None:  # type: ignore[attr-defined]
                missing.append(f"`{name}` is not in the checkpoint")
        unknown = [f"`{name}` is no longer there" for name in saved if name not in self._callbacks]
        if missing:
            note(f"callbacks start anew at step {step}: {', '.join(missing)}")
        if unknown:
            note(
                f"callbacks of the checkpoint of step {step} are not restored: {', '.join(unknown)}"
            )

    def close(self) -> None:
        """Call `close` of those that have it."""
        for callback in self._callbacks.values():
            if callable(close := getattr(callback, "close", None)):
                close()


def _by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return callbacks by their names; further ones of a name are numbered from 2."""
    counts: Counter[str] = Counter()
    named: dict[str, Callback] = {}
    for callback in callbacks:
        if not callable(callback):
            raise InvalidArgumentError(
                f"`callbacks` has a {type(callback).__name__}, which cannot be called",
                hint="pass functions of an event and the run: `def callback(event, run)`",
            )
        name = _name_of(callback)
        counts[name] += 1
        named[name if counts[name] == 1 else f"{name}-{counts[name]}"] = callback
    return named


def _name_of(callback: Callback) -> str:
    for name in (getattr(callback, "name", None), getattr(callback, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(callback).__name__


def _has_state(callback: Callback) -> bool:
    return hasattr(callback, "save_state") and hasattr(callback, "restore_state")


def _as_json(name: str, state: Any) -> Any:
    try:
        # With the keys that it will have when it is restored.
        return json.loads(json.dumps(state))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the state of the callback `{name}` cannot be saved in a checkpoint",
            cause=str(error),
            hint="return strings, numbers, lists and dictionaries from `save_state`",
        ) from error
