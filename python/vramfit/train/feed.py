"""Batches of a training run: on the device ahead of the program, from a place that can be kept."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vramfit._errors import FileChangedError, InvalidArgumentError, VramfitError
from vramfit.train.arrays import named_columns
from vramfit.train.wording import worded

if TYPE_CHECKING:
    from vramfit.data import Loader
    from vramfit.data.device import DeviceBatches

Tell = Callable[[str], None]


class Feed(Protocol):
    """What the loop needs of the data."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch, counted from 0, with its first batch."""

    def read_ahead(self, epoch: int) -> None:
        """Begin to read an epoch that will be begun, where that can be done; nothing fails here."""

    def end(self) -> None:
        """Stop reading what will not be begun."""

    def go_on(
        self, position: dict[str, Any], epoch: int, *, force: bool, tell: Tell
    ) -> Iterator[Any]:
        """Go on in the middle of an epoch; with nothing when all of it was handed out.

        Data that has changed since is told with `force`, and an error without it.
        """

    def position(self, batches: int) -> dict[str, Any]:
        """Return what has to be kept to go on; `batches` of the epoch were handed out."""

    def batches(self) -> int | None:
        """Return how many batches (or stacks of them) an epoch has, where that is known."""

    def rows_left(self) -> int | None:
        """Return how many rows of the epoch are still to come, where that is known."""

    def spare(self) -> int | None:
        """Return how many batches a program may keep before reading has to wait; None for any."""

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Return the columns of a batch on the host, and the position of its first row.

        Ends the pass that goes on. None where a batch cannot be read again at little cost.
        """

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return the rows of the file for rows behind a position of an epoch, or None."""

    def dataset(self, name: str) -> str | None:
        """Return which dataset a column is, or None."""


_MAX_BATCHES_AGAIN = 1000
"""Batches of a user's own iterable that are gone through to find one of them."""


class _Ahead(NamedTuple):
    """An epoch that is read ahead, its batches, and which pass over the loader it is."""

    epoch: int
    batches: Iterator[Any]
    round: int


