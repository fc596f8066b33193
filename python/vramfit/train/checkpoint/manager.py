"""Saving and restoring checkpoints: written by orbax while training continues, all or nothing.

Training waits only for a copy of the state, because the next step overwrites its memory. On a CPU
the copy is all: a thread computes its checksums, and hands it to orbax. From a GPU it is orbax that
copies, and the GPU that computes checksums, both before the next step; likewise with several
processes, whose threads could not keep to one order of their collective operations.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vramfit.errors import PackageMissingError, first_line
from vramfit.train.checkpoint.arrays import (
    copy_arrays,
    named_leaves,
    shape_struct,
    without_empty,
)
from vramfit.train.checkpoint.background import BackgroundThread
from vramfit.train.checkpoint.checksums import checksums
from vramfit.train.checkpoint.tracebacks import TRACEBACK_FILTER
from vramfit.train.options import Checkpoints

_CHECKSUMS = "(checksums)"
_METADATA_ITEM = "run_metadata"
_MAX_CAUSE_LENGTH = 160
# What prevents that a file is written, and is not a mistake of a program.
SYSTEM_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOENT,
    errno.ESTALE,
)
_SYSTEM_CAUSES = [os.strerror(number) for number in SYSTEM_ERRORS]


class CheckpointManager:
    """The checkpoints of one directory.

    Args:
        directory: Where they are; created if missing.
        policy: Which are kept.
        note: Called with a sentence for the user, at once.
        in_background: Whether a copy of the state is made, and saved by a thread.
    """

    def __init__(
        self,
        directory: Path,
        policy: Checkpoints,
        note: Callable[[str], None],
        *,
        in_background: bool = False,
    ) -> None:
        ocp = _orbax()
        self._background = BackgroundThread("vramfit-checkpoint") if in_background else None
        self._policy = policy
        self._note = note
        self.directory = directory
        self._directory = directory.absolute()
        self._quarantine_directory = self._directory.with_name("damaged-checkpoints")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(cleanup_tmp_directories=True),
        )
        self._costs: dict[int, float] = {}
        self._latest_step: int | None = None
        self._errors: dict[int, str] = {}
        self._timer_start = time.monotonic()
        self._timer_step = 0
        self._is_closed = False

    def all_steps(self) -> list[int]:
        """Return the steps that have checkpoints, the latest first."""
        return sorted(self._manager.all_steps(), reverse=True)

    def restore(self, step: int, state: Any) -> dict[str, Any]:
        """Return the arrays of a checkpoint, with the shapes and shardings of those of `state`.

        Raises:
            Exception: Of any kind, when they cannot be read.
        """
        ocp = _orbax()
        leaves = without_empty(named_leaves(state)[0])
        targets = restore_targets(leaves, _checksums(leaves).sharding)
        found = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(targets))
        )
        arrays: dict[str, Any] = found["state"]
        return arrays

    def verify(self, arrays: dict[str, Any], state: Any) -> Any:
        """Return restored arrays as a state with the structure of `state`.

        Raises:
            ValueError: Their checksums are not those that were saved.
        """
        return verified_state(arrays, state)

    def reset_timer(self, step: int) -> None:
        """Count steps and seconds until the next checkpoint from here."""
        self._timer_start, self._timer_step = time.monotonic(), step

    def read_metadata(self, step: int) -> dict[str, Any]:
        """Return the metadata of a checkpoint, once this process can read all of its files.

        None of it waits for other processes, as all of :meth:`restore` does: what only one of them
        cannot read would leave the others waiting there.
        """
        for file in (self._directory / str(step)).rglob("*"):
            if file.is_file():
                file.open("rb").close()
        return read_checkpoint_metadata(self._directory, step)

    def record_evaluation(self, step: int, cost: float | None) -> None:
        """Record how bad the state of a step is, if that is known: it decides what is kept."""
        if cost is not None:
            self._costs[step] = cost

    def should_save(self, step: int) -> bool:
        """Return whether the next checkpoint is due."""
        policy = self._policy
        if policy.every_steps is not None and step - self._timer_step >= policy.every_steps:
            return True
        if policy.every_seconds is None:
            return False
        # A slower disk makes checkpoints rarer, instead of slowing training down.
        passed = time.monotonic() - self._timer_start
        return passed >= policy.every_seconds and not self._is_saving()

    def _is_saving(self) -> bool:
        if self._background is not None:
            return self._background.is_busy()
        return bool(self._manager.is_saving_in_progress())

    def save(self, step: int, state: Any, metadata: dict[str, Any]) -> bool:
        """Start to save a checkpoint, and return whether that was possible.

        The state may be donated as soon as this returns. Errors are reported, and leave the
        existing checkpoints alone.
        """
        if step == self._latest_step:
            return True
        try:
            # Whether the previous one failed does not matter: there may be space again.
            self.wait_until_finished()
            return self._start_saving(step, state, metadata)
        finally:
            self.reset_timer(step)

    def _start_saving(self, step: int, state: Any, metadata: dict[str, Any]) -> bool:
        self._errors.pop(step, None)
        leaves = without_empty(named_leaves(state)[0])
        content = {"sha256": _sha256(metadata), "metadata": metadata}
        if self._background is not None:
            copies = copy_arrays(leaves)
            self._background.start(lambda: self._save_and_wait(step, copies, content))
        else:
            try:
                self._save(step, leaves, content)
            except Exception as error:  # of the file system, through several libraries
                self._on_error(step, error)
                return False
        self._latest_step = step
        return True

    def _save(self, step: int, leaves: dict[str, Any], content: dict[str, Any]) -> None:
        ocp = _orbax()
        TRACEBACK_FILTER.install()
        items = {
            "state": ocp.args.StandardSave({**leaves, _CHECKSUMS: _checksums(leaves)}),
            _METADATA_ITEM: ocp.args.JsonSave(content),
        }
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def _save_and_wait(self, step: int, copies: dict[str, Any], content: dict[str, Any]) -> None:
        self._save(step, copies, content)
        self._manager.wait_until_finished()

    def wait_until_finished(self) -> bool:
        """Wait until nothing is being saved, and return whether that succeeded."""
        try:
            if self._background is not None:
                self._background.wait()
            else:
                self._manager.wait_until_finished()
        except Exception as error:  # of the file system, through several libraries
            if self._latest_step is not None:
                self._on_error(self._latest_step, error)
            self._latest_step = None
            return False
        finally:
            TRACEBACK_FILTER.remove()
        self._finalize()
        return True

    def error(self, step: int) -> str | None:
        """Return why the checkpoint of a step could not be saved, or None."""
        return self._errors.get(step)

    def error_summary(self) -> str | None:
        """Return one sentence about all checkpoints that could not be saved, or None."""
        if not self._errors:
            return None
        causes = "; ".join(dict.fromkeys(self._errors.values()))
        steps = ", ".join(map(str, self._errors))
        which = (
            f"the checkpoint of step {steps}"
            if len(self._errors) == 1
            else f"{len(self._errors)} checkpoints (steps {steps})"
        )
        return f"{which} could not be saved: {causes}"

    def close(self) -> None:
        """Wait for the last checkpoint, and end orbax's threads."""
        if self._is_closed:
            return
        self._is_closed = True
        self.wait_until_finished()
        with contextlib.suppress(Exception):  # reported by `wait_until_finished`
            if self._background is not None:
                self._background.start(self._manager.close)
                self._background.wait()
            else:
                self._manager.close()
        if self._background is not None:
            self._background.close()

    def quarantine(self, steps: Sequence[int]) -> None:
        """Move damaged checkpoints to `damaged-checkpoints`, out of the way of new ones.

        They are not removed: what a network or a permission hides today may be there tomorrow.
        """
        import jax
        from jax.experimental import multihost_utils

        if jax.process_index() == 0:
            for step in steps:
                self._quarantine_directory.mkdir(exist_ok=True)
                target, number = self._quarantine_directory / str(step), 1
                while target.exists():
                    number += 1
                    target = self._quarantine_directory / f"{step}-{number}"
                (self._directory / str(step)).rename(target)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("vramfit: damaged checkpoints are moved")
        self._manager.reload()

    def _finalize(self) -> None:
        """Delete the checkpoints that are not to be kept, now that a new one is complete."""
        steps = self.all_steps()
        kept = set(steps[: self._policy.keep_last])
        by_cost = sorted((self._costs[step], step) for step in steps if step in self._costs)
        kept |= {step for _, step in by_cost[: self._policy.keep_best]}
        for step in steps:
            if step not in kept:
                self._manager.delete(step)

    def _on_error(self, step: int, error: Exception) -> None:
        """Remove the incomplete checkpoint, and report the first error."""
        import jax

        is_first = not self._errors
        self._errors[step] = _describe_cause(error)
        if jax.process_index() == 0:
            # It would take space on a disk that may be full.
            shutil.rmtree(self._directory / f"{step}.orbax-checkpoint-tmp", ignore_errors=True)
        if is_first:
            self._note(
                f"the checkpoint of step {step} could not be saved: {self._errors[step]}; "
                "training continues, and earlier checkpoints are kept"
            )


