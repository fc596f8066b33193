"""Decisions that all processes of a run have to make alike: to stop, to make a checkpoint.

A signal reaches one process, and clocks differ. A process alone decides behind every step. Several
tell each other at log points what they would do, in a sum over all devices that nobody waits for:
it is read at the next log point, when it has long been there, and then all do the same.
"""

from __future__ import annotations

from typing import Any


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

    def _send(self, stop: bool, save: bool) -> Any:
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        if self._most is None:
            everywhere = NamedSharding(self._mesh, PartitionSpec())
            self._most = jax.jit(lambda wishes: wishes.max(axis=0), out_shardings=everywhere)
        rows = len(self._mesh.local_devices)
        mine = np.tile(np.array([stop, save], np.int32), (rows, 1))
        axes = PartitionSpec(self._mesh.axis_names)
        return self._most(
            jax.make_array_from_process_local_data(NamedSharding(self._mesh, axes), mine)
        )