class LoaderFeed:
    """A loader of ours, which knows by itself where it is."""

    def __init__(self, batches: DeviceBatches, *, whole_batches: bool) -> None:
        self._batches = batches
        self._whole = whole_batches
        self._left = 0
        self._ahead: _Ahead | None = None
        self.loader: Loader = batches.loader

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch, or take it where it is read already."""
        self._left = self.loader.rows
        if (ahead := self._take_ahead()) is not None and ahead.epoch == epoch:
            return ahead.batches
        return self._batches.epoch(epoch)

    def read_ahead(self, epoch: int) -> None:
        """Fill the first pool of an epoch while something else is done."""
        # What is wrong is said when it is begun: until then the run may do and keep other things.
        with suppress(VramfitError):
            self._ahead = _Ahead(epoch, self._batches.epoch(epoch), self.loader.generation)

    def end(self) -> None:
        """Stop the threads that read ahead."""
        if self._take_ahead() is not None:
            self.loader.close()

    def _take_ahead(self) -> _Ahead | None:
        """Return what is read ahead, once; None, too, where that was ended by another pass.

        An evaluation may have gone through the same loader meanwhile.
        """
        ahead, self._ahead = self._ahead, None
        return ahead if ahead is not None and ahead.round == self.loader.generation else None

    def go_on(
        self, position: dict[str, Any], epoch: int, *, force: bool, tell: Tell
    ) -> Iterator[Any]:
        """Go on where the loader was, in the file that it had."""
        state = position["loader"]
        try:
            self._batches.restore(state, force=force)
        except FileChangedError as error:
            raise FileChangedError(
                error.message,
                hint="bring the old file or a copy of it back, begin anew in another directory, or "
                "go on with the file as it is: "
                + worded(program="`force_resume=True`", command="`--force-resume`"),
            ) from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                error.message,
                hint=worded(
                    program=error.hint or "make the loader as it was",
                    command="bring back the file and the keys of `[data]` as they were, or begin "
                    "anew with `--fresh`",
                ),
            ) from error
        if (note := self.loader.restore_note) is not None:
            tell(f"{note}; the run goes on with it" if force else note)
        if state["epoch"] != epoch:  # behind the last batch it stands in the next one
            return iter(())
        self._left = self.loader.rows - int(state["position"])
        return iter(self._batches)

    def position(self, batches: int) -> dict[str, Any]:
        """Return the state of the loader."""
        return {"loader": self._batches.state()}

    def batches(self) -> int | None:
        """Return how many the loader has."""
        return len(self._batches)

    def rows_left(self) -> int | None:
        """Return the rows to come; None where each batch and each stack is full."""
        return None if self._whole else self._left

    def spare(self) -> int | None:
        """Return what is left when some are on their way and one is read; None for copies."""
        if self._batches.copies:
            return None
        return max(1, self.loader.buffer_count - self._batches.depth - 2)

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Return a batch as the loader hands it out."""
        if self.loader.world > 1:
            return None  # this process knows only its own rows
        first_row = batch * self.loader.batch_size * (self.loader.super_batch or 1)
        found = next(self.loader.batches_from(epoch, first_row), None)
        self.loader.close()
        return None if found is None else (named_columns(found), first_row)

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return what the order of the loader says."""
        last = min(first_row + max(rows) + 1, self.loader.rows)
        numbers = self.loader.file_rows(epoch, first_row, last)
        return [numbers[min(row, len(numbers) - 1)] for row in rows]

    def dataset(self, name: str) -> str | None:
        """Return the dataset of the loader."""
        return self.loader.datasets.get(name)


class IterableFeed:
    """Anything that can be gone through again and again, and has the same batches each time."""

    def __init__(self, batches: Iterable[Any], depth: int, put: Any) -> None:
        if iter(batches) is batches:
            raise InvalidArgumentError(
                "the batches are an iterator, which can be gone through once only",
                hint="give a list, a `Loader`, or an object whose `__iter__` begins anew",
            )
        self._batches = batches
        self._depth = depth
        self._put = put

    def begin(self, epoch: int) -> Iterator[Any]:
        """Go through them again."""
        return self._send(iter(self._batches))

    def read_ahead(self, epoch: int) -> None:
        """Do nothing: whose they are knows nothing of threads."""

    def end(self) -> None:
        """Do nothing."""

    def go_on(
        self, position: dict[str, Any], epoch: int, *, force: bool, tell: Tell
    ) -> Iterator[Any]:
        """Pass over what was handed out."""
        batches = iter(self._batches)
        for _ in range(position["batches"]):
            next(batches, None)
        return self._send(batches)

    def position(self, batches: int) -> dict[str, Any]:
        """Return their count."""
        return {"batches": batches}

    def batches(self) -> int | None:
        """Return how many there are, where they can be counted."""
        try:
            return len(self._batches)  # type: ignore[arg-type]
        except TypeError:
            return None

    def rows_left(self) -> int | None:
        """Return None: nothing is padded."""
        return None

    def spare(self) -> int | None:
        """Return None: their memory is their own."""
        return None

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Go through them again as far as that batch, unless it is far."""
        if batch >= _MAX_BATCHES_AGAIN:
            return None
        found = next(itertools.islice(iter(self._batches), batch, None), None)
        return None if found is None else (named_columns(found), 0)

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return None: whatever they are from is not known."""
        return None

    def dataset(self, name: str) -> str | None:
        """Return None."""
        return None

    def _send(self, batches: Iterator[Any]) -> Iterator[Any]:
        under_way: deque[Any] = deque()
        for batch in batches:
            under_way.append(self._put(batch))
            del batch
            if len(under_way) > self._depth:
                yield under_way.popleft()
        while under_way:
            yield under_way.popleft()


def real_steps(stack: Any, left: int | None) -> tuple[Any, int, int | None]:
    """Return a stack without batches that are only padding, how many it has, and rows left.

    Args:
        stack: Batches along the first axis.
        left: Real rows from its first on to the end of the epoch; None for no padding at all.
    """
    import jax

    first = jax.tree.leaves(stack)[0]
    steps, rows = first.shape[:2]
    if left is None or left >= steps * rows:
        return stack, steps, None if left is None else left - steps * rows
    real = -(-left // rows)
    return jax.tree.map(lambda part: part[:real], stack), real, 0


def feed(data: Any, *, depth: int, stacked: int, sharding: Any, role: str) -> Feed:
    """Return the feed of what the program gave.

    Args:
        data: A loader, what its `to_device` returned, or any batches.
        depth: How many batches are on their way to the device.
        stacked: How many batches have to come as one; 1 for none.
        sharding: Where batches go: a device or a sharding.
        role: The name of the argument, for messages.
    """
    from vramfit.data import Loader
    from vramfit.data.device import DeviceBatches

    if isinstance(data, DeviceBatches):
        data, depth = data.loader, data.depth
    if isinstance(data, Loader):
        _must_be_stacked(data, stacked, role)
        _must_share(data, role)
        _must_divide(data, sharding, role)
        ahead = DeviceBatches(data, depth, sharding, for_a_step=True)
        return LoaderFeed(ahead, whole_batches=data.drop_last)
    if not isinstance(data, Iterable):
        raise InvalidArgumentError(
            f"`{role}` is a {type(data).__name__}, and no batches can be taken from it",
            hint="give a `vramfit.data.Loader`, or a list of batches",
        )
    return IterableFeed(data, depth, _sender(sharding))


def _sender(place: Any) -> Callable[[Any], Any]:
    """Return what brings a batch to a device or a sharding, and leaves alone what is there."""
    import jax
    from jax.sharding import Sharding, SingleDeviceSharding

    there = place if isinstance(place, Sharding) else SingleDeviceSharding(place)

    def send(batch: Any) -> Any:
        for leaf in jax.tree.leaves(batch):
            if not (isinstance(leaf, jax.Array) and leaf.sharding == there):
                return jax.device_put(batch, place)
        # To put it there once more would change nothing, and take longer than giving a step.
        return batch

    return send


def _must_be_stacked(loader: Loader, stacked: int, role: str) -> None:
    has = loader.super_batch or 1
    if has == stacked and (stacked > 1) == (loader.super_batch is not None):
        return
    if stacked == 1:
        raise InvalidArgumentError(
            f"`{role}` hands out stacks of {has} batches, and steps take one batch at a time",
            hint=f"pass `steps_per_dispatch={has}`, or make the loader without `super_batch`",
        )
    raise InvalidArgumentError(
        f"`steps_per_dispatch={stacked}` needs stacks of {stacked} batches, and `{role}` hands out "
        + (f"stacks of {has}" if loader.super_batch else "single ones"),
        hint=f"make the loader with `super_batch={stacked}`",
    )


def _must_divide(loader: Loader, sharding: Any, role: str) -> None:
    parts = _parts(loader.sharding or sharding, axis=1 if loader.super_batch else 0)
    if loader.batch_size % parts:
        more = -(-loader.batch_size // parts) * parts
        raise InvalidArgumentError(
            f"the batches of `{role}` have {loader.batch_size} rows, which cannot be divided "
            f"equally among {parts} devices",
            hint=worded(
                program=f"take batches of {more} rows, or let JAX see one device only",
                command=f"`--set data.batch_size={more}`, or let JAX see one device only",
            ),
        )


def _parts(place: Any, axis: int) -> int:
    """Return into how many parts an axis is divided in a place: a device or a sharding."""
    from jax.sharding import NamedSharding

    if not isinstance(place, NamedSharding):
        return 1
    names = place.spec[axis] if axis < len(place.spec) else None
    named = names if isinstance(names, tuple) else (names,)
    return math.prod(place.mesh.shape[name] for name in named if name is not None)


def _must_share(loader: Loader, role: str) -> None:
    import jax

    if jax.process_count() > 1 and loader.world == 1:
        raise InvalidArgumentError(
            f"each of the {jax.process_count()} processes would read all rows of `{role}`",
            hint="make the loader with `sharding=vramfit.train.devices.batch_sharding()`",
        )
