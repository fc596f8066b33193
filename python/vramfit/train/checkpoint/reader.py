"""Checkpoints of a run that may still go on: read only, by their step."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

from vramfit.errors import InvalidArgumentError, InvalidFileError, VramfitError, first_line
from vramfit.train.checkpoint.arrays import named_leaves, without_empty
from vramfit.train.checkpoint.manager import (
    read_checkpoint_metadata,
    restore_targets,
    verified_state,
)
from vramfit.train.checkpoint.metadata import check_state
from vramfit.train.checkpoint.tracebacks import TRACEBACK_FILTER
from vramfit.train.events import Evaluation
from vramfit.train.train_progress import TrainProgress

_MAX_CAUSE_LENGTH = 200
_ATTEMPTS = 5

Which = Literal["best", "last"] | int


class CheckpointReader:
    """The checkpoints of a run.

    Args:
        directory: Where they are: `checkpoints` in the directory of the run.

    Raises:
        InvalidArgumentError: There are none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        found = self._directory.iterdir() if self._directory.is_dir() else ()
        # Orbax gives a checkpoint its name when it is complete.
        self.steps = sorted(int(path.name) for path in found if path.name.isdecimal())
        if not self.steps:
            raise InvalidArgumentError(
                f"there are no checkpoints in `{directory}`",
                hint="name the directory of a run: `training.directory` of `vramfit train`, or "
                "`directory` of `fit`",
            )

    def find_step(self, which: Which) -> int:
        """Return the step of a checkpoint: the best one that is kept, the last one, or this step.

        Without an evaluation the best is the last one.

        Raises:
            InvalidArgumentError: There is no checkpoint of that step.
        """
        if which == "last":
            return self.steps[-1]
        if which == "best":
            kept = [it.step for it in self._evaluations() if it.best and it.step in self.steps]
            return kept[-1] if kept else self.steps[-1]
        if which not in self.steps:
            steps = ", ".join(map(str, self.steps))
            raise InvalidArgumentError(
                f"there is no checkpoint of step {which!r} in `{self._directory}`",
                hint=f"there are those of the steps {steps}; `keep_best` of the checkpoints is how "
                "many of the best are kept",
            )
        return which

    def read_evaluation(self, step: int) -> dict[str, float] | None:
        """Return the metrics of the evaluation of a step; None if there was none."""
        found = [it for it in self._evaluations() if it.step == step]
        return dict(found[-1].metrics) if found else None

    def _evaluations(self) -> list[Evaluation]:
        """Return the evaluations up to the last checkpoint that can be read."""
        for step in reversed(self.steps):
            with contextlib.suppress(InvalidFileError):
                progress = self.read_metadata(step)["progress"]
                return TrainProgress.from_json(progress).evaluations
        return []

    def read_metadata(self, step: int) -> dict[str, Any]:
        """Return the metadata of a checkpoint.

        Raises:
            InvalidFileError: It cannot be read.
        """
        try:
            return read_checkpoint_metadata(self._directory, step)
        except Exception as error:  # of the file system, or of a damaged file
            raise self._unreadable(step, error) from error

    def restore(self, step: int, like: Any) -> Any:
        """Return the state of a checkpoint, its checksums verified.

        Args:
            step: The step of the checkpoint.
            like: A state of the same structure: arrays, or `jax.ShapeDtypeStruct` with shardings.

        Raises:
            InvalidArgumentError: The checkpoint has a state of another structure.
            InvalidFileError: It cannot be read, or is damaged.
        """
        import orbax.checkpoint as ocp

        check_state(self.read_metadata(step)["state"], like, step)
        leaves = without_empty(named_leaves(like)[0])
        targets = restore_targets(leaves, _replicated_sharding(leaves))
        TRACEBACK_FILTER.install()
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                path = self._directory.absolute() / str(step) / "state"
                arrays = checkpointer.restore(path, targets)
            return verified_state(arrays, like)
        except VramfitError:
            raise
        except Exception as error:  # of many kinds, from orbax and tensorstore
            raise self._unreadable(step, error) from error
        finally:
            TRACEBACK_FILTER.remove()

    def _unreadable(self, step: int, error: Exception) -> InvalidFileError:
        others = [str(other) for other in self.steps if other != step]
        return InvalidFileError(
            f"the checkpoint of step {step} in `{self._directory}` cannot be read",
            cause=first_line(error)[:_MAX_CAUSE_LENGTH],
            hint=f"there are others: {', '.join(others)}" if others else None,
        )


def restore_chosen(
    directory: Path, which: Which, like: Any
) -> tuple[int, dict[str, float] | None, Any]:
    """Return the step of a checkpoint, the metrics of its evaluation, and its state.

    A run that goes on deletes checkpoints: if the chosen one is gone, it is chosen again.

    Args:
        directory: Where the checkpoints are.
        which: Which of them.
        like: As for :meth:`CheckpointReader.restore`.
    """
    attempt = 0
    while True:
        reader = CheckpointReader(directory)
        step = reader.find_step(which)
        try:
            return step, reader.read_evaluation(step), reader.restore(step, like)
        except InvalidFileError:
            attempt += 1
            if (directory / str(step)).is_dir() or attempt == _ATTEMPTS:
                raise


def with_shardings(like: Any) -> Any:
    """Return shapes and types with shardings: where there are none, JAX's default device."""
    import jax
    import jax.numpy as jnp

    default = jax.sharding.SingleDeviceSharding(next(iter(jnp.zeros(()).devices())))

    def described(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None) or default
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf), sharding=sharding)

    return jax.tree.map(described, like)


def _replicated_sharding(leaves: dict[str, Any]) -> Any:
    """Return the sharding of an array that all devices of a state have."""
    import jax

    if not leaves:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    sharding = next(iter(leaves.values())).sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return sharding
