"""The lock on the directory of a run: two runs there destroy each other's checkpoints."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from vramfit._errors import DirectoryInUseError, IoError

NAME = ".vramfit.lock"
_MAX_BYTES = 4096  # of what a lock says of its owner

# What file systems answer that have no locks, such as some network ones.
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class RunLock:
    """Exclusive use of a directory. The system ends it with the process, however that ends.

    Args:
        directory: The directory of the run; it has to exist.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._close: Callable[[], object] | None = None

    def acquire(self) -> str | None:
        """Take the lock, and return why the file system has none, or None.

        Raises:
            DirectoryInUseError: Another process holds it.
            IoError: The directory cannot be written.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise IoError(
                f"cannot write to the directory `{self._path.parent}`",
                cause=error.strerror or str(error),
                hint="name another one as `directory`",
            ) from error
        # Also closed with a lock that is dropped, whatever went wrong before the training.
        self._close = weakref.finalize(self, os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _describe(os.pread(file, _MAX_BYTES, 0))
            self.release()
            raise DirectoryInUseError(
                f"`{self._path.parent}` is in use by {owner}",
                hint="wait for that run or stop it, or name another directory",
            ) from error
        except OSError as error:
            self.release()
            if error.errno in _WITHOUT_LOCKS:
                return error.strerror or str(error)
            raise
        content = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(content).encode(), 0)
        return None

    @property
    def is_held(self) -> bool:
        """Whether this process has it."""
        return self._close is not None

    def release(self) -> None:
        """Give the lock back. The file stays: removing it could take the lock of a successor."""
        if self._close is not None:
            self._close()
            self._close = None


def _describe(text: bytes) -> str:
    """Return who holds a lock, as its file says."""
    try:
        owner = json.loads(text)
        pid, host = int(owner["pid"]), str(owner["host"])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(owner["since"])))
    except (ValueError, KeyError, TypeError):
        return "another run"
    where = "" if host == socket.gethostname() else f" on `{host}`"
    return f"process {pid}{where}, a run started at {since}"
