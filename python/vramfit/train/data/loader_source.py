"""Batches from a loader of :mod:`vramfit.data`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vramfit.errors import FileChangedError, InvalidArgumentError, VramfitError
from vramfit.train.data.batch_source import Note, list_loaders, named_columns
from vramfit.train.messages import rephrase

if TYPE_CHECKING:
    from jax import Device
    from jax.sharding import Sharding

    from vramfit.data import Loader, Mixture
    from vramfit.data.device import DeviceBatches


class _Prefetched(NamedTuple):
    """An epoch that is being read ahead."""

    epoch: int
    batches: Iterator[Any]
    generation: int  # which iteration over the loader it is


class LoaderSource:
    """A loader, which keeps track of its position itself.

    Args:
        batches: The loader's batches on the device.
        pads: Whether the last batch or stack of an epoch may be padded.
    """

    def __init__(self, batches: DeviceBatches, *, pads: bool) -> None:
        self._batches = batches
        self._pads = pads
        self._rows_left = 0
        self._prefetched: _Prefetched | None = None
        # A mixture has what is used of a loader here.
        self._loader = cast("Loader", batches.loader)

    def start(self, epoch: int) -> Iterator[Any]:
        """Start an epoch, or continue with it if it is being read already."""
        self._rows_left = self._rows_after(0)
        if (prefetched := self._take_prefetched()) is not None and prefetched.epoch == epoch:
            return prefetched.batches
        return self._batches.epoch(epoch)

    def read_ahead(self, epoch: int) -> None:
        """Fill the first shuffle window of an epoch while something else is done."""
        # Errors are raised when the epoch is started: until then the run may do and save other
        # things.
        with suppress(VramfitError):
            batches = self._batches.epoch(epoch)
            self._prefetched = _Prefetched(epoch, batches, self._loader.generation)

    def stop(self) -> None:
        """Stop the threads that read ahead."""
        if self._take_prefetched() is not None:
            self._loader.close()

    def _take_prefetched(self) -> _Prefetched | None:
        """Return what is read ahead, once; None, too, if another iteration has ended it.

        An evaluation may have iterated over the same loader meanwhile.
        """
        prefetched, self._prefetched = self._prefetched, None
        is_current = prefetched is not None and prefetched.generation == self._loader.generation
        return prefetched if is_current else None

    def resume(
        self, position: dict[str, Any], epoch: int, *, force: bool, note: Note
    ) -> Iterator[Any]:
        """Resume at the loader's position, in the file that it had."""
        try:
            self._batches.restore(position["loader"], force=force)
        except FileChangedError as error:
            raise FileChangedError(
                error.message,
                hint="restore the old file or a copy of it, start over in another directory, or "
                "resume with the changed file: "
                + rephrase(program="`force_resume=True`", command="`--force-resume`"),
            ) from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                error.message,
                hint=rephrase(
                    program=error.hint or "create the loader with its previous arguments",
                    command="restore the file and the keys of `[data]`, or start over with "
                    "`--fresh`",
                ),
            ) from error
        if (change := self._loader.restore_note) is not None:
            note(f"{change}; the run continues with it" if force else change)
        at = self._loader.position
        if at[0] != epoch:  # after the last batch its position is in the next epoch
            return iter(())
        self._rows_left = self._rows_after(at[1])
        return iter(self._batches)

    def position(self, batches: int) -> dict[str, Any]:
        """Return the state of the loader."""
        return {"loader": self._batches.state()}

    def batches_per_epoch(self) -> int | None:
        """Return the number of batches of the loader."""
        return len(self._batches)

    def rows_left(self) -> int | None:
        """Return the rows to come; None if each batch and each stack is full."""
        return self._rows_left if self._pads else None

    def _rows_after(self, position: int) -> int:
        """Return the rows of an epoch after a position."""
        return self._loader.rows - position

    def max_held(self) -> int | None:
        """Return what is left besides those in transfer and one being read; None for copies."""
        if self._batches.copies:
            return None
        return max(1, self._loader.buffer_count - self._batches.depth - 2)

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Return a batch as the loader yields it."""
        if self._loader.world > 1:
            return None  # this process knows only its own rows
        first_row = batch * self._loader.batch_size * (self._loader.stacked_batches or 1)
        found = next(self._loader.batches_from(epoch, first_row), None)
        self._loader.close()
        return None if found is None else (named_columns(found), first_row)

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return what the row order of the loader says."""
        end = min(first_row + max(rows) + 1, self._loader.rows)
        numbers = self._loader.file_rows(epoch, first_row, end)
        return [numbers[min(row, len(numbers) - 1)] for row in rows]

    def dataset(self, column: str) -> str | None:
        """Return the dataset of the loader."""
        return self._loader.datasets.get(column)


