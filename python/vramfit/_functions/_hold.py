"""Allocates memory in JAX's pool for ``vramfit hold --backend jax``.

Each line of standard input is a request, answered by one line of JSON on standard output:
``open N``, ``allocate BYTES``, ``stats``, ``verify``. The process exits at the end of its input,
which frees the memory; so it cannot outlive the command that started it.
"""

from __future__ import annotations

import signal
import sys
from typing import Any, TextIO

from vramfit._functions import _child, _devices
from vramfit.errors import CompilerMissingError, InvalidArgumentError, VramfitError


class Holder:
    """Arrays on one device, each filled with a different number."""

    def __init__(self) -> None:
        self._device: Any = None
        self._arrays: list[Any] = []

    def open(self, index: int) -> dict[str, Any]:
        """Start JAX and find the device."""
        try:
            import jax
        except ImportError as error:
            raise CompilerMissingError(
                f"`{sys.executable}` cannot import JAX",
                cause=str(error),
                hint="install JAX with CUDA there, or select another Python with `--python`",
            ) from error
        try:
            devices = jax.local_devices(backend="gpu")
        except RuntimeError as error:
            raise CompilerMissingError(
                f"JAX in `{sys.executable}` has no GPU",
                cause=str(error),
                hint="install JAX with CUDA there: `pip install 'jax[cuda13]'`",
            ) from error
        if index >= len(devices):
            raise InvalidArgumentError(
                f"JAX has no GPU {index}", hint=f"it has {len(devices)}, counted from 0"
            )
        self._device = devices[index]
        return {"gpu_name": self._device.device_kind, **self.stats()}

    def stats(self) -> dict[str, Any]:
        """Return the statistics of JAX's allocator; ``platform`` keeps none."""
        stats = self._device.memory_stats() or {}
        return {
            "in_use_bytes": stats.get("bytes_in_use"),
            "limit_bytes": stats.get("bytes_limit"),
        }

    def allocate(self, size: int) -> dict[str, Any]:
        """Create one array of so many bytes, if there is enough memory."""
        import jax
        import jax.numpy as jnp

        try:
            array = jnp.full(
                (size,), self._number(len(self._arrays)), jnp.uint8, device=self._device
            )
            self._arrays.append(jax.block_until_ready(array))
        # Which of the two depends on the code path and the release of JAX.
        except (RuntimeError, ValueError) as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return {"allocated": False}
        return {"allocated": True}

    def verify(self) -> dict[str, Any]:
        """Read the first and last byte of every array back."""
        if _devices.is_virtual():
            return {
                "read_back": None,
                "note": "a virtual GPU has no memory contents",
                **self.stats(),
            }
        counted = self.stats()
        wrong = [index for index in range(len(self._arrays)) if not self._is_stable(index)]
        note = f"array {wrong[0]} does not contain what was written" if wrong else None
        return {"read_back": not wrong, "note": note, **counted}

    def _is_stable(self, index: int) -> bool:
        import jax

        array = self._arrays[index]
        # Constant bounds: an index array would have 32 bits, too few for 2 GiB.
        ends = (jax.lax.slice(array, (at,), (at + 1,)) for at in (0, array.size - 1))
        return all(int(end[0]) == self._number(index) for end in ends)

    @staticmethod
    def _number(index: int) -> int:
        # Never zero, which untouched memory may read as, and different from its neighbors.
        return index % 255 + 1


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    holder = Holder()
    for line in requests:
        name, *arguments = line.split()
        try:
            answer = getattr(holder, name)(*map(int, arguments))
        except VramfitError as error:
            answer = {"error": _child.failure(error)}
        _child.send(answers, **answer)


def main() -> None:
    """Serve on the standard streams."""
    # Ctrl-C is meant for the command that started this process, which then closes its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(sys.stdin, _child.claim_stdout())


if __name__ == "__main__":
    main()
