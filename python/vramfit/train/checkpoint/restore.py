"""Restoring from a checkpoint: which one is taken, and which are skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vramfit.errors import InvalidArgumentError, InvalidFileError, VramfitError, first_line
from vramfit.train.checkpoint.manager import CheckpointManager
from vramfit.train.checkpoint.metadata import SCHEMA, check_config, check_state
from vramfit.train.messages import rephrase
from vramfit.train.options import Resume
from vramfit.train.process_group import ProcessGroup, RemoteProcessError
from vramfit.train.train_progress import TrainProgress

_MAX_CAUSE_LENGTH = 200


@dataclass(frozen=True)
class RestoredRun:
    """What a run resumes with.

    Attributes:
        state: The state, verified.
        progress: How far the run had come.
        position: The position in the data, as the source of batches returned it.
        callbacks: The states of callbacks by name.
    """

    state: Any
    progress: TrainProgress
    position: dict[str, Any]
    callbacks: dict[str, Any]


def restore_requested(
    manager: CheckpointManager | None,
    state: Any,
    config: Mapping[str, Any] | None,
    *,
    resume: Resume,
    force: bool,
    note: Callable[[str], None],
    processes: ProcessGroup,
) -> RestoredRun | None:
    """Restore from the latest checkpoint if `resume` asks for it: `"auto"`, True or False.

    Raises:
        InvalidArgumentError: There is no checkpoint, and `resume` requires one.
        InvalidFileError: There are checkpoints, but none of them can be read.
    """
    if manager is None:
        if resume is True:
            raise InvalidArgumentError(
                "`resume=True` needs a directory with checkpoints",
                hint="pass `directory`, and not `checkpoints=None`",
            )
        return None
    if resume is False:
        return None
    found = find_checkpoint(manager, state, config, force=force, note=note, processes=processes)
    if found is None and resume is True:
        raise InvalidArgumentError(
            f"there is no checkpoint to resume from in `{manager.directory}`",
            hint=rephrase(
                program="with `resume='auto'` training starts from the beginning",
                command="without `--resume` training starts from the beginning",
            ),
        )
    return found


def find_checkpoint(
    manager: CheckpointManager,
    state: Any,
    config: Mapping[str, Any] | None,
    *,
    force: bool,
    note: Callable[[str], None],
    processes: ProcessGroup,
) -> RestoredRun | None:
    """Restore from the latest checkpoint that all processes can read; None without any.

    Damaged ones are reported, skipped and quarantined.

    Args:
        manager: The checkpoints.
        state: A state with the structure and shardings of the one to restore.
        config: The user's values.
        force: Accept a checkpoint with another configuration.
        note: Called with a sentence for the user.
        processes: The processes of the run.

    Raises:
        InvalidArgumentError: A readable one has another configuration or another state.
        InvalidFileError: There are some, but none can be read. Nothing is changed then.
    """
    skipped: dict[int, str] = {}
    steps = manager.all_steps()
    while (step := _latest_step(steps, processes)) is not None:
        steps = [other for other in steps if other < step]
        try:
            metadata = processes.run_on_all(partial(_read_metadata, manager, step))
        except Exception as error:  # of many kinds, from orbax and tensorstore
            skipped[step] = first_line(error)[:_MAX_CAUSE_LENGTH]
            continue
        try:
            processes.run_on_all(partial(_check_match, metadata, state, config, force, step))
        except RemoteProcessError as error:
            raise InvalidArgumentError(
                f"the checkpoint of step {step} does not match in another process, which reports "
                "why",
                hint="start all processes with the same program and configuration",
            ) from error
        try:
            arrays = processes.run_on_all(partial(manager.restore, step, state))
            restored = processes.run_on_all(partial(manager.verify, arrays, state))
        except VramfitError:
            raise
        except Exception as error:
            skipped[step] = first_line(error)[:_MAX_CAUSE_LENGTH]
            continue
        for other, cause in skipped.items():
            note(
                f"the checkpoint of step {other} is damaged and was skipped "
                f"(moved to `damaged-checkpoints`): {cause}"
            )
        manager.quarantine(list(skipped))
        progress = TrainProgress.from_json(metadata["progress"])
        manager.reset_timer(step)
        # Checkpoints of earlier versions have no callbacks.
        return RestoredRun(restored, progress, metadata["data"], metadata.get("callbacks", {}))
    if skipped:
        raise InvalidFileError(
            f"no checkpoint in `{manager.directory}` can be read: "
            + "; ".join(f"step {step}: {cause}" for step, cause in skipped.items()),
            hint="restore them from a backup, or fix their permissions; "
            + rephrase(program="`resume=False`", command="`--fresh`")
            + " starts over and keeps them in `previous-N`",
        )
    return None


def _latest_step(steps: list[int], processes: ProcessGroup) -> int | None:
    """Return the latest step that any process sees a checkpoint of."""
    # One more, because a step may be 0.
    latest = processes.max(steps[0] + 1 if steps else 0)
    return latest - 1 if latest else None


def _read_metadata(manager: CheckpointManager, step: int) -> dict[str, Any]:
    metadata = manager.read_metadata(step)
    if metadata["schema"] != SCHEMA:
        raise ValueError(f"its format version is {metadata['schema']}, expected {SCHEMA}")
    return metadata


def _check_match(
    metadata: dict[str, Any], state: Any, config: Mapping[str, Any] | None, force: bool, step: int
) -> None:
    check_state(metadata["state"], state, step)
    if not force:
        check_config(metadata["config"], config, step)