def restore_targets(leaves: dict[str, Any], sharding: Any) -> dict[str, Any]:
    """Return what orbax restores arrays by: their shapes, types and shardings.

    Args:
        leaves: The arrays of a state that are not empty, by name; or the same of each.
        sharding: The sharding of their checksums.
    """
    import jax

    targets: dict[str, Any] = {name: shape_struct(leaf) for name, leaf in leaves.items()}
    # One more than arrays; see `checksums`.
    sums = jax.ShapeDtypeStruct((len(leaves) + 1,), "uint32", sharding=sharding)
    return {**targets, _CHECKSUMS: sums}


def verified_state(arrays: dict[str, Any], state: Any) -> Any:
    """Return restored arrays as a state with the structure of `state`.

    Raises:
        ValueError: Their checksums are not those that were saved.
    """
    leaves, tree = named_leaves(state)
    computed = _checksums({name: arrays[name] for name in without_empty(leaves)})
    if not bool((arrays[_CHECKSUMS] == computed).all()):
        raise ValueError("checksum mismatch in its arrays")
    return tree.unflatten([arrays.get(name, leaf) for name, leaf in leaves.items()])


def read_checkpoint_metadata(directory: Path, step: int) -> dict[str, Any]:
    """Return the metadata of a checkpoint in a directory of checkpoints.

    Raises:
        Exception: Of any kind, when it cannot be read.
    """
    content = json.loads((directory / str(step) / _METADATA_ITEM / "metadata").read_bytes())
    metadata: dict[str, Any] = content["metadata"]
    if content["sha256"] != _sha256(metadata):
        raise ValueError("checksum mismatch in its metadata")
    return metadata


def _describe_cause(error: Exception) -> str:
    """Return why something could not be saved: the message of the system, if there is one.

    The texts of tensorstore are paragraphs with paths and source files.
    """
    text = str(error)
    found = [cause for cause in _SYSTEM_CAUSES if cause.lower() in text.lower()]
    if found:
        return found[0]
    line = first_line(error)
    return line if len(line) <= _MAX_CAUSE_LENGTH else f"{line[:_MAX_CAUSE_LENGTH]}…"


def _sha256(metadata: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _checksums(leaves: dict[str, Any]) -> Any:
    return checksums([leaves[name] for name in sorted(leaves)])


def _orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise PackageMissingError(
            "checkpoints need orbax, which is not installed",
            cause=str(error),
            hint="`pip install 'vramfit[train]'`, or train with `checkpoints=None`",
        ) from error
    return ocp
