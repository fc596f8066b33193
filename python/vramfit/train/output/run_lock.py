"""The lock on the directory of a run: two runs in it would destroy each other's checkpoints."""

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

from vramfit.errors import DirectoryInUseError, IoError

LOCK_NAME = ".vramfit.lock"
_MAX_BYTES = 4096  # of the description of its owner

# Errors of file systems without locks, such as some network ones.
_NO_LOCK_ERRORS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class RunLock:
    """Exclusive use of a directory. The system releases it with the process, however that ends.

    Args:
        directory: The directory of the run; it must exist when the lock is acquired.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._close: Callable[[], object] | None = None

    def acquire(self) -> str | None:
        """Acquire the lock; return why the file system has no locks, or None.

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
                hint="choose another `directory`",
            ) from error
        # Also closed when the lock is garbage collected, whatever went wrong before training.
        self._close = weakref.finalize(self, os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _describe(os.pread(file, _MAX_BYTES, 0))
            self.release()
            raise DirectoryInUseError(
                f"`{self._path.parent}` is in use by {owner}",
                hint="wait for that run or stop it, or choose another directory",
            ) from error
        except OSError as error:
            self.release()
            if error.errno in _NO_LOCK_ERRORS:
                return error.strerror or str(error)
            raise
        content = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(content).encode(), 0)
        return None

    @property
    def is_held(self) -> bool:
        """Whether this process has acquired it."""
        return self._close is not None

    def release(self) -> None:
        """Release the lock. The file stays: removing it could remove the lock of the next run."""
        if self._close is not None:
            self._close()
            self._close = None


def _describe(text: bytes) -> str:
    """Return who holds a lock, going by its file."""
    try:
        owner = json.loads(text)
        pid, host = int(owner["pid"]), str(owner["host"])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(owner["since"])))
    except (ValueError, KeyError, TypeError):
        return "another run"
    where = "" if host == socket.gethostname() else f" on `{host}`"
    return f"process {pid}{where}, a run started at {since}"