class MixtureSource(LoaderSource):
    """A mixture: as a loader, but that no row of an epoch is known from its position."""

    def _rows_after(self, position: int) -> int:
        """Return 0: it is not asked for, as stacks of mixtures are full."""
        return 0

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Return None: the batches before would have to be counted."""
        return None

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return None: a batch may be of any of the loaders."""
        return None

    def dataset(self, column: str) -> str | None:
        """Return None, for the same reason."""
        return None


def open_loader_source(
    data: Loader | Mixture | DeviceBatches,
    *,
    depth: int,
    stacked: int,
    target: Device | Sharding,
    role: str,
) -> LoaderSource:
    """Return the source for a loader, a mixture, or what `to_device` of one returned.

    Args:
        data: The loader or mixture.
        depth: Number of batches that are transferred ahead.
        stacked: Number of batches in a stack; 1 for single batches.
        target: The device or sharding that batches are put on.
        role: The name of the argument, for messages.
    """
    from vramfit.data import Mixture
    from vramfit.data.device import DeviceBatches

    function = None
    if isinstance(data, DeviceBatches):
        loader, depth, function = data.loader, data.depth, data.map_on_device
    else:
        loader = data
    for one in list_loaders(loader):
        _check_stacks(one, stacked, role)
        _check_sharding(one, role)
        _check_batch_size(one, target, role)
    batches = DeviceBatches(loader, depth, target, for_a_step=True, map_on_device=function)
    if not isinstance(loader, Mixture):
        return LoaderSource(batches, pads=not loader.drop_last)
    if stacked > 1 and not loader.drop_last:
        raise InvalidArgumentError(
            f"`{role}` is a mixture whose loaders pad their last stack of batches",
            hint='create the loaders with `last_batch="drop"`',
        )
    return MixtureSource(batches, pads=False)


def _check_stacks(loader: Loader, stacked: int, role: str) -> None:
    stacked_batches = loader.stacked_batches
    if (stacked_batches or 1) == stacked and (stacked > 1) == (stacked_batches is not None):
        return
    if stacked == 1:
        raise InvalidArgumentError(
            f"`{role}` yields stacks of {stacked_batches or 1} batches, but steps take "
            "single batches",
            hint=f"pass `steps_per_dispatch={stacked_batches or 1}`, or create the loader without "
            "`stacked_batches`",
        )
    raise InvalidArgumentError(
        f"`steps_per_dispatch={stacked}` needs stacks of {stacked} batches, but `{role}` yields "
        + (f"stacks of {stacked_batches}" if stacked_batches else "single batches"),
        hint=f"create the loader with `stacked_batches={stacked}`",
    )


def _check_batch_size(loader: Loader, target: Device | Sharding, role: str) -> None:
    shards = _shard_count(loader.sharding or target, axis=1 if loader.stacked_batches else 0)
    if loader.batch_size % shards:
        larger = -(-loader.batch_size // shards) * shards
        raise InvalidArgumentError(
            f"the batches of `{role}` have {loader.batch_size} rows, which cannot be split "
            f"equally among {shards} devices",
            hint=rephrase(
                program=f"use batches of {larger} rows, or make only one device visible to JAX",
                command=f"`--set data.batch_size={larger}`, or make only one device visible to JAX",
            ),
        )


def _shard_count(target: Any, axis: int) -> int:
    """Return the number of shards along an axis on a device or sharding."""
    from jax.sharding import NamedSharding

    if not isinstance(target, NamedSharding):
        return 1
    names = target.spec[axis] if axis < len(target.spec) else None
    axes = names if isinstance(names, tuple) else (names,)
    return math.prod(target.mesh.shape[name] for name in axes if name is not None)


def _check_sharding(loader: Loader, role: str) -> None:
    import jax

    if jax.process_count() > 1 and loader.world == 1:
        raise InvalidArgumentError(
            f"each of the {jax.process_count()} processes would read all rows of `{role}`",
            hint="create the loader with `sharding=vramfit.train.devices.batch_sharding()`",
        )
