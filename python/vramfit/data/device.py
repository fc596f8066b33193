"""Batches on their way to the device while the program computes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vramfit._errors import InvalidArgumentError

if TYPE_CHECKING:
    from vramfit.data.loader import Loader

# Beside those on their way: the one that the program has, and the one that is being made.
_OTHERS = 2

# On the CPU a batch of fewer bytes is copied, which takes less time than all else that is done with
# it: otherwise the few that the loader has memory for would bound how many steps may be under way.
_COPIED_BYTES = 1 << 20


class DeviceBatches:
    """A loader whose batches are JAX arrays. Made by :meth:`Loader.to_device`.

    JAX keeps the memory of a batch as long as it reads from it, and on the CPU as long as the array
    lives; only then does the loader use it again. So all of it counts in the loader's memory. On
    the CPU, batches below a mebibyte are copied, and the copies are the program's.

    Args:
        loader: Where batches come from.
        depth: How many are on their way.
        place: Where they go when the loader does not say: a device or a sharding.
        for_a_step: Whether they are given to a compiled step only. Then a copy on a single CPU
            stays an array of numpy.
    """

    def __init__(
        self, loader: Loader, depth: int, place: Any = None, *, for_a_step: bool = False
    ) -> None:
        from jax.sharding import Sharding

        if depth < 1:
            raise InvalidArgumentError(f"`depth` is {depth}, and has to be 1 at least")
        most = loader._native.most_batches
        if depth + _OTHERS > most:
            raise InvalidArgumentError(
                f"{depth} batches on their way need memory for {depth + _OTHERS}, and the loader "
                f"has it for {most}",
                hint="give the loader more memory or threads, or take a smaller depth or batch",
            )
        self._loader = loader
        self._depth = depth
        # Where batches go when the loader itself says nothing: a device or a sharding.
        self._place = place
        # A compiled step takes arrays of numpy as well, in a fraction of the time of `device_put`.
        self._stays = for_a_step and not isinstance(loader._sharding or place, Sharding)
        # As text: it is taken with every batch, and looked into for a checkpoint only.
        self._state: str | None = None

    def __len__(self) -> int:
        """Return how many batches (or stacks of them) a whole epoch has."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Go on behind the last batch that was handed out, to the end of the epoch."""
        if self._state is not None:
            # A pass that was left early has read further than the program has got.
            self._loader.restore(self._state)
        return self._send(iter(self._loader))

    def epoch(self, number: int) -> Iterator[Any]:
        """Begin an epoch, counted from 0, with its first batch."""
        return self._send(self._loader.epoch(number))

    def _send(self, batches: Iterator[Any]) -> Iterator[Any]:
        under_way: deque[tuple[Any, str]] = deque()
        self._state = self._loader._native.state()
        for batch in batches:
            under_way.append((self._put(batch), self._loader._native.state()))
            del batch
            if len(under_way) > self._depth:
                sent, self._state = under_way.popleft()
                yield sent
                del sent
        while under_way:
            sent, self._state = under_way.popleft()
            yield sent
            del sent

    @cached_property
    def copies(self) -> bool:
        """Whether batches are copied, so that a program may keep as many as it likes."""
        import jax

        place = self._loader._sharding or self._place or jax.config.jax_default_device
        if place is None:
            place = jax.local_devices()[0]
        device = next(iter(getattr(place, "device_set", (place,))))
        return (
            getattr(device, "platform", device) == "cpu"
            # What a transform returns may look into the loader's memory in any way.
            and self._loader._transform is None
            and self._loader._batch_bytes < _COPIED_BYTES
        )

    def _put(self, batch: Any) -> Any:
        import jax

        if self.copies:
            batch = {name: part.copy() for name, part in batch.items()}
            if self._stays:
                return batch
        sharding = self._loader._sharding
        if sharding is None:
            return jax.device_put(batch, self._place)
        if sharding.is_fully_addressable:
            return jax.device_put(batch, sharding)
        # Each process has its own rows of a batch that lies on the devices of all.
        return jax.tree.map(
            lambda part: jax.make_array_from_process_local_data(sharding, part), batch
        )

    def state(self) -> dict[str, Any]:
        """Return what has to be kept to go on behind the last batch that the program has got."""
        if self._state is None:
            return self._loader.state()
        state: dict[str, Any] = json.loads(self._state)
        return state

    def restore(self, state: Any) -> DeviceBatches:
        """Go on from a state, as :meth:`Loader.restore`."""
        self._loader.restore(state)
        self._state = None
        return self

    def __repr__(self) -> str:
        return f"<{self._loader!r} to the device, {self._depth} ahead>"
