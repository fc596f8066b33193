"""Batches of a training run, on the device ahead of the step, from a position that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from jax import Device
    from jax.sharding import Sharding

    from vramfit.data import Loader

Note = Callable[[str], None]


class BatchSource(Protocol):
    """What the loop needs of the data."""

    def start(self, epoch: int) -> Iterator[Any]:
        """Start an epoch, counted from 0, at its first batch."""

    def read_ahead(self, epoch: int) -> None:
        """Start to read an epoch that will be started, where that is possible; never fails."""

    def stop(self) -> None:
        """Stop reading what will not be started."""

    def resume(
        self, position: dict[str, Any], epoch: int, *, force: bool, note: Note
    ) -> Iterator[Any]:
        """Resume in the middle of an epoch; yields nothing if the epoch was at its end.

        Data that has changed since is a note with `force`, and an error without it.
        """

    def position(self, batches: int) -> dict[str, Any]:
        """Return what is needed to resume after `batches` of the epoch."""

    def batches_per_epoch(self) -> int | None:
        """Return the number of batches (or stacks of them) in an epoch, if known."""

    def rows_left(self) -> int | None:
        """Return the number of rows of the epoch still to come; None where nothing is padded."""

    def max_held(self) -> int | None:
        """Return how many batches may be held before reading has to wait; None for any number."""

    def read_again(self, epoch: int, batch: int) -> tuple[dict[str, Any], int] | None:
        """Return the columns of a batch on the host, and the position of its first row.

        Ends the current iteration. None if a batch cannot be read again at little cost.
        """

    def file_rows(self, epoch: int, first_row: int, rows: list[int]) -> list[int] | None:
        """Return the row numbers in the file of rows after a position of an epoch, or None."""

    def dataset(self, column: str) -> str | None:
        """Return the dataset that a column is read from, or None."""


def open_source(
    data: Any, *, depth: int, stacked: int, target: Device | Sharding, role: str
) -> BatchSource:
    """Return the source of batches for what the user passed.

    Args:
        data: A loader, what its `to_device` returned, or any batches.
        depth: Number of batches that are transferred ahead.
        stacked: Number of batches in a stack; 1 for single batches.
        target: The device or sharding that batches are put on.
        role: The name of the argument, for messages.
    """
    from vramfit.data import Loader, Mixture
    from vramfit.data.device import DeviceBatches
    from vramfit.train.data.iterable_source import IterableSource
    from vramfit.train.data.loader_source import open_loader_source

    if isinstance(data, Loader | Mixture | DeviceBatches):
        return open_loader_source(data, depth=depth, stacked=stacked, target=target, role=role)
    if not isinstance(data, Iterable):
        raise InvalidArgumentError(
            f"`{role}` is a {type(data).__name__}, which has no batches",
            hint="pass a `vramfit.data.Loader`, or a list of batches",
        )
    return IterableSource(data, depth, _sender(target))


def share_loader(data: Any, other: Any) -> bool:
    """Return whether two kinds of batches are read by the same loader, which has one position."""
    others = list_loaders(other)
    return any(one is other for one in list_loaders(data) for other in others)


def list_loaders(data: Any) -> list[Loader]:
    """Return the loaders that batches are read by: several of a mixture, and none of a list."""
    from vramfit.data import Loader, Mixture
    from vramfit.data.device import DeviceBatches

    loader = data.loader if isinstance(data, DeviceBatches) else data
    if isinstance(loader, Mixture):
        return list(loader.loaders.values())
    return [loader] if isinstance(loader, Loader) else []


def _sender(target: Device | Sharding) -> Callable[[Any], Any]:
    """Return what puts a batch on the target, and returns a batch that is there already as is."""
    import jax
    from jax.sharding import Sharding, SingleDeviceSharding

    sharding = target if isinstance(target, Sharding) else SingleDeviceSharding(target)

    def send(batch: Any) -> Any:
        for leaf in jax.tree.leaves(batch):
            if not (isinstance(leaf, jax.Array) and leaf.sharding == sharding):
                return jax.device_put(batch, target)
        # Another transfer would change nothing, and take longer than the dispatch of a step.
        return batch

    return send


def drop_padding(stack: Any, rows_left: int | None) -> tuple[Any, int, int | None]:
    """Return a stack without batches that are only padding, their number, and rows left after it.

    Args:
        stack: Batches along the first axis.
        rows_left: Real rows from its first row to the end of the epoch; None for no padding at all.
    """
    import jax

    first = jax.tree.leaves(stack)[0]
    steps, rows = first.shape[:2]
    if rows_left is None or rows_left >= steps * rows:
        return stack, steps, None if rows_left is None else rows_left - steps * rows
    real = -(-rows_left // rows)
    return jax.tree.map(lambda part: part[:real], stack), real, 0


def named_columns(batch: Any) -> dict[str, Any]:
    """Return the arrays of a batch by name."""
    if isinstance(batch, Mapping):
        return dict(batch)
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(batch)[0]
    return {jax.tree_util.keystr(path) or "the batch": leaf for path, leaf in leaves}
