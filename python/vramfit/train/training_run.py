"""What a callback can see of a run, and do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramfit.data import Loader
    from vramfit.data.device import DeviceBatches
    from vramfit.train.loop.train_loop import TrainLoop


class TrainingRun:
    """The run that a callback is called from; only valid during the call.

    With several processes, callbacks run in all of them. Changes of the state and calls of
    :meth:`evaluate` must be the same in all; requests of one are enough for :meth:`stop` and
    :meth:`save_checkpoint`, and are exchanged at log points, like signals.
    """

    def __init__(self, _loop: TrainLoop) -> None:
        self._loop = _loop

    @property
    def state(self) -> Any:
        """The state after the latest step, on the devices.

        Its arrays are donated to the next step, so copy what is to be kept:
        `jax.tree.map(jnp.copy, run.state)`. Assigning another state, of the same structure, shapes
        and types, makes the next step start from it.
        """
        return self._loop.state

    @state.setter
    def state(self, new: Any) -> None:
        from vramfit.train.loop.state_changes import replaced_state

        self._loop.state = replaced_state(self._loop.state, new)

    @property
    def step(self) -> int:
        """Number of steps so far, those before a resume included."""
        return self._loop.progress.step

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 1."""
        return self._loop.epoch_number

    @property
    def learning_rate(self) -> float:
        """The learning rate in the state of an optimizer made by `optax.inject_hyperparams`.

        Reading it waits for the device. Assigning a number changes it for the next step, without
        compiling anything again. `InvalidArgumentError` if the state has none, or several, or one
        that a schedule sets.
        """
        from vramfit.train.loop.state_changes import get_learning_rate

        return get_learning_rate(self._loop.state)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        from vramfit.train.loop.state_changes import with_learning_rate

        self._loop.state = with_learning_rate(self._loop.state, value)

    def stop(self, why: str) -> None:
        """End the run after the current step, with a checkpoint from which it can be resumed.

        Args:
            why: The reason, for the report.
        """
        if self._loop.stop_message is None:
            self._loop.stop_message = why

    def save_checkpoint(self) -> None:
        """Save a checkpoint once the callbacks have returned.

        Raises:
            InvalidArgumentError: The run has no checkpoints.
        """
        if self._loop.checkpoints is None:
            raise InvalidArgumentError(
                "the run has no checkpoints",
                hint="pass `directory` to `fit`, and not `checkpoints=None`",
            )
        self._loop.is_save_requested = True

    def evaluate(
        self, state: Any = None, data: Loader | DeviceBatches | Iterable[Any] | None = None
    ) -> dict[str, float]:
        """Evaluate a state by `eval_step`, and return the metrics; nothing on a virtual GPU.

        It has no effect on which evaluation is the best, nor on `stop_after`, and is not an event.

        Args:
            state: The state, such as one with averaged parameters; None for the current one.
            data: Batches; None for `eval_data`. Not the loader that the run reads from.

        Raises:
            InvalidArgumentError: There is no `eval_step`, or `data` is the training data.
        """
        return self._loop.evaluate_for_callback(state, data)

    def note(self, text: str) -> None:
        """Print a sentence, and repeat it in the final report."""
        self._loop.telemetry.note(text)
