"""Batches on their way to the device while the program computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from vramfit._errors import InvalidArgumentError

if TYPE_CHECKING:
    from vramfit.data.loader import Loader

# Beside those on their way: the one that the program has, and the one that is being made.
_OTHERS = 2

# On the CPU a batch of fewer bytes is copied, which takes less time than all else that is done with
# it: otherwise the few that the loader has memory for would bound how many steps may be under way.
_COPIED_BYTES = 1 << 20

# With memory for so many a training loop is never kept waiting by those that its steps read from.
_PLENTY = 20


class DeviceBatches:
    """A loader whose batches are JAX arrays. Made by :meth:`Loader.to_device`.

    JAX keeps the memory of a batch as long as it reads from it, and on the CPU as long as the array
    lives; only then does the loader use it again. So all of it counts in the loader's memory. On
    the CPU, batches below a mebibyte are copied, and the copies are the program's.

    Args:
        loader: Where batches come from.
        depth: How many are on their way.
        place: Where they go when the loader does not say: a device or a sharding.
        for_a_step: Whether they are given to a compiled step only. Then they stay arrays of numpy
            on a single CPU, and are not copied where the loader has memory for plenty of them.
    """

    def __init__(
        self, loader: Loader, depth: int, place: Any = None, *, for_a_step: bool = False
    ) -> None:
        from jax.sharding import Sharding

        if depth < 1:
            raise InvalidArgumentError(f"`depth` is {depth}, and has to be 1 at least")
        max_batches = loader._native.max_batches
        if depth + _OTHERS > max_batches:
            raise InvalidArgumentError(
                f"{depth} batches on their way need memory for {depth + _OTHERS}, and the loader "
                f"has it for {max_batches}",
                hint="give the loader more memory or threads, or take a smaller depth or batch",
            )
        self._loader = loader
        self._depth = depth
        # Where batches go when the loader itself says nothing: a device or a sharding.
        self._place = place
        # A compiled step takes arrays of numpy as well, in a fraction of the time of `device_put`.
        self._stays = for_a_step and not isinstance(loader.sharding or place, (Sharding, Mapping))
        self._has_plenty = loader.buffer_count >= depth + _PLENTY
        # Where the program has got to. A state is made of it for a checkpoint only.
        self._position: tuple[int, int] | None = None

    def __len__(self) -> int:
        """Return how many batches (or stacks of them) a whole epoch has."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Go on behind the last batch that was handed out, to the end of the epoch."""
        # A pass that was left early has read further than the program has got.
        return self._send(self._loader._start(*(self._position or self._loader.position)))

    def epoch(self, number: int) -> Iterator[Any]:
        """Begin an epoch, counted from 0, with its first batch."""
        return self._send(self._loader._start(number, 0))

    def _send(self, generation: int) -> Iterator[Any]:
        loader, depth = self._loader, self._depth
        under_way: deque[tuple[Any, tuple[int, int]]] = deque()
        self._position = loader.position
        while (found := loader._next(generation)) is not None:
            batch, position = found
            del found
            under_way.append((self._put(batch), position))
            del batch
            if len(under_way) > depth:
                sent, self._position = under_way.popleft()
                yield sent
                del sent
        while under_way:
            sent, self._position = under_way.popleft()
            yield sent
            del sent

    @cached_property
    def copies(self) -> bool:
        """Whether batches are copied, so that a program may keep as many as it likes."""
        is_small = self._loader.batch_bytes < _COPIED_BYTES
        return self._is_on_cpu and is_small and not (self._stays and self._has_plenty)

    @cached_property
    def _is_on_cpu(self) -> bool:
        """Whether batches go to the CPU just as the loader makes them."""
        import jax

        if self._loader._transform is not None:
            # What it returns may look into the loader's memory in any way.
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
        if self._stays and self._is_on_cpu:
            return batch
        sharding = self._loader.sharding
        if sharding is None:
            return jax.device_put(batch, self._place)
        if isinstance(sharding, Mapping):
            return {name: self._put_part(part, sharding[name]) for name, part in batch.items()}
        if sharding.is_fully_addressable:
            return jax.device_put(batch, sharding)
        return jax.tree.map(lambda part: self._put_part(part, sharding), batch)

    @staticmethod
    def _put_part(part: Any, sharding: Any) -> Any:
        import jax

        if sharding.is_fully_addressable:
            return jax.device_put(part, sharding)
        # Each process has its own rows of a batch that lies on the devices of all.
        return jax.make_array_from_process_local_data(sharding, part)

    def state(self) -> dict[str, Any]:
        """Return what has to be kept to go on behind the last batch that the program has got."""
        return self._loader._state(self._position)

    def restore(self, state: Any, *, force: bool = False) -> Self:
        """Resume from a state, as :meth:`Loader.restore`."""
        self._loader.restore(state, force=force)
        self._position = None
        return self

    @property
    def loader(self) -> Loader:
        """The loader that batches come from."""
        return self._loader

    @property
    def depth(self) -> int:
        """How many batches are transferred ahead of the program."""
        return self._depth

    def __repr__(self) -> str:
        return f"<{self._loader!r} to the device, {self._depth} ahead>"
