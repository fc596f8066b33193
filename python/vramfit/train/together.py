"""Decisions that all processes of a run have to make alike: to stop, to make or take a checkpoint.

A signal reaches one process, and clocks differ. A process alone decides behind every step. Several
tell each other at log points what they would do, in a sum over all devices that nobody waits for:
it is read at the next log point, when it has long been there, and then all do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_HALF = 31  # bits of a number that are sent at once


class ElsewhereError(Exception):
    """Something failed in another process, which tells of it."""


class Together:
    """The wishes of all processes.

    Args:
        mesh: The mesh of all devices; None for a single device.
    """

    def __init__(self, mesh: Any) -> None:
        import jax

        self.several = jax.process_count() > 1
        self._mesh = mesh
        self._under_way: Any = None
        self._most: Any = None

    def agree(self, stop: bool, save: bool, *, now: bool = False) -> tuple[bool, bool]:
        """Tell the others what this process would do, and return what all do.

        Args:
            stop: Whether it would stop.
            save: Whether it would make a checkpoint.
            now: Wait for the answer; otherwise it is that of the last time.
        """
        if not self.several:
            return stop, save
        before, self._under_way = self._under_way, self._send(stop, save)
        if now:
            before, self._under_way = self._under_way, None
        if before is None:
            return False, False
        import numpy as np

        answer = np.asarray(before)
        return bool(answer[0]), bool(answer[1])

    def attempt(self, work: Callable[[], _Result]) -> _Result:
        """Return what work comes to, if it succeeds in all processes; it is waited for all of them.

        Otherwise all fail, because whoever went on alone would wait for the others for ever.

        Raises:
            ElsewhereError: It failed in other processes only.
            Exception: What the work raised here.
        """
        if not self.several:
            return work()
        try:
            result = work()
        except Exception:
            self.most(1)
            raise
        if self.most(0):
            raise ElsewhereError("another process failed with it, and says why")
        return result

    def most(self, number: int) -> int:
        """Return the largest of the numbers, from 0, that the processes give; they wait for it."""
        if not self.several:
            return number
        high, low = divmod(number, 1 << _HALF)
        highest = self._largest(high)
        return (highest << _HALF) + self._largest(low if high == highest else 0)

    def _largest(self, number: int) -> int:
        import numpy as np

        return int(np.asarray(self._send(number))[0])

    def _send(self, *numbers: int) -> Any:
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        if self._most is None:
            everywhere = NamedSharding(self._mesh, PartitionSpec())
            self._most = jax.jit(lambda wishes: wishes.max(axis=0), out_shardings=everywhere)
        rows = len(self._mesh.local_devices)
        mine = np.tile(np.array(numbers, np.int32), (rows, 1))
        axes = PartitionSpec(self._mesh.axis_names)
        return self._most(
            jax.make_array_from_process_local_data(NamedSharding(self._mesh, axes), mine)
        )
