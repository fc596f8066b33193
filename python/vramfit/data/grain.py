"""The loader as a Grain dataset. Only this module imports Grain."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vramfit.data.checks import check_counts, check_optional_counts, list_paths
from vramfit.data.loader import Loader
from vramfit.errors import InvalidArgumentError, PackageMissingError

try:
    import grain
except ImportError as error:
    raise PackageMissingError(
        "`HDF5IterDataset` requires Grain, which cannot be imported",
        cause=str(error),
        hint="install it: `pip install 'vramfit[grain]'`",
    ) from error


class HDF5IterDataset(grain.IterDataset):
    """Batches of a :class:`vramfit.data.Loader` as a ``grain.IterDataset``.

    The loader prefetches with its own threads, in blocks, at the speed of the disk; so reading
    needs no ``mp_prefetch``. If that is used for an expensive ``map``, each worker makes batches of
    its shard of the rows, with its own loader.

    The state of an iterator is that of the loader, so Grain's checkpoints resume after the last
    batch, and reject a changed file.

    Args:
        path: The file, or several.
        datasets: Paths of datasets with the same number of rows, or a dictionary from column names
            to paths.
        batch_size: Rows of a batch, all processes together.
        epochs: Number of epochs; None for an endless dataset.
        options: Further arguments of :class:`vramfit.data.Loader`, but for ``sharding``: ``seed``,
            ``memory``, ``shuffle``, ``samples``, ``split``, ``dtype``, ``rank``, ``world`` ...
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        datasets: str | Sequence[str] | Mapping[str, str],
        *,
        batch_size: int,
        epochs: int | None = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        if "sharding" in options:
            raise InvalidArgumentError(
                "Grain iterators return NumPy arrays, which have no `sharding`",
                hint="choose the rows of this process with "
                "`rank=jax.process_index(), world=jax.process_count()`",
            )
        check_counts(batch_size=batch_size)
        check_optional_counts(epochs=epochs)
        self._epochs = epochs
        self._options = {
            "path": [os.path.abspath(one) for one in list_paths(path)],
            "datasets": datasets,
            "batch_size": batch_size,
            **options,
        }

    def __iter__(self) -> grain.DatasetIterator:
        """Open the file and start with the first batch of the first epoch."""
        return _LoaderIterator(Loader(**self._options), self._epochs)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict it to the shard of one worker, for Grain's ``mp_prefetch``.

        Each batch has as many rows as before, and each row is in the batches of one worker.
        """
        options = self._options
        rank, world = options.get("rank") or 0, options.get("world") or 1
        options["rank"] = rank * sl.step + sl.start
        options["world"] = world * sl.step
        options["batch_size"] *= sl.step

    def __str__(self) -> str:
        return f"HDF5IterDataset({', '.join(self._options['path'])})"


class _LoaderIterator(grain.DatasetIterator):
    def __init__(self, loader: Loader, epochs: int | None) -> None:
        super().__init__()
        self._loader = loader
        self._epochs = epochs
        self._batches: Iterator[Any] | None = None
        self._is_closed = False

    def __next__(self) -> Any:
        if self._is_closed:
            raise ValueError(f"{self} is closed")
        while True:
            self.start_prefetch()
            if self._batches is None:
                raise StopIteration
            for batch in self._batches:
                return batch
            self._batches = None

    def start_prefetch(self) -> None:
        """Start reading, unless it has started or the last epoch is over."""
        is_over = self._epochs is not None and self._loader.position[0] >= self._epochs
        if self._batches is None and not is_over:
            self._batches = iter(self._loader)

    def get_state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch."""
        return self._loader.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume after the last batch that was handed out when the state was saved."""
        self._batches = None
        self._loader.restore(state)

    def close(self) -> None:
        """Stop reading. Batches that were handed out stay as they are."""
        super().close()
        self._is_closed = True
        self._loader.close()

    def __str__(self) -> str:
        return f"HDF5IterDataset of {self._loader!r}"
