"""Decisions that all processes of a run have to make alike: to stop, to save, to restore.

A signal reaches one process, and clocks differ. A single process decides after every step. Several
share at log points what each of them would do, in a reduction over all devices that nobody waits
for: it is read at the next log point, when it has long been computed, and then all do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_HALF_BITS = 31  # of a number, as much as is sent at once


class RemoteProcessError(Exception):
    """Another process failed, and reports its error itself."""


class ProcessGroup:
    """The processes of a run.

    Args:
        mesh: The mesh of all devices; None for a single device.
        values_known: Whether values can be exchanged; on virtual GPUs they never can, and each
            process decides by itself what all decide alike: nobody stops one of them.
    """

    def __init__(self, mesh: Any, *, values_known: bool = True) -> None:
        import jax

        self.is_distributed = values_known and jax.process_count() > 1
        self.is_primary = jax.process_index() == 0
        self._mesh = mesh
        self._pending: Any = None
        self._max_program: Any = None

    def any(self, *requests: bool, wait: bool = False) -> tuple[bool, ...]:
        """Return which of the requests any process has.

        Args:
            *requests: Which of them this process has.
            wait: Wait for the answers of all; otherwise those of the previous call are returned.
        """
        if not self.is_distributed:
            return requests
        previous, self._pending = self._pending, self._send(*requests)
        if wait:
            previous, self._pending = self._pending, None
        if previous is None:
            return (False,) * len(requests)
        import numpy as np

        return tuple(map(bool, np.asarray(previous)))

    def run_on_all(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work` once it has succeeded in all processes.

        If it fails in one it fails in all, because a process that continued alone would wait for
        the others forever.

        Raises:
            RemoteProcessError: It failed in other processes only.
            Exception: What `work` raised here.
        """
        if not self.is_distributed:
            return work()
        try:
            result = work()
        except Exception:
            self.max(1)
            raise
        if self.max(0):
            raise RemoteProcessError("another process failed here, and reports why")
        return result

    def run_on_primary(self, work: Callable[[], _Result]) -> _Result | None:
        """Run `work` in the first process only; all fail if it fails."""
        return self.run_on_all(work if self.is_primary else lambda: None)

    def max(self, number: int) -> int:
        """Return the largest of the numbers, each at least 0, of all processes; waits for them."""
        if not self.is_distributed:
            return number
        high, low = divmod(number, 1 << _HALF_BITS)
        max_high = self._wait_for_max(high)
        return (max_high << _HALF_BITS) + self._wait_for_max(low if high == max_high else 0)

    def _wait_for_max(self, number: int) -> int:
        import numpy as np

        return int(np.asarray(self._send(number))[0])

    def _send(self, *numbers: int) -> Any:
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        if self._max_program is None:
            replicated = NamedSharding(self._mesh, PartitionSpec())
            self._max_program = jax.jit(lambda rows: rows.max(axis=0), out_shardings=replicated)
        device_count = len(self._mesh.local_devices)
        own_rows = np.tile(np.array(numbers, np.int32), (device_count, 1))
        axes = PartitionSpec(self._mesh.axis_names)
        return self._max_program(
            jax.make_array_from_process_local_data(NamedSharding(self._mesh, axes), own_rows)
        )
