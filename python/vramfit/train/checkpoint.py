"""Checkpoints: written by orbax while training goes on, whole or not at all.

What training waits for is a copy of the state, because the next step is written into its memory.
On a CPU the copy is all: a thread makes the sums of it, and hands it to orbax. From a GPU it is
orbax that copies, and the GPU makes the sums, both before the next step; so it is with several
processes, whose threads could not keep to one order of what they do together.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramfit._errors import InvalidArgumentError, PackageMissingError, first_line
from vramfit.train.arrays import copied, form, named, with_values
from vramfit.train.background import Background

SCHEMA = 1
_PRINTS = "(prints)"
_MAX_CAUSE_LENGTH = 160
_SYSTEM_CAUSES = [
    os.strerror(number)
    for number in (
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
]


@dataclass(frozen=True)
class Checkpoints:
    """When checkpoints are made, and which are kept.

    One is made at the end of a run, too, and behind an epoch that is the best so far.

    Attributes:
        every_steps: Steps between two, or None.
        every_seconds: Seconds between two, or None.
        keep_last: How many of the newest stay.
        keep_best: How many of those with the smallest validation loss stay.
    """

    every_steps: int | None = None
    every_seconds: float | None = 600
    keep_last: int = 2
    keep_best: int = 1

    def __post_init__(self) -> None:
        for name, number, least in (
            ("every_steps", self.every_steps, 1),
            ("every_seconds", self.every_seconds, 0),
            ("keep_last", self.keep_last, 1),
            ("keep_best", self.keep_best, 0),
        ):
            if number is not None and number < least:
                raise InvalidArgumentError(
                    f"`{name}` is {number}, and has to be {least} at least",
                    hint=f"pass `Checkpoints({name}={least})` or more"
                    + ("; None for never" if name.startswith("every") else ""),
                )


class Keeper:
    """The checkpoints of one directory.

    Args:
        directory: Where they are; made when it is not there.
        policy: Which stay.
        tell: Takes a sentence for the person who runs it, at once.
        copies: Whether a state is copied where it is, and written from there in the background.
    """

    def __init__(
        self,
        directory: Path,
        policy: Checkpoints,
        tell: Callable[[str], None],
        *,
        copies: bool = False,
    ) -> None:
        ocp = _orbax()
        self._background = Background("vramfit-checkpoint") if copies else None
        self._policy = policy
        self._tell = tell
        self.directory = directory
        self._directory = directory.absolute()
        self._aside = self._directory.with_name("damaged-checkpoints")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(cleanup_tmp_directories=True),
        )
        self._losses: dict[int, float] = {}
        self._latest: int | None = None
        self._failures: dict[int, str] = {}
        self._clock = time.monotonic()
        self._steps = 0

    def steps(self) -> list[int]:
        """Return the steps that there are checkpoints of, the newest first."""
        return sorted(self._manager.all_steps(), reverse=True)

    def restore(self, step: int, state: Any) -> dict[str, Any]:
        """Return the arrays of a checkpoint, in the form and the places of those of `state`.

        Raises:
            Exception: Of whatever kind, when they cannot be read.
        """
        ocp = _orbax()
        kept = with_values(named(state)[0])
        like: dict[str, Any] = {name: form(leaf) for name, leaf in kept.items()}
        like[_PRINTS] = form(_sums(kept))
        found = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(like))
        )
        arrays: dict[str, Any] = found["state"]
        return arrays

    def verified(self, restored: dict[str, Any], state: Any) -> Any:
        """Return the state that is made of restored arrays.

        Raises:
            ValueError: They are not those that were written.
        """
        leaves, tree = named(state)
        now = _sums({name: restored[name] for name in with_values(leaves)})
        if not bool((restored[_PRINTS] == now).all()):
            raise ValueError("its numbers are not those that were written")
        return tree.unflatten([restored.get(name, leaf) for name, leaf in leaves.items()])

    def begin_behind(self, step: int) -> None:
        """Count steps and seconds to the next checkpoint from here."""
        self._clock, self._steps = time.monotonic(), step

    def read_facts(self, step: int) -> dict[str, Any]:
        """Return what was kept with a state, once this process has seen all of the checkpoint.

        Nothing of it waits for other processes, as all of :meth:`restore` does: what only one of
        them cannot read would leave the others waiting there.
        """
        directory = self._directory / str(step)
        for file in directory.rglob("*"):
            if file.is_file():
                file.open("rb").close()
        sealed = json.loads((directory / "facts" / "metadata").read_bytes())
        facts: dict[str, Any] = sealed["facts"]
        if sealed["sha256"] != _seal(facts):
            raise ValueError("what was kept with it is not what was written")
        return facts

    def learn(self, step: int, loss: float) -> None:
        """Take the validation loss of the state of a step, which decides what stays."""
        if math.isfinite(loss):
            self._losses[step] = loss

    def due(self, step: int) -> bool:
        """Say whether it is time for another."""
        policy = self._policy
        if policy.every_steps is not None and step - self._steps >= policy.every_steps:
            return True
        if policy.every_seconds is None:
            return False
        # A disk that is slower than that makes checkpoints rarer, and not the training slow.
        passed = time.monotonic() - self._clock
        return passed >= policy.every_seconds and not self._is_writing()

    def _is_writing(self) -> bool:
        if self._background is not None:
            return self._background.busy()
        return bool(self._manager.is_saving_in_progress())

    def write(self, step: int, state: Any, facts: dict[str, Any]) -> bool:
        """Begin to write one, and say whether it was begun.

        The state may be donated as soon as this returns. What goes wrong is told, and leaves the
        checkpoints that there are.
        """
        if step == self._latest:
            return True
        try:
            # Whether the one before failed does not matter: there may be space again.
            self.settle()
            return self._begin(step, state, facts)
        finally:
            self.begin_behind(step)

    def _begin(self, step: int, state: Any, facts: dict[str, Any]) -> bool:
        self._failures.pop(step, None)
        leaves, _ = named(state)
        kept = with_values(leaves)
        sealed = {"sha256": _seal(facts), "facts": facts}
        if self._background is not None:
            copies = copied(kept)
            self._background.begin(lambda: self._write_copy(step, copies, sealed))
        else:
            try:
                self._store(step, kept, sealed)
            except Exception as error:  # of the file system, through several libraries
                self._failed(step, error)
                return False
        self._latest = step
        return True

    def _store(self, step: int, kept: dict[str, Any], sealed: dict[str, Any]) -> None:
        ocp = _orbax()
        _FAILURE_FILTER.install()
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave({**kept, _PRINTS: _sums(kept)}),
                facts=ocp.args.JsonSave(sealed),
            ),
            force=True,
        )

    def _write_copy(self, step: int, copies: dict[str, Any], sealed: dict[str, Any]) -> None:
        self._store(step, copies, sealed)
        self._manager.wait_until_finished()

    def settle(self) -> bool:
        """Wait until nothing is written any more, and say whether all went well."""
        try:
            if self._background is not None:
                self._background.wait()
            else:
                self._manager.wait_until_finished()
        except Exception as error:  # of the file system, through several libraries
            if self._latest is not None:
                self._failed(self._latest, error)
            self._latest = None
            return False
        finally:
            _FAILURE_FILTER.remove()
        self._prune()
        return True

    def failure(self, step: int) -> str | None:
        """Return why the checkpoint of a step could not be written, or None."""
        return self._failures.get(step)

    def failures(self) -> str | None:
        """Return one sentence about all checkpoints that could not be written, or None."""
        if not self._failures:
            return None
        causes = "; ".join(dict.fromkeys(self._failures.values()))
        steps = ", ".join(map(str, self._failures))
        which = (
            f"the checkpoint of step {steps}"
            if len(self._failures) == 1
            else f"{len(self._failures)} checkpoints (steps {steps})"
        )
        return f"{which} could not be written: {causes}"

    def close(self) -> None:
        """Wait for the last one, and end orbax's threads."""
        self.settle()
        with contextlib.suppress(Exception):  # it was told by `settle`
            if self._background is not None:
                self._background.begin(self._manager.close)
                self._background.wait()
            else:
                self._manager.close()
        if self._background is not None:
            self._background.close()

    def set_aside(self, steps: Sequence[int]) -> None:
        """Move checkpoints that are not whole to `damaged-checkpoints`, out of the way of new ones.

        They are not removed: what a network or a permission hides today may be there tomorrow.
        """
        import jax
        from jax.experimental import multihost_utils

        if jax.process_index() == 0:
            for step in steps:
                self._aside.mkdir(exist_ok=True)
                target, tried = self._aside / str(step), 1
                while target.exists():
                    tried += 1
                    target = self._aside / f"{step}-{tried}"
                (self._directory / str(step)).rename(target)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("vramfit: damaged checkpoints are set aside")
        self._manager.reload()

    def _prune(self) -> None:
        there = self.steps()
        keep = set(there[: self._policy.keep_last])
        with_loss = [(self._losses[step], step) for step in there if step in self._losses]
        keep |= {step for _, step in sorted(with_loss)[: self._policy.keep_best]}
        for step in there:
            if step not in keep:
                self._manager.delete(step)

    def _failed(self, step: int, error: Exception) -> None:
        """Remove what is there of a checkpoint that failed, and report the first failure."""
        import jax

        first = not self._failures
        self._failures[step] = _cause(error)
        if jax.process_index() == 0:
            # A full disk must not be kept full by what is of no use.
            shutil.rmtree(self._directory / f"{step}.orbax-checkpoint-tmp", ignore_errors=True)
        if first:
            self._tell(
                f"the checkpoint of step {step} could not be written: {self._failures[step]}; "
                "training continues, and earlier checkpoints are kept"
            )


class _FailureFilter(logging.Filter):
    """Drops the tracebacks that orbax's threads log of a failure that is reported in one line."""

    def install(self) -> None:
        logging.getLogger("absl").addFilter(self)

    def remove(self) -> None:
        logging.getLogger("absl").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        of_orbax = f"{os.sep}orbax{os.sep}" in record.pathname
        return not (of_orbax and record.levelno >= logging.ERROR and record.exc_info)


_FAILURE_FILTER = _FailureFilter()


def _cause(error: Exception) -> str:
    """Return why something could not be written: in the system's words, where they are in there.

    The texts of tensorstore are paragraphs with paths and source files.
    """
    text = str(error)
    named = [cause for cause in _SYSTEM_CAUSES if cause.lower() in text.lower()]
    if named:
        return named[0]
    line = first_line(error)
    return line if len(line) <= _MAX_CAUSE_LENGTH else f"{line[:_MAX_CAUSE_LENGTH]}…"


def _seal(facts: dict[str, Any]) -> str:
    """Return a sum of facts that is another one when anything in them is."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _sums(leaves: dict[str, Any]) -> Any:
    from vramfit.train.prints import prints

    return prints([leaves[name] for name in sorted(leaves)])


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
