"""Batches that are transferred to the device while the program computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from vramfit.data.checks import ReadLock
from vramfit.data.device_map import jit_map, position_words
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from vramfit.data.loader import Loader
    from vramfit.data.mixture import Mixture

# Besides those being transferred: the one that the program has, and the one that is being made.
_OTHER_BATCHES = 2

# On the CPU a batch of fewer bytes is copied, which is cheap compared with the rest of the step:
# otherwise the few that the loader has memory for would limit how many steps may be in flight.
_MAX_COPIED_BYTES = 1 << 20

# With so many buffers a training loop never waits for those that its steps read from.
_AMPLE_BUFFERS = 20


class DeviceBatches:
    """A loader whose batches are JAX arrays. Made by :meth:`Loader.to_device`.

    JAX keeps the memory of a batch while it reads from it, and on the CPU as long as the array
    lives; only then does the loader recycle it. So all of it counts towards the loader's memory.
    On the CPU, batches below a mebibyte are copied, and the copies belong to the program.

    Args:
        loader: Where batches come from.
        depth: How many are transferred ahead of the program.
        place: The device or sharding for batches of a loader without a sharding.
        for_a_step: Whether they are only passed to a compiled step. Then they stay NumPy arrays
            on a single CPU, and are not copied if the loader has ample buffers.
        map_on_device: A function of a batch on the device; see :meth:`Loader.to_device`.
    """

    def __init__(
        self,
        loader: Loader | Mixture,
        depth: int,
        place: Any = None,
        *,
        for_a_step: bool = False,
        map_on_device: Callable[..., Any] | None = None,
    ) -> None:
        from jax.sharding import Sharding

        if depth < 1:
            raise InvalidArgumentError(f"`depth` is {depth}, but must be at least 1")
        max_batches = loader.max_batches
        needed = depth + _OTHER_BATCHES + loader.transform_threads
        if needed > max_batches:
            raise InvalidArgumentError(
                f"a depth of {depth} needs {needed} batches, but the loader "
                f"has memory for {max_batches}",
                hint="give the loader more memory or threads, or use a smaller depth or batch size",
            )
        self._loader = loader
        self._depth = depth
        self._place = place
        self._stays_same_shape = for_a_step
        # A compiled step accepts NumPy arrays as well, in a fraction of the time of `device_put`.
        self._stays_on_host_on_host = for_a_step and not isinstance(
            loader.sharding or place, (Sharding, Mapping)
        )
        self._has_ample_buffers = loader.buffer_count >= depth + _AMPLE_BUFFERS
        # The position of the program; a state is made of it only for a checkpoint.
        self._position: Any = None
        self.map_on_device = map_on_device
        self._map = None if map_on_device is None else jit_map(map_on_device)

    def __len__(self) -> int:
        """Return how many batches (or stacks of them) a whole epoch has."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, after the last batch that was handed out."""
        # An iterator that was left early has read further than the program.
        return _BatchesInFlight(self, *(self._position or self._loader.position))

    def epoch(self, number: int) -> Iterator[Any]:
        """Iterate over an epoch, counted from 0, from its first batch."""
        return _BatchesInFlight(self, number, 0)

    @cached_property
    def copies(self) -> bool:
        """Whether batches are copied, so that a program may keep any number of them."""
        is_small = self._loader.batch_bytes < _MAX_COPIED_BYTES
        return (
            self._is_on_cpu
            and is_small
            and not (self._stays_on_host_on_host and self._has_ample_buffers)
        )

    @cached_property
    def _is_on_cpu(self) -> bool:
        """Whether batches go to the CPU as the loader makes them."""
        import jax

        if self._loader.has_transform:
            # What it returns may be a view of the loader's memory.
            return False
        place = self._loader.sharding or self._place or jax.config.jax_default_device
        if isinstance(place, Mapping):
            place = next(iter(place.values()))
        if place is None:
            place = jax.local_devices()[0]
        device = next(iter(getattr(place, "device_set", (place,))))
        return bool(getattr(device, "platform", device) == "cpu")

    def _put(self, batch: Any) -> Any:
        import jax

        if self.copies:
            batch = {name: part.copy() for name, part in batch.items()}
        if self._stays_on_host_on_host and self._is_on_cpu:
            return batch
        sharding = self._loader.sharding
        if sharding is None:
            return jax.device_put(batch, self._place)
        if isinstance(sharding, Mapping):
            if unknown := [name for name in batch if name not in sharding]:
                raise InvalidArgumentError(
                    f"`sharding` has no entry for `{unknown[0]}`, which is a column of the batch",
                    hint="add one for every column that the `transform` returns",
                )
            return {name: self._put_part(part, sharding[name]) for name, part in batch.items()}
        if sharding.is_fully_addressable:
            return jax.device_put(batch, sharding)
        return jax.tree.map(lambda part: self._put_part(part, sharding), batch)

    @staticmethod
    def _put_part(part: Any, sharding: Any) -> Any:
        import jax

        if sharding.is_fully_addressable:
            return jax.device_put(part, sharding)
        # Each process has its own rows of a batch on the devices of all.
        return jax.make_array_from_process_local_data(sharding, part)

    def state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch that the program received."""
        return self._loader._state(self._position)

    def restore(self, state: Any, *, force: bool = False) -> Self:
        """Resume from a state, as :meth:`Loader.restore`."""
        self._loader.restore(state, force=force)
        self._position = None
        return self

    @property
    def loader(self) -> Loader | Mixture:
        """The loader that batches come from."""
        return self._loader

    @property
    def depth(self) -> int:
        """How many batches are transferred ahead of the program."""
        return self._depth

    def __repr__(self) -> str:
        return f"<{self._loader!r} to the device, {self._depth} ahead>"


class _BatchesInFlight:
    """The rest of an epoch on the device: transfers go on while the program computes."""

    def __init__(self, owner: DeviceBatches, *position: Any) -> None:
        loader = owner.loader
        self._owner = owner
        self._generation = loader._start(*position)
        self._in_flight: deque[tuple[Any, Any]] = deque()
        self._is_read = False
        self._lock = ReadLock()
        # Where the next batch to transfer begins.
        self._start = owner._position = loader.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            while not self._is_read and len(self._in_flight) <= self._owner.depth:
                try:
                    self._transfer()
                except BaseException:
                    # Going on would leave out the batch that failed.
                    self._is_read = True
                    self._in_flight.clear()
                    raise
            if not self._in_flight:
                raise StopIteration
            sent, self._owner._position = self._in_flight.popleft()
            return sent

    def _transfer(self) -> None:
        owner = self._owner
        loader = owner.loader
        found = loader._next(self._generation, same_shape=owner._stays_same_shape)
        if found is None:
            self._is_read = True
            return
        batch, position = found
        del found
        sent = owner._put(batch)
        del batch
        if owner._map is not None:
            sent = owner._map(sent, position_words(loader.seed, self._start))
        self._in_flight.append((sent, position))
        self._start = position
