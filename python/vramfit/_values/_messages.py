"""Messages between a dry run's process and the one that computes values for it (``_worker.py``)."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")


def send(pipe: int, message: Any) -> None:
    """Write one message into a pipe.

    Raises:
        OSError: If nobody reads it any more.
    """
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(pipe, view) :]


def receive(pipe: int) -> Any:
    """Read one message from a pipe; waits for it.

    Raises:
        EOFError: If the other side has closed it.
    """
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return pickle.loads(_read(pipe, length))


def _read(pipe: int, length: int) -> bytearray:
    data = bytearray()
    while len(data) < length:
        piece = os.read(pipe, min(length - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return data
