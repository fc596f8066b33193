"""Holds memory in JAX's pool for ``vramfit hold --backend jax``.

Each line of standard input is a request, and is answered by one line of JSON on standard output:
``open N``, ``take BYTES``, ``free``, ``verify``. At the end of input the process ends, and what it
held goes with it; so it cannot outlive the command that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, TextIO


class _Refused(Exception):
    """A request that cannot be met, as an error of the command line."""

    def __init__(self, id: str, message: str, cause: object = None, hint: str | None = None):
        super().__init__(message)
        self.answer = {
            "id": id,
            "message": message,
            "cause": None if cause is None else str(cause),
            "hint": hint,
        }


class Holder:
    """Arrays on one device, each filled with a number of its own."""

    def __init__(self) -> None:
        self._device: Any = None
        self._arrays: list[Any] = []

    def open(self, index: int) -> dict[str, Any]:
        """Start JAX and find the device."""
        try:
            import jax
        except ImportError as error:
            raise _Refused(
                "compiler-missing",
                f"`{sys.executable}` cannot import JAX",
                error,
                "install JAX with CUDA there, or name another Python with `--python`",
            ) from error
        try:
            devices = jax.local_devices(backend="gpu")
        except RuntimeError as error:
            raise _Refused(
                "compiler-missing",
                f"JAX in `{sys.executable}` has no GPU",
                error,
                "install JAX with CUDA there: `pip install 'jax[cuda13]'`",
            ) from error
        if index >= len(devices):
            raise _Refused(
                "invalid-argument",
                f"JAX has no GPU {index}",
                hint=f"it has {len(devices)}, counted from 0",
            )
        self._device = devices[index]
        return {"gpu_name": self._device.device_kind, **self.free()}

    def free(self) -> dict[str, Any]:
        """Return what JAX's allocator counts; the one called ``platform`` counts nothing."""
        stats = self._device.memory_stats() or {}
        return {
            "in_use_bytes": stats.get("bytes_in_use"),
            "limit_bytes": stats.get("bytes_limit"),
        }

    def take(self, size: int) -> dict[str, Any]:
        """Make one array of so many bytes, if it is to be had."""
        import jax
        import jax.numpy as jnp

        try:
            array = jnp.full(
                (size,), self._number(len(self._arrays)), jnp.uint8, device=self._device
            )
            self._arrays.append(jax.block_until_ready(array))
        # Which of the two depends on the way through JAX that the call took, and on its release.
        except (RuntimeError, ValueError) as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return {"taken": False}
        return {"taken": True}

    def verify(self) -> dict[str, Any]:
        """Read the first and last byte of every array back."""
        if os.environ.get("VRAMFIT_GPU"):
            return {
                "read_back": None,
                "note": "a virtual GPU keeps the books of its memory, and no contents",
                **self.free(),
            }
        counted = self.free()
        wrong = [index for index in range(len(self._arrays)) if not self._keeps_its_number(index)]
        note = f"array {wrong[0]} has other contents than were written" if wrong else None
        return {"read_back": not wrong, "note": note, **counted}

    def _keeps_its_number(self, index: int) -> bool:
        import jax

        array = self._arrays[index]
        # Cut by constants: an index that is an array would be of 32 bits, too few for 2 GiB.
        ends = (jax.lax.slice(array, (at,), (at + 1,)) for at in (0, array.size - 1))
        return all(int(end[0]) == self._number(index) for end in ends)

    @staticmethod
    def _number(index: int) -> int:
        # Never zero, which untouched memory may read as, and different from the neighbours'.
        return index % 255 + 1


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    holder = Holder()
    for line in requests:
        name, *arguments = line.split()
        try:
            answer = getattr(holder, name)(*map(int, arguments))
        except _Refused as refused:
            answer = {"error": refused.answer}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Serve on the standard streams."""
    # Ctrl-C is meant for the command that started us, which then ends our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What else writes to standard output, such as a start-up hook of a site, must not be taken
    # for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
